"""Take events in: from an authenticated list of them to records that are durable before the answer.

An event that is refused is kept as a dead letter with its own bytes, in the same append. An id that was used for
another event before refuses the later one. Nothing here changes what is stored: a list that is sent again, to any
gateway, makes the same rows.
"""

import base64
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from secondsight.access.eventids import Claim, Held, id_hash
from secondsight.access.identity import Identity
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds
from secondsight.gateway.events.body import EVENT_BYTES_MAXIMUM, Piece
from secondsight.gateway.events.item import Reading, Said, read_event
from secondsight.gateway.frames import require_host
from secondsight.gateway.known import Definition
from secondsight.gateway.native import Intake
from secondsight.gateway.records import Pair, number_of, readers_of, record, sender_name, stage_of
from secondsight.gateway.repeats import Repeats
from secondsight.gateway.shares import Entry
from secondsight.mapping.cells import ContentBuilder, Gathered, plain_text
from secondsight.model import EntityKind
from secondsight.wire.content import Event
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import MAX_TEXT_LENGTH, is_text, named_entities, named_schema

SOURCE = "events"
"""Second part of the ids of collectors, and source of their frames."""
FRAME_EVENTS, FRAME_BYTES = 1_000, 1 << 20
LETTERS_MAXIMUM = 200
"""Refused events of one request that are kept one by one; of more the first of each reason is, with their count."""
SEQUENCE_MASK = 2**62 - 1
MS_PER_SECOND = 1000
HOST_SEPARATORS = str.maketrans("/", "_")

Claims = Callable[[Sequence[Claim]], Awaitable[Mapping[bytes, Held]]]
_Group = tuple[str, EntityKind]


