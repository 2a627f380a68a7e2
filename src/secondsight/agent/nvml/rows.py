"""Turn what the driver said of all GPUs at one tick into the columns of GPU rows.

A row is a GPU, or a GPU instance of one. Pure but for what it must remember: the rows of before, what is read rarely,
and the last readings of growing fields. A GPU that was not read keeps its row, so that what is missing is seen.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.nvml.channel import BLANK, INSTANCE, MAIN, NOT_ASKED, NOT_READ, SLOW
from secondsight.agent.nvml.decode import Decoded, Layout
from secondsight.agent.nvml.driver import Record
from secondsight.agent.nvml.plan import Plan, Slot
from secondsight.catalog.scale import Conversion, conversion
from secondsight.catalog.scale_table import ConversionTable
from secondsight.mapping.columns import HAS_VALUE
from secondsight.model import Quality

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Key = tuple[str, str]
Place = tuple[int, int]
"""(device number, GPU instance or -1)."""

WHOLE_GPU = -1
CODES = 1000

NO_DATA = 21
TIMEOUT = 10
NOT_SUPPORTED = 3
LOST = frozenset((15, 16))
"""Codes of a GPU that has fallen off the bus, or needs a reset: nothing else of it is to be had."""

_NO_CLAIM = (NOT_READ, NO_DATA, 27)
_NOT_SUPPORTED = (NOT_SUPPORTED, 13, 26, NOT_ASKED)
_NO_PERMISSION = (4, 17)
IS_ERROR = ~np.isin(np.arange(CODES), (0, BLANK, *_NO_CLAIM, *_NOT_SUPPORTED))
"""By code."""


def _qualities() -> U8:
    table = np.full(CODES, Quality.ABSENT_SOURCE_BLANK, np.uint8)
    table[list(_NO_CLAIM)] = Quality.NONE
    table[list(_NOT_SUPPORTED)] = Quality.ABSENT_NOT_SUPPORTED
    table[list(_NO_PERMISSION)] = Quality.ABSENT_NO_PERMISSION
    return table


NO_CLAIM = int(Quality.NONE)
QUALITY_OF_CODE = _qualities()
"""What a return code says of a value; not looked at for code 0."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What one tick gives.

    Attributes:
        patterns, quality: Shape (rows, metrics of the plan).
        codes: (name, return code) -> how often the driver refused with it.
        discarded: Quality -> values that were there and are refused.
        timed_out: By row: whether the driver answered with a time-out.
    """

    patterns: I64
    quality: U8
    timed_out: NDArray[np.bool_]
    codes: Counter[tuple[str, int]]
    discarded: Counter[Quality]


@dataclass(slots=True)
class _Sources:
    """Source values of all rows by name, and what became of them."""

    whole: I64
    real: NDArray[np.float64]
    codes: NDArray[np.int32]
    stamps_us: I64
    odd: dict[tuple[int, int], float]


class GpuRows:
    """The rows of a host's GPUs. Not shared between threads."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._name_at = {name: place for place, name in enumerate(plan.names)}
        self._asked = np.array([slot.asked for slot in plan.slots], np.intp)
        real = np.array([slot.is_real for slot in plan.slots], np.bool_)
        self._real_slots, self._whole_slots = np.flatnonzero(real), np.flatnonzero(~real)
        self._real = ConversionTable([_conversion(plan.slots[place]) for place in self._real_slots])
        self._whole = ConversionTable([_conversion(plan.slots[place]) for place in self._whole_slots])
        self._whole_place = {int(slot): place for place, slot in enumerate(self._whole_slots)}
        self._merge = _Merge(plan)
        self._growing = _Growing(plan)
        self._rare: dict[int, tuple[Decoded, tuple[str, ...]]] = {}
        self._rows: dict[Place, int] = {}
        self._last_quality: U8 = np.zeros((0, len(plan.metrics)), np.uint8)
        self._places: dict[tuple[str, ...], NDArray[np.intp]] = {}
        self.columns = {metric.name: place for place, metric in enumerate(plan.metrics)}

    def arrange(self, rows: Sequence[tuple[Key, Place | None]], before: Sequence[Key]) -> None:
        """Take another list of rows.

        Args:
            rows: Key of each row with its place at the driver, None where the driver does not list it.
            before: Keys of the rows until now.
        """
        old = {key: place for place, key in enumerate(before)}
        quality = np.zeros((len(rows), len(self._plan.metrics)), np.uint8)
        for row, (key, _) in enumerate(rows):
            if key in old:
                quality[row] = self._last_quality[old[key]]
        self._last_quality = quality
        self._rows = {place: row for row, (_, place) in enumerate(rows) if place is not None}
        numbers = {number for number, _ in self._rows}
        self._rare = {number: rare for number, rare in self._rare.items() if number in numbers}
        self._growing.forget()

    def forget_rare(self) -> None:
        """Forget what was read rarely, as the GPUs have other numbers now."""
        self._rare.clear()

    def learn_rare(self, records: Sequence[Record]) -> None:
        """Take what was read rarely."""
        for record in records:
            if record.layout is not None:
                self._rare[record.number] = record.layout.decode([record.body]), record.layout.names

    def read(self, records: Sequence[Record], interval_ms: int) -> Columns:
        """Return the columns of one tick.

        Args:
            records: What the child said.
            interval_ms: Cadence, for growing fields whose readings lie too far apart.
        """
        sources = self._blank()
        self._fill(records, sources)
        self._growing.apply(sources, interval_ms)
        codes = self._refusals(sources)
        patterns, quality = self._convert(sources)
        discarded = Counter(
            {
                Quality(value): int(count)
                for value, count in enumerate(np.bincount(quality[sources.codes[:, self._asked] == 0]))
                if count and value not in (Quality.NONE, Quality.OK, Quality.ESTIMATE)
            }
        )
        merged = self._merge.merged(patterns, quality)
        self._carry_over(records, *merged)
        return Columns(*merged, (sources.codes == TIMEOUT).any(axis=1), codes, discarded)

    def rare(self) -> Iterator[tuple[int, Decoded, tuple[str, ...]]]:
        """Give what was read rarely: device number, values, names of the values."""
        for number, (decoded, names) in self._rare.items():
            yield number, decoded, names

    def held(self, place: Place) -> frozenset[str]:
        """Return the metrics that a row had a value of when it was last read."""
        row = self._rows.get(place)
        if row is None:
            return frozenset()
        has = _has_value(self._last_quality[row])
        return frozenset(metric.name for metric, held in zip(self._plan.metrics, has.tolist(), strict=True) if held)

    def _blank(self) -> _Sources:
        shape = (len(self._last_quality), len(self._plan.names))
        codes = np.full(shape, NOT_READ, np.int32)
        return _Sources(np.zeros(shape, np.int64), np.zeros(shape), codes, np.zeros(shape, np.int64), {})

    def _fill(self, records: Sequence[Record], sources: _Sources) -> None:
        by_layout: dict[int, tuple[Layout, list[tuple[int, Record]]]] = {}
        for record in records:
            row = self._rows.get(_place(record))
            if record.layout is not None and row is not None and record.what != SLOW:
                by_layout.setdefault(id(record.layout), (record.layout, []))[1].append((row, record))
        for layout, members in by_layout.values():
            members.sort(key=lambda member: member[0])
            decoded = layout.decode([record.body for _, record in members])
            self._put(decoded, layout.names, [row for row, _ in members], sources)
        for record in records:
            rare = self._rare.get(record.number)
            row = self._rows.get(_place(record))
            if record.what == MAIN and rare is not None and row is not None:
                self._put_rare(rare[0], row, sources)

    def _put(self, decoded: Decoded, names: tuple[str, ...], rows: list[int], sources: _Sources) -> None:
        places = self._places.get(names)
        if places is None:
            places = self._places[names] = np.array([self._name_at[name] for name in names], np.intp)
        at = (np.array(rows, np.intp)[:, None], places[None, :])
        sources.whole[at], sources.real[at] = decoded.whole, decoded.real
        sources.codes[at], sources.stamps_us[at] = decoded.codes, decoded.stamps_us
        for (row, place), value in decoded.odd.items():
            sources.odd[rows[row], int(places[place])] = value

    def _put_rare(self, decoded: Decoded, row: int, sources: _Sources) -> None:
        begin, end = self._plan.main_count, len(self._plan.names)
        count = end - begin
        sources.whole[row, begin:end] = decoded.whole[0, :count]
        sources.codes[row, begin:end] = decoded.codes[0, :count]
        sources.stamps_us[row, begin:end] = decoded.stamps_us[0, :count]
        for (_, place), value in decoded.odd.items():
            if place < count:
                sources.odd[row, begin + place] = value

    def _convert(self, sources: _Sources) -> tuple[I64, U8]:
        codes = sources.codes[:, self._asked]
        patterns = np.zeros(codes.shape, np.int64)
        quality = QUALITY_OF_CODE[np.minimum(codes, CODES - 1)]
        asked = codes == 0
        whole, real = self._whole_slots, self._real_slots
        odd = self._odd_cells(sources)
        found, verdict = self._whole.integers(sources.whole[:, self._asked[whole]], asked[:, whole], odd)
        patterns[:, whole], quality[:, whole] = found, np.where(asked[:, whole], verdict, quality[:, whole])
        found, verdict = self._real.reals(sources.real[:, self._asked[real]], asked[:, real])
        patterns[:, real], quality[:, real] = found, np.where(asked[:, real], verdict, quality[:, real])
        return patterns, quality

    def _odd_cells(self, sources: _Sources) -> dict[tuple[int, int], float]:
        if not sources.odd:
            return {}
        return {
            (row, self._whole_place[slot]): value
            for (row, name), value in sources.odd.items()
            for slot in np.flatnonzero(self._asked == name).tolist()
            if slot in self._whole_place
        }

    def _refusals(self, sources: _Sources) -> Counter[tuple[str, int]]:
        errors = IS_ERROR[np.minimum(sources.codes, CODES - 1)]
        if not errors.any():
            return Counter()
        places = np.argwhere(errors)
        return Counter((self._plan.names[name], int(sources.codes[row, name])) for row, name in places.tolist())

    def _carry_over(self, records: Sequence[Record], patterns: I64, quality: U8) -> None:
        """Say of rows without a reading that what they had is blank now; remember the others."""
        read = np.zeros(len(quality), np.bool_)
        for record in records:
            row = self._rows.get(_place(record))
            if row is not None and record.what in (MAIN, INSTANCE) and record.code not in LOST:
                read[row] = True
        had = _has_value(self._last_quality)
        self._last_quality[read] = np.where(quality[read] == NO_CLAIM, self._last_quality[read], quality[read])
        left = ~read
        quality[left] = np.where(had[left], Quality.ABSENT_SOURCE_BLANK, self._last_quality[left])
        patterns[left] = 0


