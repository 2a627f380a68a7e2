"""Up to when the rollups of a cluster are made: also of one that has just come."""

from secondsight.model import EntityKind
from secondsight.rollup.load import Work
from secondsight.rollup.through import Through
from secondsight.store.coarse import LEVELS

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 20_000 * DAY_MS + 5 * HOUR_MS
NO_WAIT = {level.name: 0 for level in LEVELS}


def test_a_new_cluster_is_complete_up_to_its_first_row_at_every_resolution() -> None:
    through = Through()
    fine = LEVELS[0]
    first = Work(EntityKind.GPU, fine, "t1", "new", NOW_MS - 2 * fine.width_ms)
    through.meet(first)
    ends = through.ends(NOW_MS, {("t1", "new"): NOW_MS}, [first], [], NO_WAIT)
    assert {table: end for (table, _), end in ends.items()} == {
        "gpu_5m": first.start_ms,
        "gpu_1h": first.start_ms // HOUR_MS * HOUR_MS,
        "gpu_1d": first.start_ms // DAY_MS * DAY_MS,
        "gpu_cluster_5m": first.start_ms,
        "gpu_cluster_1h": first.start_ms // HOUR_MS * HOUR_MS,
        "gpu_cluster_1d": first.start_ms // DAY_MS * DAY_MS,
    }


def test_a_window_that_is_lacking_holds_back_the_coarser_ones() -> None:
    through = Through()
    works = [Work(EntityKind.GPU, level, "t1", "c1", NOW_MS // level.width_ms * level.width_ms) for level in LEVELS]
    for work in works:
        through.meet(work)
    lacking = Work(EntityKind.GPU, LEVELS[0], "t1", "c1", NOW_MS - 3 * HOUR_MS)
    ends = through.ends(NOW_MS, {("t1", "c1"): NOW_MS}, [lacking], [], NO_WAIT)
    assert ends["gpu_5m", ("t1", "c1")] == lacking.start_ms
    assert ends["gpu_1h", ("t1", "c1")] == lacking.start_ms
    assert ends["gpu_1d", ("t1", "c1")] == NOW_MS // DAY_MS * DAY_MS
