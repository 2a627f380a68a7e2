"""Take requests of foreign senders in: from an authenticated body to records that are durable before the answer.

What is refused of a request is kept as dead letters in the same append, with its count and reason, and with the
request's bytes where that reason is new, so that nothing that was acknowledged is lost in silence.
"""

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import orjson

from secondsight.access.identity import Identity
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.gateway.actives import ACTIVE, NEW, OwnSeries
from secondsight.gateway.door import Door
from secondsight.gateway.foreign.answers import REASONS, WORDS_CHARACTERS, by_code
from secondsight.gateway.foreign.points import Points, Refused
from secondsight.gateway.foreign.sender import Sender, Settings, Who
from secondsight.gateway.foreign.taken import Made, Taken
from secondsight.gateway.frames import REFUSED_PAYLOAD_BYTES, Verdict
from secondsight.gateway.known import Definition
from secondsight.gateway.native import Intake
from secondsight.gateway.records import Pair, number_of, readers_of, record, sender_name, stage_of
from secondsight.gateway.shares import Entry
from secondsight.mapping.cells import plain_text
from secondsight.wire.envelope import RecordType

SENDERS_MAXIMUM = 500
LARGE_BYTES = 64 << 10
"""A larger body is read in a thread: others do not wait for it."""
TOLD_MAXIMUM = 20_000
OWED_MAXIMUM = 1_000
MS_PER_HOUR = 3_600_000
METRICS_NAMED = 20
METRIC_CHARACTERS = 200

Decode = Callable[[bytes, Sender], Points]
"""Unpacks and decodes a body by the index of its sender."""

_Key = tuple[str, ...]


class Form(NamedTuple):
    """What a body is: its protocol, and within that its type and encoding."""

    protocol: str
    name: str


class Again(NamedTuple):
    """A request that is sent again for one reason that refused points of it, and what goes before its frames.

    Attributes:
        points: How many were refused for it then.
    """

    code: str
    points: int
    mark: Pair


@dataclass(slots=True)
class _Served:
    """A sender with the lock that lets one request at a time at it.

    Attributes:
        told: What was refused of it lately, with the request's bytes; they are kept once an hour for each reason.
        owed: Frames that tell of changes and could not be stored; they go with the next request.
    """

    sender: Sender
    lock: asyncio.Lock
    told: set[Refused] = field(default_factory=set)
    told_hour: int = 0
    owed: list[Made] = field(default_factory=list)

    def is_news(self, taken: Taken, hour: int) -> bool:
        """Tell whether something is refused that was not lately, and note it."""
        if hour != self.told_hour or len(self.told) > TOLD_MAXIMUM:
            self.told, self.told_hour = set(), hour
        news = taken.refused.keys() - self.told
        self.told |= news
        return bool(news)