class _Merge:
    """Chooses for each metric the best of its sources: the first of them with a value, else the first with a reason."""

    def __init__(self, plan: Plan) -> None:
        by_metric: dict[str, list[int]] = {}
        for place, slot in enumerate(plan.slots):
            by_metric.setdefault(slot.metric.name, []).append(place)
        self._shape = len(plan.metrics)
        at = {metric.name: place for place, metric in enumerate(plan.metrics)}
        deepest = max(map(len, by_metric.values()), default=0)
        self._by_rank = [
            (
                np.array([at[name] for name, slots in by_metric.items() if len(slots) > rank], np.intp),
                np.array([slots[rank] for slots in by_metric.values() if len(slots) > rank], np.intp),
            )
            for rank in range(deepest)
        ]

    def merged(self, patterns: I64, quality: U8) -> tuple[I64, U8]:
        """Return patterns and qualities by metric."""
        out = np.zeros((len(patterns), self._shape), np.int64)
        out_quality = np.zeros((len(patterns), self._shape), np.uint8)
        for columns, slots in self._by_rank:
            old, new = out_quality[:, columns], quality[:, slots]
            better = (HAS_VALUE[new] & ~HAS_VALUE[old]) | (old == NO_CLAIM)
            out_quality[:, columns] = np.where(better, new, old)
            out[:, columns] = np.where(better, patterns[:, slots], out[:, columns])
        return out, out_quality


