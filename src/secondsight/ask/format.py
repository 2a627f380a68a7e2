"""Write figures, times and names of columns as people read them."""

from collections.abc import Mapping
from datetime import UTC, datetime

from secondsight.ask.calendar import zone_of
from secondsight.ask.compile import Column
from secondsight.ask.question import Measure, Range, Stat
from secondsight.ask.tables import Cell

METRIC_WORDS: Mapping[str, str] = {
    "gpus": "GPUs",
    "hosts": "hosts",
    "jobs": "jobs",
    "gpu_hours": "GPU-hours",
    "idle_gpu_hours": "idle GPU-hours",
    "busy_gpu_hours": "busy GPU-hours",
    "coverage_ratio": "coverage",
    "missing_seconds": "seconds without data",
    "memory_share": "share of memory in use",
    "error_events": "events",
}
_STATS: Mapping[Stat, str] = {
    Stat.MEAN: "mean",
    Stat.MIN: "lowest",
    Stat.MAX: "highest",
    Stat.LAST: "newest",
    Stat.HIGHEST_P95: "highest 95th percentile of any window, of",
    Stat.TOTAL: "increase of",
    Stat.RATE: "rate of",
    Stat.SUM: "mean over time of the sum over GPUs, of",
    Stat.PEAK_SUM: "highest sum over GPUs, of",
    Stat.PER_GPU: "increase per GPU of",
    Stat.COUNT: "number of",
    Stat.PER_GPU_DAY: "per GPU and day:",
    Stat.CHANGES: "changes of",
    Stat.SHARE_SET: "share of windows with any bit of",
}
_UNITS: Mapping[str, str] = {"Cel": "°C", "1/d": "per GPU and day"}
_UNIT_WORDS = ("celsius", "watts", "ratio", "bytes", "hertz", "joules", "total")


def metric_words(metric: str) -> str:
    """Return a metric as people say it: `gpu_power_watts` is `GPU power`."""
    if metric in METRIC_WORDS:
        return METRIC_WORDS[metric]
    words = metric.removesuffix("_per_second").split("_")
    while len(words) > 2 and words[-1] in _UNIT_WORDS:
        words.pop()
    return " ".join("GPU" if word == "gpu" else word for word in words)


def measure_words(measure: Measure) -> str:
    """Return what a figure is, in words."""
    metric = metric_words(measure.metric)
    if measure.stat is Stat.QUANTILE:
        return f"p{measure.quantile * 100:g} of window means of {metric}"
    if measure.stat in (Stat.SHARE_ABOVE, Stat.SHARE_BELOW):
        side = "above" if measure.stat is Stat.SHARE_ABOVE else "below"
        limit = "" if measure.threshold is None else f" {side} {number(measure.threshold)}"
        return f"share of covered time with {metric}{limit}"
    plain = measure.stat is Stat.TOTAL and measure.metric in METRIC_WORDS
    return metric if plain else f"{_STATS[measure.stat]} {metric}"


def column_words(column: Column) -> str:
    """Return the heading of a column."""
    if column.name.endswith("_to_median"):
        return f"{metric_words(column.name.removesuffix('_to_median').partition('_of_')[2])} of the median"
    if column.measure is not None and "_of_" in column.name:
        return measure_words(column.measure)
    return column.name.removesuffix("_id").replace("_", " ")


def number(value: float) -> str:
    """Return a number with at most four telling digits, and commas in thousands."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.4g}"
    return f"{float(text):.6f}".rstrip("0").rstrip(".") if "e" in text and abs(value) >= 1e-6 else text


def figure(cell: Cell, unit: str) -> str:
    """Return a cell with its unit: ratios as percent, bytes in GB, hertz in MHz, large watts in kW."""
    if not isinstance(cell, int | float):
        return "no data" if cell is None else cell
    match unit:
        case "1":
            return f"{number(cell * 100)} %"
        case "By":
            return _in_bytes(cell, "")
        case "By/s":
            return _in_bytes(cell, "/s")
        case "Hz":
            return f"{number(cell / 1e6)} MHz"
        case _:
            word = _UNITS.get(unit, unit)
            return f"{number(cell)} {word}".strip()


def _in_bytes(value: float, per: str) -> str:
    for size, word in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= size:
            return f"{number(value / size)} {word}{per}"
    return f"{number(value)} B{per}"


def moment(time_ms: int, zone: str) -> str:
    """Return a time in a zone, to the minute."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(zone_of(zone)):%Y-%m-%d %H:%M}"


def range_words(one: Range) -> str:
    """Return a range as it was resolved: words, bounds and zone."""
    return f"{one.words} = {moment(one.from_ms, one.zone)} to {moment(one.to_ms, one.zone)}, {one.zone}"


def local_time(cell: Cell, zone: str) -> str:
    """Return a time of the views (UTC) as it is in a zone."""
    try:
        utc = datetime.fromisoformat(str(cell)).replace(tzinfo=UTC)
    except ValueError:
        return str(cell)
    return f"{utc.astimezone(zone_of(zone)):%Y-%m-%d %H:%M:%S}"