class ForeignIntake:
    """Takes requests of all foreign senders. Lives in one event loop.

    Args:
        intake: Stores frames.
        catalog: What metrics there are.
        settings: What is taken of each sender.
        door: Knows what each tenant may send.
        clock: The gateway's.
        series_maximum: Series that are remembered of all senders.
    """

    def __init__(
        self, intake: Intake, catalog: Catalog, settings: Settings, door: Door, clock: Clock, series_maximum: int
    ) -> None:
        self._intake = intake
        self._door = door
        self._series_maximum = series_maximum
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._senders: OrderedDict[_Key, _Served] = OrderedDict()

    async def take(
        self, identity: Identity, entry: Entry, form: Form, body: bytes, decode: Decode
    ) -> tuple[Taken, Verdict]:
        """Store what can be of a request, and return what became of it; durable when it returns.

        Raises:
            Rejected: The whole body is refused; nothing of it is stored.
            Overloaded: The tenant has used up its quota.
            Retryable: The log or the metadata store is away; sending the body again is right.
        """
        served = self._served(identity, form.protocol)
        taken = await self._taken(entry, served, body, decode)
        self._count_refused(entry, taken)
        definitions = self._definitions([*served.owed, *taken.frames])
        is_news = bool(taken.refused) and served.is_news(taken, self._clock.now_ms() // MS_PER_HOUR)
        refusals = self._refusals(identity, form, body if is_news else b"", taken, by_code(taken))
        owed, served.owed = served.owed, []
        frames = [made.frame for made in (*owed, *taken.frames)]
        try:
            verdict = await self._intake.take_made(identity, entry, frames, definitions, refusals)
        except Retryable:
            served.owed = [*owed, *taken.said, *served.owed][-OWED_MAXIMUM:]
            served.sender.note_unstored()
            raise
        return taken, verdict

    async def take_again(
        self, identity: Identity, entry: Entry, form: Form, body: bytes, decode: Decode, again: Again
    ) -> int:
        """Store what can be of a request that was taken before, and return of how many points a reason still holds.

        Nothing is stored where it holds of all that it held of; what else is refused was kept when it came.

        Raises:
            Rejected, Retryable: As `take`.
        """
        served = self._served(identity, form.protocol)
        taken = await self._taken(entry, served, body, decode)
        left = by_code(taken)[again.code]
        if left < again.points:
            refusals = self._refusals(identity, form, body, taken, {again.code: left} if left else {})
            frames = [made.frame for made in taken.frames]
            others = [again.mark, *refusals]
            await self._intake.take_made(identity, entry, frames, self._definitions(taken.frames), others)
        return left

    def renew(self) -> None:
        """Look series up anew that the catalogue did not have."""
        for served in self._senders.values():
            served.sender.renew()

    async def _taken(self, entry: Entry, served: _Served, body: bytes, decode: Decode) -> Taken:
        async with served.lock:
            if len(body) > LARGE_BYTES:
                read = partial(self._read, served.sender, body, decode)
                taken = await self._door.turns.run(entry, len(body), read)
            else:
                taken = self._read(served.sender, body, decode)
        self._forget_idle()
        return taken

    def _read(self, sender: Sender, body: bytes, decode: Decode) -> Taken:
        now_ms = self._clock.now_ms()
        sender.prepare(now_ms)
        points = decode(body, sender)
        return sender.take(points, number_of(body), now_ms)

    def _served(self, identity: Identity, protocol: str) -> _Served:
        name = sender_name(identity)
        key = (identity.tenant_id, identity.cluster_id, name, protocol)
        pattern = (*key, identity.collector_pattern, identity.host_id)
        served = self._senders.get(pattern)
        if served is None:
            spool_id = number_of(*map(str.encode, key))
            who = Who(name, protocol, spool_id, lambda host: identity.allows_host(name, host))
            own = OwnSeries(self._door.quotas.of(identity.tenant_id).series, identity.tenant_id, self._clock)
            served = self._senders[pattern] = _Served(Sender(who, self._catalog, self._settings, own), asyncio.Lock())
            while len(self._senders) > SENDERS_MAXIMUM:
                self._senders.popitem(last=False)[1].sender.close()
        self._senders.move_to_end(pattern)
        return served

    def _forget_idle(self) -> None:
        """Forget senders that were not heard of for longest while there are too many series in all."""
        held = sum(served.sender.index.size for served in self._senders.values())
        for key, served in list(self._senders.items()):
            if held <= self._series_maximum or served.lock.locked():
                return
            held -= served.sender.index.size
            self._senders.pop(key).sender.close()

    def _count_refused(self, entry: Entry, taken: Taken) -> None:
        """Count what was refused for a quota of series by tenant."""
        refused = self._door.allowance(entry).refused
        for one, count in taken.refused.items():
            if one.code in (ACTIVE, NEW):
                refused[one.code] += count

    def _definitions(self, frames: Sequence[Made]) -> dict[bytes, Callable[[], Definition]]:
        """Return what reads each definition that the frames name, should it not be known."""
        return readers_of([one for made in frames for one in (made.schema, made.entities)], self._catalog)

    def _refusals(
        self, identity: Identity, form: Form, body: bytes, taken: Taken, counts: Mapping[str, int]
    ) -> Sequence[Pair]:
        """Return the records that keep how many points were refused for which reason, with the request's bytes."""
        if not counts:
            return ()
        name = sender_name(identity)
        home = (identity.tenant_id, identity.region, identity.cluster_id)
        payload = base64.b64encode(body[:REFUSED_PAYLOAD_BYTES]).decode()
        said = (_said(code, count, taken) for code, count in counts.items())
        own = {
            "collector_id": f"{name}/{form.protocol}",
            "host_id": "",
            "kind": "",
            "format": form.protocol,
            "form": form.name,
            "payload_bytes": len(body),
            "payload_base64": payload,
        }
        bodies = (orjson.dumps(one | own) for one in said)
        now_ms = self._clock.now_ms()
        return [record(RecordType.REFUSED, home, name, now_ms, one) for one in bodies]


def _said(code: str, count: int, taken: Taken) -> dict[str, object]:
    named = {refused.metric for refused in taken.refused if refused.code == code and refused.metric}
    metrics = sorted(plain_text(metric, METRIC_CHARACTERS) for metric in named)
    more = f" and {len(metrics) - METRICS_NAMED} more" if len(metrics) > METRICS_NAMED else ""
    shown = ", ".join(metrics[:METRICS_NAMED]) + more
    words = taken.details.get(code, REASONS.get(code, ""))
    first_ms, last_ms = taken.spans_ms.get(code, (None, None))
    return {
        "code": code,
        "message": plain_text("; ".join(filter(None, (words, shown))) or code, WORDS_CHARACTERS),
        "metric": metrics[0] if len(metrics) == 1 else "",
        "rows": 0,
        "values": count,
        "first_tick_ms": first_ms,
        "last_tick_ms": last_ms,
        "stage": stage_of(code),
    }