class _Growing:
    """Makes rates of fields that grow, from two readings and the times that the driver gave them."""

    def __init__(self, plan: Plan) -> None:
        self._places = np.array(sorted({slot.asked for slot in plan.slots if slot.per_second}), np.intp)
        self._before: tuple[I64, I64, NDArray[np.bool_]] | None = None

    def forget(self) -> None:
        """Forget the readings, as the rows are others now."""
        self._before = None

    def apply(self, sources: _Sources, interval_ms: int) -> None:
        """Put the increase per second in the place of the readings; no data where there is no reading before."""
        if not self._places.size:
            return
        now = sources.whole[:, self._places], sources.stamps_us[:, self._places]
        good = sources.codes[:, self._places] == 0
        before, self._before = self._before, (*now, good)
        rate, usable = np.zeros(good.shape, np.int64), np.zeros(good.shape, np.bool_)
        if before is not None:
            grown, passed_us = now[0] - before[0], now[1] - before[1]
            usable = good & before[2] & (grown >= 0) & (passed_us > 0) & (passed_us <= 5000 * interval_ms)
            rate = np.rint(np.where(usable, grown, 0) * 1e6 / np.where(usable, passed_us, 1)).astype(np.int64)
        sources.whole[:, self._places] = rate
        sources.codes[:, self._places] = np.where(good & ~usable, NO_DATA, sources.codes[:, self._places])


def _conversion(slot: Slot) -> Conversion:
    return conversion(slot.metric, slot.source)


def _place(record: Record) -> Place:
    return record.number, record.instance if record.what == INSTANCE else WHOLE_GPU


def _has_value(quality: U8) -> NDArray[np.bool_]:
    has: NDArray[np.bool_] = HAS_VALUE[quality]
    return has
