"""Choose what goes out next: in order while little waits; with a backlog, in turns the newest and the oldest.

The live lane takes what was just read past the backlog, so fresh data never waits for old data. The in-order lane takes
the most important class first, as long as it leads the others by no more than `LEAD_SECONDS` (a receiver keeps windows
open until every class has passed). Frames that overtake older records of any class are marked live: they move no
watermark, and a backlog is never late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from secondsight.agent.spool.classes import Spools
from secondsight.agent.spool.custody import ClassSpool
from secondsight.agent.spool.reading import SpoolRecord
from secondsight.clock import Clock
from secondsight.model import Priority

LEAD_SECONDS = 600.0
ORDER_MS = 8000
"""Classes may be apart by so much without being out of order; a receiver waits for 10 s."""
FRESH_SECONDS = 10.0
STALE_SECONDS = 30.0
"""A live lane that is behind by so much begins anew with what is fresh."""


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """When and how much.

    Attributes:
        batch_seconds: Records may wait so long for company; with a backlog the live lane has its turn as often.
        batch_records: Most records at once.
        backlog_seconds: Age of the oldest record from which there is a backlog.
    """

    batch_seconds: float = 5.0
    batch_records: int = 2000
    backlog_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Load:
    """Records of one spool that go out together.

    Attributes:
        is_live: They overtake older ones.
    """

    member: ClassSpool
    records: tuple[SpoolRecord, ...]
    is_live: bool

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the frames."""
        return sum(len(record.payload) for record in self.records)

    @property
    def first_ms(self) -> int:
        """Return when the first of them was appended."""
        return self.records[0].append_time_ms

    @property
    def last_ms(self) -> int:
        """Return when the last of them was appended."""
        return self.records[-1].append_time_ms

    @property
    def span(self) -> tuple[int, int]:
        """Return the sequences [first, end) that are settled by delivering it."""
        return self.records[0].sequence, self.records[-1].sequence + 1


@dataclass(frozen=True, slots=True)
class Turn:
    """What goes out next.

    Attributes:
        wait_seconds: To wait before it; for company.
        is_backlog: It is old data, and more urgent things need not wait for it.
    """

    loads: tuple[Load, ...]
    wait_seconds: float = 0.0
    is_backlog: bool = False


