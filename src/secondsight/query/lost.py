"""Ask, for a processor, what agents of all tenants say that they sent and nobody has."""

from collections import defaultdict
from functools import partial

from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.process.holes import Ask, Looked, Missing, Who
from secondsight.query.inventory import Inventory
from secondsight.query.ledger import Asked
from secondsight.query.plan import Span
from secondsight.query.said import SHOWN_MAXIMUM, SaidReader, State

_TENANTS = (
    "SELECT DISTINCT tenant_id FROM ledger WHERE window_start >= toDateTime({from:UInt32}, 'UTC') "
    "AND window_start < toDateTime({to:UInt32}, 'UTC') AND tenant_id != ''"
)


def asker(store: Store, clock: Clock) -> Ask:
    """Return what answers a processor from its store; it blocks, and raises as the store does."""
    return partial(_ask, store, SaidReader(Inventory(store, clock)), clock)


def _ask(store: Store, reader: SaidReader, clock: Clock, from_ms: int, to_ms: int) -> Looked:
    rows = store.query(_TENANTS, {"from": from_ms // 1000, "to": to_ms // 1000}).to_pylist()
    tenants = tuple(sorted(row["tenant_id"] for row in rows))
    if not tenants:
        return Looked((), is_all=True)
    scope = Scope(tenants, None, None, None, frozenset(), "part:processor", Role.VIEWER)
    shorts = reader.read(Asked(Span(from_ms, to_ms)), scope, clock.now_ms()).shorts
    values: defaultdict[tuple[Who, int, bool], int] = defaultdict(int)
    for short in shorts:
        if short.state is not State.DECLARED:
            may_come = short.state is State.WAITING
            values[Who(*short.agent), short.minute_ms, may_come] += max(short.said.values - short.came.values, 1)
    return Looked(
        [Missing(who, at, count, may) for (who, at, may), count in values.items()], len(shorts) < SHOWN_MAXIMUM
    )
