"""Answer a plan out of the live window: any grouping of any number of entities, in arrays.

The points are those of the statement that `compile.py` writes for the same plan and scope. What the window does not
hold, or holds only a part of, is not answered: the store is asked then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.catalog.members import may_wrap
from secondsight.live.block import LiveBlock
from secondsight.live.reading import LiveReading
from secondsight.live.shape import OWNER, RAW_BLOCK_MS
from secondsight.query.aggregates import QUANTILES, Aggregate, is_histogram
from secondsight.query.coverage import Held
from secondsight.query.fold import HeldArrays, Places, best_of, figures_of, held_arrays, narrowed, quantiles_of
from secondsight.query.inventory import EXPECTED_SECONDS, Inventory
from secondsight.query.labelling import Labels, compile_products, labels_of, of_products
from secondsight.query.live import LiveTables, where_of
from secondsight.query.numbering import Union, Unions
from secondsight.query.plan import SeriesPlan, Span
from secondsight.query.request import Group
from secondsight.query.rolled import rollup_windows
from secondsight.query.rows import Figures
from secondsight.query.windowed import Frame, LooksFarther, Rows, Windows, joined, raw_windows
from secondsight.query.windows import IDENTITY
from secondsight.store.coarse import FINEST
from secondsight.store.schema import rollup_table

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

NEAR_MS = 60_000
"""Where the sample before a counter's first one is looked for where less than its whole reach is held."""
POINTS_MAXIMUM = 20_000_000
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Grouped:
    """What a plan gave, as arrays.

    Attributes:
        figures: As stored, shape (groups, output windows); NaN where none is known.
        starts_ms: Start of each output window.
        order: The groups that have some figure, in the order of their names.
        numbers: Number of each group in `labels`.
        held: What each entity and part holds, by the numbers of `entities`.
        entities: Name of each, as `coverage.keys_of` writes it.
    """

    plan: SeriesPlan
    figures: F64
    starts_ms: I64
    order: I64
    numbers: I64
    labels: Labels
    held: HeldArrays
    entities: Any
    late: int
    rows: int

    def cut(self, groups: I64) -> list[tuple[dict[str, str], I64, F64]]:
        """Return (labels, window starts, figures) of some groups."""
        found = []
        for group in groups.tolist():
            known = ~np.isnan(self.figures[group])
            label = self.labels.label(int(self.numbers[group]))
            found.append((label, self.starts_ms[known], self.figures[group][known]))
        return found

    def best(self, count: int, *, highest: bool) -> "Grouped":
        """Return the groups whose points rank first, of plans with one output window; in the order of their names."""
        figures = self.figures[self.order, 0]
        ranked = np.argsort(-figures if highest else figures, kind="stable")[:count]
        return replace(self, order=self.order[np.sort(ranked)])

    @property
    def newest_ms(self) -> int | None:
        """Return the time of the newest sample."""
        there = self.held.there
        return int(self.held.last_ms[there].max()) if there.any() else None

    def as_figures(self) -> Figures:
        """Return the same with an object for each series and each entity."""
        held = self.held
        there = np.flatnonzero(held.there)
        keys = self.entities.take(pa.array(there)).to_pylist()
        columns = (values[there].tolist() for values in (held.slots, held.first_ms, held.last_ms, held.gaps))
        by_key = {key: Held(*row) for key, row in zip(keys, zip(*columns, strict=True), strict=True)}
        return Figures(self.cut(self.order), by_key, self.late, self.rows)