@dataclass(slots=True)
class Outcome:
    """What became of a list of events; `rejected` is by the position in the list."""

    accepted: int = 0
    duplicate: int = 0
    rejected: dict[int, Rejected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sender:
    """Who sends, and what its collectors are called."""

    identity: Identity
    name: str

    def collector_id(self, host: str) -> str:
        """Return the id of the collector that speaks of a host."""
        parts = (self.name, SOURCE, "" if host == self.name else host.translate(HOST_SEPARATORS))
        return plain_text("/".join(filter(None, parts)), 500)


class EventIntake:
    """Takes lists of events. Lives in one event loop.

    Args:
        intake: Stores frames.
        claim: Settles what ids stand for; raises Retryable while that cannot be.
    """

    def __init__(self, intake: Intake, claim: Claims, catalog: Catalog, bounds: Bounds, clock: Clock) -> None:
        self._intake = intake
        self._claim = claim
        self._catalog = catalog
        self._bounds = bounds
        self._clock = clock
        self._durable = Repeats()

    async def take(self, identity: Identity, entry: Entry, pieces: Sequence[Piece]) -> Outcome:
        """Store what can be of a list, and return what became of it; durable when it returns.

        Raises:
            Rejected(collector_not_allowed): The token may not write under any name of its own.
            Retryable: The log or the metadata store is away; sending the list again is right.
        """
        outcome, said = self.read(identity, pieces)
        again = await self._refuse_other_meanings(identity, said, outcome)
        sender = _Sender(identity, sender_name(identity))
        letters = list(_letters(sender, pieces, outcome.rejected, self._clock.now_ms()))
        good = [one for place, one in said.items() if place not in outcome.rejected]
        fresh = await self.store(identity, entry, good, letters)
        outcome.duplicate = max(len(good) - fresh, again)
        outcome.accepted = len(good) - outcome.duplicate
        return outcome

    def read(self, identity: Identity, pieces: Sequence[Piece]) -> tuple[Outcome, dict[int, Said]]:
        """Return what cannot be stored of a list, and what can, by their positions; nothing is stored yet.

        Raises:
            Rejected(collector_not_allowed): As `take`.
        """
        name = sender_name(identity)
        reading = Reading(self._catalog, name, self._clock.now_ms(), self._bounds)
        outcome, said = Outcome(), dict[int, Said]()
        for place, piece in enumerate(pieces):
            try:
                if isinstance(piece.fields, Rejected):
                    raise piece.fields
                one = read_event(piece.fields, reading)
                require_host(identity, name, one.host)
            except Rejected as error:
                outcome.rejected[place] = error
            else:
                said[place] = one
        return outcome, said

    async def store(self, identity: Identity, entry: Entry, said: Iterable[Said], others: Sequence[Pair]) -> int:
        """Store events, and further records with them; return how many this gateway did not know to be durable.

        Raises:
            Retryable: As `take`.
        """
        sender = _Sender(identity, sender_name(identity))
        fresh = {key: one for one in said if (key := _key(identity, one)) not in self._durable}
        frames: list[bytes] = []
        definitions: dict[bytes, Callable[[], Definition]] = {}
        for group, some in _chunks(fresh.values()):
            frame, known = _frame(sender, group, some, self._catalog)
            frames.append(frame)
            definitions |= known
        if frames or others:
            await self._intake.take_made(identity, entry, frames, definitions, others)
        self._durable.add(fresh)
        return len(fresh)

    async def _refuse_other_meanings(self, identity: Identity, said: Mapping[int, Said], outcome: Outcome) -> int:
        """Refuse events whose id stands for another one; return how many ids had been used for these very events."""
        named = {place: id_hash(identity.tenant_id, one.event_id) for place, one in said.items() if one.event_id}
        if not named:
            return 0
        held = await self._claim([Claim(name, said[place].content_hash) for place, name in named.items()])
        seen: set[bytes] = set()
        again = 0
        for place, name in named.items():
            if held[name].content_hash != said[place].content_hash:
                message = f"the id {said[place].event_id!r} stands for another event, and the first one counts"
                outcome.rejected[place] = Rejected("id_conflict", message, "give every event an id of its own")
            else:
                again += not held[name].is_new or name in seen
            seen.add(name)
        return again


def _key(identity: Identity, one: Said) -> int:
    return hash((identity.tenant_id, identity.cluster_id, one.kind, one.content_hash))


def _chunks(said: Iterable[Said]) -> Iterator[tuple[_Group, list[Said]]]:
    """Give events by host and kind, as many at a time as one frame may hold."""
    groups: defaultdict[_Group, list[Said]] = defaultdict(list)
    sizes: Counter[_Group] = Counter()
    for one in said:
        group = (one.host, one.kind)
        size = sum(len(name) + len(text) for name, text in one.item.attributes.items())
        if groups[group] and (len(groups[group]) >= FRAME_EVENTS or sizes[group] + size > FRAME_BYTES):
            yield group, groups.pop(group)
            sizes[group] = 0
        groups[group].append(one)
        sizes[group] += size
    yield from groups.items()


def _frame(
    sender: _Sender, group: _Group, said: Sequence[Said], catalog: Catalog
) -> tuple[bytes, dict[bytes, Callable[[], Definition]]]:
    """Return the frame of some events of one host and kind, and the definitions that it names."""
    host, kind = group[0] or sender.name, group[1]
    gathered = Gathered()
    for one in said:
        if isinstance(one.item, Event):
            gathered.events.append((kind, one.item))
        else:
            gathered.infos.append((kind, one.item))
    (content,) = ContentBuilder(host, "").build(gathered, 0)
    collector_id = sender.collector_id(host)
    sequence = number_of(*(one.content_hash for one in said)) & SEQUENCE_MASK
    stamp = Stamp(
        collector_id=collector_id,
        host_id=host,
        source=SOURCE,
        spool_id=number_of(
            sender.identity.tenant_id.encode(), sender.identity.cluster_id.encode(), collector_id.encode()
        ),
        first_sequence=sequence,
        last_sequence=sequence,
        tick_times_ms=np.zeros(0, np.int64),
        interval_ms=MS_PER_SECOND,
        live=True,
    )
    known = (named_schema(content.schema), named_entities(content.entities))
    return encode(stamp, content), readers_of(known, catalog)


def _letters(sender: _Sender, pieces: Sequence[Piece], rejected: Mapping[int, Rejected], now_ms: int) -> Iterator[Pair]:
    """Give the records that keep refused events; those beyond a bound are counted by the first one of their reason."""
    counts = Counter(error.code for error in rejected.values())
    kept = Counter[str]()
    for place, error in rejected.items():
        if kept.total() >= LETTERS_MAXIMUM and kept[error.code]:
            continue
        kept[error.code] += 1
        yield _letter(sender, pieces[place], error, now_ms, counts[error.code] if kept[error.code] == 1 else 0)


def _letter(sender: _Sender, piece: Piece, error: Rejected, now_ms: int, alike: int) -> Pair:
    identity = sender.identity
    fields = {} if isinstance(piece.fields, Rejected) else piece.fields
    host = str(fields.get("host") or "")[:MAX_TEXT_LENGTH]
    host = host if is_text(host) else ""
    more = f"; {alike} events of this request were refused for it" if alike > LETTERS_MAXIMUM else ""
    said = {
        "code": error.code,
        "message": error.message + more,
        "metric": str(fields.get("metric") or fields.get("type") or "")[:MAX_TEXT_LENGTH],
        "collector_id": sender.collector_id(host or sender.name),
        "host_id": host,
        "kind": "",
        "rows": 0,
        "values": 0,
        "first_tick_ms": None,
        "last_tick_ms": None,
        "stage": stage_of(error.code),
        "format": SOURCE,
        "payload_base64": base64.b64encode(piece.raw[:EVENT_BYTES_MAXIMUM]).decode(),
    }
    home = (identity.tenant_id, identity.region, identity.cluster_id)
    return record(RecordType.REFUSED, home, host or sender.name, now_ms, orjson.dumps(said))