class Lanes:
    """The order of delivery of an agent's spools. One thread uses it."""

    def __init__(self, spools: Spools, clock: Clock, config: LaneConfig) -> None:
        self._spools = spools
        self._clock = clock
        self._config = config
        self._live_at = 0.0
        self._live_next: dict[int, int] = {}

    def next(self, max_bytes: int) -> Turn:
        """Return what is to go out next; nothing changes by asking.

        Raises:
            Retryable: The disk fails.
        """
        members = [member for member in self._spools.members if member.spool.records]
        if self._spools.oldest_age_seconds <= self._config.backlog_seconds:
            self._live_next.clear()
            return self._in_company(members, max_bytes)
        if self._clock.monotonic_seconds() >= self._live_at:
            loads = self._newest(members, max_bytes)
            if loads:
                return Turn(loads)
        return Turn(self._oldest(members, max_bytes), is_backlog=True)

    def next_urgent(self, max_bytes: int) -> Turn:
        """Return what is to go out next of class P0 alone, while a gateway has no room for others.

        Raises:
            Retryable: The disk fails.
        """
        members = [one for one in self._spools.members if one.priority is Priority.P0 and not one.is_earlier]
        turn = self._in_company([one for one in members if one.spool.records], max_bytes)
        return replace(turn, loads=self._marked(turn.loads))

    def delivered(self, turn: Turn) -> None:
        """Settle what a gateway has answered for.

        Raises:
            Retryable: The disk fails; it may be sent again.
        """
        for load in turn.loads:
            first, end = load.span
            if load.is_live and load.member.spool.spool_id in self._live_next:
                self._live_next[load.member.spool.spool_id] = end
            self._spools.settle(load.member, first, end)
        if not turn.is_backlog:
            self._live_at = self._clock.monotonic_seconds() + self._config.batch_seconds

    def _in_company(self, members: Sequence[ClassSpool], max_bytes: int) -> Turn:
        loads = self._fill(members, max_bytes, {})
        taken = sum(len(load.records) for load in loads)
        if taken < sum(member.spool.records for member in members):
            return Turn(self._marked(loads))
        loads = _sliced(loads)
        size_bytes = sum(load.size_bytes for load in loads)
        if taken >= self._config.batch_records or size_bytes >= max_bytes // 2:
            return Turn(loads)
        oldest_ms = min((load.first_ms for load in loads), default=None)
        age_seconds = 0.0 if oldest_ms is None else (self._clock.now_ms() - oldest_ms) / 1000
        wait_seconds = 0.0 if age_seconds < 0 else max(self._config.batch_seconds - age_seconds, 0.0)
        return Turn(loads, wait_seconds)

    def _newest(self, members: Sequence[ClassSpool], max_bytes: int) -> tuple[Load, ...]:
        now_ms = self._clock.now_ms()
        starts = {}
        for member in members:
            if member.is_earlier:
                continue
            spool_id = member.spool.spool_id
            fresh = self._spools.appended_since(member, now_ms - round(FRESH_SECONDS * 1000))
            begun = self._live_next.get(spool_id)
            is_stale = begun is not None and begun < self._spools.appended_since(
                member, now_ms - round(STALE_SECONDS * 1000)
            )
            starts[spool_id] = self._live_next[spool_id] = fresh if begun is None or is_stale else begun
        loads = self._fill([member for member in members if not member.is_earlier], max_bytes, starts)
        return tuple(Load(load.member, load.records, is_live=True) for load in loads)

    def _oldest(self, members: Sequence[ClassSpool], max_bytes: int) -> tuple[Load, ...]:
        """Return the next records of the class whose turn it is; a class without a backlog has the live lane."""
        bound = self._clock.now_ms() - self._config.backlog_seconds * 1000
        times = [(member, self._spools.oldest_ms(member) or 0) for member in members]
        behind = [(member, oldest_ms) for member, oldest_ms in times if oldest_ms < bound]
        for place, (member, oldest_ms) in enumerate(behind):
            later = min((other for _, other in behind[place + 1 :]), default=1 << 62)
            if member.is_earlier or oldest_ms <= later + LEAD_SECONDS * 1000:
                return self._marked(self._fill([member], max_bytes, {}))
        return ()

    def _fill(self, members: Sequence[ClassSpool], max_bytes: int, starts: dict[int, int]) -> tuple[Load, ...]:
        """Read owed records, the most important first, up to the bounds of a batch."""
        loads: list[Load] = []
        room, records = max_bytes, self._config.batch_records
        for member in members:
            if room <= 0 or records <= 0:
                break
            found = self._spools.read(member, records, room, starts.get(member.spool.spool_id, 0))
            if found:
                loads.append(Load(member, tuple(found), is_live=False))
                room -= loads[-1].size_bytes
                records -= len(found)
        return tuple(loads)

    def _marked(self, loads: tuple[Load, ...]) -> tuple[Load, ...]:
        """Mark what overtakes records that stay behind, or that follow in the same body."""
        times = [self._left_behind_ms(member, loads) for member in self._spools.members]
        left = min((time for time in times if time is not None), default=1 << 62)
        marked = []
        for place, load in enumerate(loads):
            bound = min([left, *(later.first_ms for later in loads[place + 1 :])]) + ORDER_MS
            marked.append(Load(load.member, load.records, load.last_ms > bound))
        return tuple(marked)

    def _left_behind_ms(self, member: ClassSpool, loads: tuple[Load, ...]) -> int | None:
        """Return a time before which no record of a spool stays behind; None when none does."""
        taken = next((load for load in loads if load.member is member), None)
        if taken is None:
            return self._spools.oldest_ms(member)
        return taken.last_ms if len(taken.records) < member.spool.records else None


def _sliced(loads: tuple[Load, ...]) -> tuple[Load, ...]:
    """Return loads so that each class has its turn every `ORDER_MS`: sent in this order, nothing overtakes anything."""
    if not loads or max(load.last_ms for load in loads) - min(load.first_ms for load in loads) < ORDER_MS:
        return loads
    slices: dict[tuple[int, int], list[SpoolRecord]] = {}
    for place, load in enumerate(loads):
        for record in load.records:
            slices.setdefault((record.append_time_ms // ORDER_MS, place), []).append(record)
    return tuple(
        Load(loads[place].member, tuple(records), is_live=False) for (_, place), records in sorted(slices.items())
    )