class GroupedReader:
    """Reads plans out of the live window. Safe from several threads.

    Args:
        tables: The window.
        inventory: Says what product each entity is.
    """

    def __init__(self, tables: LiveTables, inventory: Inventory) -> None:
        self._tables = tables
        self._inventory = inventory
        self._unions = Unions()

    def read(self, plan: SeriesPlan, scope: Scope) -> Grouped | None:
        """Return what a plan gives, or None where the window does not hold all of it.

        Raises:
            TypeError: There is no scope.
            Rejected(forbidden_metric): The scope denies the metric.
        """
        if not isinstance(scope, Scope):
            raise TypeError("nothing is read without a Scope")
        scope = scope.showing(plan.selected.metric.name)
        pieces = self._pieces(plan, scope) if suits_memory(plan) else None
        if not pieces:
            return None
        series = self._unions.of([piece.reading.series for piece in pieces])
        owners = self._unions.of([piece.reading.owners for piece in pieces])
        models = self._models(scope) if Group.GPU_MODEL in plan.groups or plan.filters.gpu_model else None
        try:
            return _Question(plan, series, owners, models).answer(pieces)
        except LooksFarther:
            return None

    def _models(self, scope: Scope) -> Any:
        def make() -> Any:
            return self._inventory.read(compile_products(scope))

        return self._inventory.remember(("products", scope), EXPECTED_SECONDS, make)

    def _pieces(self, plan: SeriesPlan, scope: Scope) -> "list[_Piece] | None":
        """Return the rows of each part of a plan, None where one is not held."""
        found = [self._raw(plan, span, scope) for span in (plan.head, plan.raw) if span is not None]
        found += [self._rollup(plan, leg.span, scope) for leg in plan.legs]
        there = [one for one in found if one is not None]
        return there if len(there) == len(found) else None

    def _raw(self, plan: SeriesPlan, span: Span, scope: Scope) -> "_Piece | None":
        table = self._tables.table(plan.raw_table)
        if table is None:
            return None
        for back_ms in dict.fromkeys((plan.lookback_ms, min(plan.lookback_ms, NEAR_MS))):
            from_ms = span.from_ms - back_ms
            reading = table.reading(scope, [plan.selected.metric.name], _where(plan), from_ms, span.to_ms)
            if reading is not None:
                boots = table.texts.get("boot_id")
                unknown = [] if boots is None else boots.known([""])
                return _Piece(reading, span, from_ms, unknown[0] if unknown else -1, is_raw=True)
        return None

    def _rollup(self, plan: SeriesPlan, span: Span, scope: Scope) -> "_Piece | None":
        table = self._tables.table(rollup_table(plan.selected.metric.kind))
        if table is None:
            return None
        reading = table.reading(scope, [plan.selected.metric.name], _where(plan), span.from_ms, span.to_ms)
        return None if reading is None else _Piece(reading, span, span.from_ms, -1, is_raw=False)


