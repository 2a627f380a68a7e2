"""Name the tiers that the canary is read back from, and the ordinary questions that read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.canary.waves import INCREASES, LEVEL, LEVELS, STEP_S, STEPS, WAVES, Windows
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.query.progress import progress_of
from secondsight.query.request import Filters, QueryText, parse_query
from secondsight.query.run import QueryRunner

TENANT = CLUSTER = "canary"
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
SCOPE = Scope((TENANT,), frozenset({CLUSTER}), None, None, frozenset(), "part:canary", Role.VIEWER)


@dataclass(frozen=True, slots=True)
class Tier:
    """One table that answers are made of.

    Attributes:
        resolution: Of the table.
        width_s: Windows that are asked for.
        wait_s: After its end a window is looked at.
        patience_s: After its end a window that is not right yet is told.
        chunk_s: Range of one question.
        reach_s: How far back it is looked at again.
        hint: What to do where it is wrong.
    """

    name: str
    resolution: str
    width_s: int
    wait_s: int
    patience_s: int
    chunk_s: int
    reach_s: int
    hint: str

    @property
    def table(self) -> str:
        """Return the table's name."""
        return f"platform_{self.resolution}"

    @property
    def is_cold(self) -> bool:
        """Tell whether it is read from the lake."""
        return self.name != self.resolution


_RAW = "read logs/processor.log and `secondsight ledger`: rows of all tenants may be wrong in this range"
_MADE = "read logs/rollup.log; alter nothing by hand: a change of its source has the stage make a window again"
_LAKE = "read logs/lake.log; what the hot store still has is copied again when its rows change (docs/guides/lake.md)"
HOT: tuple[Tier, ...] = (
    Tier("1s", "1s", STEP_S, 60, 15 * MINUTE_S, HOUR_S, 12 * HOUR_S, _RAW),
    Tier("30s", "30s", 30, 120, 30 * MINUTE_S, 6 * HOUR_S, 12 * HOUR_S, _RAW),
    Tier("5m", "5m", 300, 240, HOUR_S, DAY_S, 5 * DAY_S, _MADE),
    Tier("1h", "1h", HOUR_S, 300, 3 * HOUR_S, 2 * DAY_S, 30 * DAY_S, _MADE),
    Tier("1d", "1d", DAY_S, 600, 6 * HOUR_S, 30 * DAY_S, 300 * DAY_S, _MADE),
)
COLD: tuple[Tier, ...] = (
    Tier("lake_1s", "1s", STEP_S, HOUR_S, 12 * HOUR_S, HOUR_S, 300 * DAY_S, _LAKE),
    Tier("lake_30s", "30s", 30, HOUR_S, 12 * HOUR_S, 6 * HOUR_S, 300 * DAY_S, _LAKE),
    Tier("lake_5m", "5m", 300, HOUR_S, 36 * HOUR_S, DAY_S, 300 * DAY_S, _LAKE),
    Tier("lake_1h", "1h", HOUR_S, HOUR_S, 36 * HOUR_S, 10 * DAY_S, 300 * DAY_S, _LAKE),
    Tier("lake_1d", "1d", DAY_S, HOUR_S, 36 * HOUR_S, 30 * DAY_S, 300 * DAY_S, _LAKE),
)

Found = Mapping[str, Windows]
"""Name of a wave -> what a tier says of it."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Reads tiers.

    Attributes:
        hot: Answers from the hot store alone.
        cold: Answers from the lake alone; None where no lake is checked.
        floors: Returns table -> epoch ms from which on the hot store has every row.
    """

    catalog: Catalog
    clock: Clock
    hot: QueryRunner
    cold: QueryRunner | None
    floors: Callable[[], Mapping[str, int]]

    def through_s(self, tier: Tier) -> int:
        """Return up to when a tier says that it has everything, epoch s; later windows would be read from another.

        Raises:
            Retryable: The store is away.
        """
        now_ms = self.clock.now_ms()
        if tier.resolution == "1s":
            return now_ms // 1000
        kind = self.catalog.get(LEVEL).kind
        expected = self.hot.inventory.expected(kind, Filters(), SCOPE)
        if tier.resolution == "30s":
            progress = progress_of(self.hot.inventory.progress(SCOPE), expected, now_ms)
            return (progress.rollup_through_ms or 0) // 1000
        return dict(self.hot.inventory.coarse_through(kind, expected, SCOPE)).get(tier.resolution, 0) // 1000

    def read(self, tier: Tier, from_s: int, to_s: int) -> Found:
        """Return what a tier says of every wave in [from, to).

        Raises:
            Retryable: The store or the lake is away or busy.
            Rejected: It refuses.
        """
        runner = self.cold if tier.is_cold and self.cold is not None else self.hot
        found: dict[str, Windows] = {}
        for metric, asked in ((LEVEL, LEVELS), (STEPS, INCREASES)):
            names = {wave.host: wave.name for wave in WAVES if wave.metric == metric}
            text = QueryText(
                metric,
                {"cluster": (CLUSTER,), "host": tuple(names)},
                from_=str(from_s * 1000),
                to=str(to_s * 1000),
                resolution=f"{tier.width_s}s",
                aggregate=",".join(asked),
                group_by="host,gpu",
            )
            query = parse_query(text, self.catalog, self.clock.now_ms())
            answer = runner.run(query, SCOPE)
            by_host: dict[str, dict[str, dict[int, float]]] = {host: {} for host in names}
            for one in answer.series:
                points = dict(zip((one.times_ms // 1000).tolist(), one.values.tolist(), strict=True))
                by_host.setdefault(one.labels["hostId"], {})[one.aggregate] = points
            found |= {names.get(host, host): _windows(points, asked) for host, points in by_host.items()}
        return found


def _windows(points: Mapping[str, Mapping[int, float]], asked: tuple[str, ...]) -> Windows:
    """Return figures by window; one that an aggregate lacks is NaN."""
    starts = sorted({start for each in points.values() for start in each})
    figures = {name: np.array([points.get(name, {}).get(start, np.nan) for start in starts]) for name in asked}
    return Windows(np.array(starts, np.int64), figures)