def suits_memory(plan: SeriesPlan) -> bool:
    """Tell whether a plan is one that rows in memory can answer."""
    aggregate = plan.selected.aggregate
    is_fine = all(leg.resolution == FINEST for leg in plan.legs) and not (plan.legs and aggregate in QUANTILES)
    is_cut = plan.head is None and plan.raw is None
    is_summed = aggregate in (Aggregate.AVG, Aggregate.SUM)
    if is_histogram(plan.selected.metric) or (is_summed and may_wrap(plan.selected.metric, plan.base_ms)):
        return False
    return is_fine and (is_cut or RAW_BLOCK_MS % plan.base_ms == 0)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one part of a plan.

    Attributes:
        span: Whose windows are asked.
        from_ms: From when on every row is there.
        no_boot: Number of the boot that nobody knows, or -1.
    """

    reading: LiveReading
    span: Span
    from_ms: int
    no_boot: int
    is_raw: bool

    @property
    def frame(self) -> Frame:
        """Return the rows."""
        return Frame(self.reading.blocks, self.reading.series.size, self.from_ms, self.no_boot)


@dataclass(frozen=True, slots=True)
class _Question:
    """One plan over what its parts have in common.

    Attributes:
        models: Products of entities, where they are asked for.
    """

    plan: SeriesPlan
    series: Union
    owners: Union
    models: Any

    def answer(self, pieces: Sequence[_Piece]) -> Grouped | None:
        """Return the points and what entities hold; None where that is too much, or not a number.

        Raises:
            LooksFarther: The sample before a counter's first one may lie before the rows.
        """
        plan, entities = self.plan, self.series.numbers(IDENTITY)
        labels = labels_of(plan, self.series, self.owners, self.models)
        found = [part for number, piece in enumerate(pieces) for part in self._windows(piece, number, labels)]
        starts_ms = _starts(plan)
        if not found:
            held = HeldArrays(*(np.zeros(entities.size, kind) for kind in (np.bool_, *[np.int64] * 4)))
            nothing = np.empty((0, starts_ms.size))
            return Grouped(plan, nothing, starts_ms, _NONE, _NONE, labels, held, self.series.keys(), 0, 0)
        windows = joined(found)
        if plan.several_sources:
            rank = windows.rank * self.series.size + self.series.ranks("collector_id")[windows.series]
            windows = narrowed(windows, best_of(windows, entities.of[windows.series], rank))
        entity = entities.of[windows.series]
        group, numbers = labels.numbers(windows)
        if numbers.size * starts_ms.size > POINTS_MAXIMUM or has_nan(windows):
            return None
        places = Places(group, _buckets(plan, windows.window_ms, starts_ms), starts_ms, numbers.size)
        figures = self._figures(windows, places, entity).reshape(numbers.size, starts_ms.size)
        known = np.flatnonzero(~np.isnan(figures).all(axis=1))
        return Grouped(
            plan=plan,
            figures=figures,
            starts_ms=starts_ms,
            order=known[labels.order(numbers[known])],
            numbers=numbers,
            labels=labels,
            held=held_arrays(windows, entity, entities.size),
            entities=self.series.keys(),
            late=int(windows.late.sum()),
            rows=int(windows.rows.sum()),
        )

    def _figures(self, windows: Windows, places: Places, entity: I64) -> F64:
        aggregate = self.plan.selected.aggregate
        if aggregate in QUANTILES:
            values, weights = windows.members["v"].values, windows.members["cover_ms"].values
            return quantiles_of(QUANTILES[aggregate], values, weights, places)
        keyed = entity if windows.owner is None else entity * (int(windows.owner.max()) + 1) + windows.owner
        return figures_of(aggregate, windows, places, keyed)

    def _windows(self, piece: _Piece, number: int, labels: Labels) -> list[Windows]:
        """Return the windows of one part of the plan, their series and owners by the numbers of the unions."""
        of_series, of_owner = self.series.maps[number], self.owners.maps[number]
        whose = labels.whose.of[of_owner] if any(column in OWNER for column in labels.columns) else None
        product = self.plan.filters.gpu_model
        fitting = of_products(self.series, self.models, product)[of_series] if product else None

        def admit(block: LiveBlock) -> Bools | None:
            seen = piece.reading.rows(block)
            if fitting is None:
                return seen
            mine: Bools = fitting[block.series]
            return mine if seen is None else seen & mine

        def owner(block: LiveBlock, rows: Rows) -> I64 | None:
            return None if whose is None else whose[block.owner[rows]]

        make = raw_windows if piece.is_raw else rollup_windows
        found = make(self.plan, piece.frame, piece.span, admit, owner)
        return [replace(one, series=of_series[one.series]) for one in found]


def has_nan(windows: Windows) -> bool:
    """Tell whether some figure is no number, which the engine has rules of its own for."""
    return any(
        column.values.dtype.kind == "f" and bool(np.isnan(column.values).any()) for column in windows.members.values()
    )


def _where(plan: SeriesPlan) -> dict[str, tuple[str, ...]]:
    """Return the filters of a plan by the columns of rows; that of products is none of them."""
    return where_of(replace(plan.filters, gpu_model=())) or {}


def _starts(plan: SeriesPlan) -> I64:
    """Return where the output windows of a plan begin."""
    if plan.whole:
        return np.array([plan.span.from_ms])
    if plan.edges:
        return np.array(plan.edges[:-1])
    return np.arange(plan.span.from_ms // plan.resolution_ms * plan.resolution_ms, plan.span.to_ms, plan.resolution_ms)


def _buckets(plan: SeriesPlan, window_ms: I64, starts_ms: I64) -> I64:
    """Return the number of the output window that each window lies in."""
    if plan.whole:
        return np.zeros(window_ms.size, np.int64)
    if plan.edges:
        return np.searchsorted(starts_ms, window_ms, side="right").astype(np.int64) - 1
    numbers: I64 = (window_ms - starts_ms[0]) // plan.resolution_ms
    return numbers
