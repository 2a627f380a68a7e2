"""Turn answers of the read API into text for a terminal: tables with sparklines, JSON, CSV, a ranking that follows."""

import json
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.query.client import ApiClient, read_token

FOLLOW_SECONDS = 2.0
NO_SUCH = "there is no "
"""How a warning about a name of nothing begins."""
SPARK_WIDTH = 20
PIPE_WIDTH = 160
BAR_WIDTH = 16
BARS = "▁▂▃▄▅▆▇█"
GAP = " "
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
UNIT_WORDS = {"By": "B", "Cel": "°C", "1": "", "W": "W", "Hz": "Hz", "s": "s", "J": "J"}

Body = Mapping[str, Any]
HEADINGS: Mapping[str, str] = {
    "clusterId": "cluster",
    "hostId": "host",
    "gpuId": "gpu",
    "entityId": "entity",
    "part": "part",
    "jobId": "job",
    "ownerTeam": "team",
    "modelId": "model",
    "gpuModel": "gpu model",
    "region": "region",
}
PLACES = frozenset({"clusterId", "hostId", "gpuId", "entityId", "part"})
UUID_START = len("GPU-01234567")
"""So much of a GPU's UUID tells it apart in a table; --json and --csv have all of it."""


def query_command(arguments: Namespace, out: TextIO) -> int:
    """Print one metric over time, as the arguments of `secondsight query` say; return the exit code.

    Raises:
        Rejected, Retryable: As the api says.
    """
    client = ApiClient(arguments.server, read_token(arguments.token_file))
    params = query_params(arguments)
    try:
        if arguments.csv:
            out.write(client.get_text("/v1/metrics/query", params, "text/csv"))
            return 0
        body = client.get_json("/v1/metrics/query", params)
    finally:
        client.close()
    if arguments.json:
        out.write(json.dumps(body, indent=2) + "\n")
        return exit_code(body, "series")
    console = console_of(out)
    if body["series"]:
        console.print(series_table(body))
    console.print(quality_line(body), style="dim", highlight=False)
    return exit_code(body, "series")


def exit_code(body: Body, found: str) -> int:
    """Return 1 where nothing was found because a name that was given is of nothing, as a script wants to know."""
    return int(not body[found] and any(text.startswith(NO_SUCH) for text in body.get("warnings", ())))


def console_of(out: TextIO) -> Console:
    """Return a console as wide as the terminal, or, for a pipe or a file, wide enough that a row stays one line."""
    console = Console(file=out)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def top_command(arguments: Namespace, out: TextIO, clock: Clock) -> int:
    """Show the GPUs with the highest values, again and again on a terminal unless `--once`; return the exit code.

    Raises:
        Rejected: As the api says.
        Retryable: The api does not answer to the first request; later ones are waited out.
    """
    client = ApiClient(arguments.server, read_token(arguments.token_file))
    params = {"metric": arguments.metric, "cluster": arguments.cluster, "n": str(arguments.n), "window": "1m"}
    console = console_of(out)
    try:
        body = client.get_json("/v1/top", params)
        if arguments.json:
            out.write(json.dumps(body, indent=2) + "\n")
            return exit_code(body, "rows")
        table = top_table(body)
        if arguments.once or not console.is_terminal:
            if body["rows"]:
                console.print(table)
            else:
                console.print("; ".join(body["warnings"]) or "nothing was found", style="dim", highlight=False)
            return exit_code(body, "rows")
        with Live(table, console=console, screen=False, auto_refresh=False) as live:
            while True:
                clock.sleep(FOLLOW_SECONDS)
                live.update(_next_table(client, params, table), refresh=True)
    finally:
        client.close()


def query_params(arguments: Namespace) -> dict[str, str | None]:
    """Return the parameters of `/v1/metrics/query` that the arguments of `secondsight query` mean."""
    filters = ("cluster", "host", "gpu", "job", "team", "model")
    return {
        "metric": arguments.metric,
        **{name: getattr(arguments, name) for name in filters},
        "gpuModel": arguments.gpu_model,
        "from": arguments.from_time,
        "to": arguments.to_time,
        "resolution": arguments.resolution,
        "aggregate": arguments.aggregate,
        "groupBy": arguments.group_by,
        "format": "rows" if arguments.json else "columns",
    }


def series_table(body: Body) -> Table:
    """Return a table of series in columns: labels, sparkline, least, mean, greatest, newest value."""
    labels = _shown_labels(body["series"])
    table = _table(f"{body['metric']} ({body['aggregate']}, {body['effectiveResolution']})")
    for name in labels:
        table.add_column(HEADINGS[name], overflow="fold")
    table.add_column("over time", no_wrap=True)
    for name in ("min", "mean", "max", "last"):
        table.add_column(name, justify="right", no_wrap=True)
    for series in body["series"]:
        names = [_label(series, name) for name in labels]
        table.add_row(*names, sparkline(series["values"]), *figures(series["values"], series["unit"]))
    return table


def top_table(body: Body) -> Table:
    """Return a ranking as a table with a bar beside each value."""
    labels = _shown_labels(body["rows"])
    table = _table(f"{body['metric']} ({body['aggregate']} over {body['window']})")
    table.add_column("#", justify="right")
    for name in labels:
        table.add_column(HEADINGS[name], overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    greatest = max((abs(row["value"]) for row in body["rows"]), default=0.0)
    for row in body["rows"]:
        names = [_label(row, name) for name in labels]
        table.add_row(str(row["rank"]), *names, human(row["value"], body["unit"]), _bar(row["value"], greatest))
    return table


def sparkline(values: Sequence[float | None], width: int = SPARK_WIDTH) -> str:
    """Return at most `width` bars, each the mean of its share of the values; a share without any is a gap."""
    means = [_mean(values[start:end]) for start, end in _shares(len(values), width)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)
    return "".join(GAP if mean is None else _level(mean, low, span) for mean in means)


def figures(values: Sequence[float | None], unit: str) -> tuple[str, str, str, str]:
    """Return least, mean, greatest and last value as text."""
    known = [value for value in values if value is not None]
    if not known:
        return ("-", "-", "-", "-")
    numbers = (min(known), sum(known) / len(known), max(known), known[-1])
    least, mean, greatest, last = (human(number, unit) for number in numbers)
    return least, mean, greatest, last


def human(value: float, unit: str) -> str:
    """Return a number with its unit as people read it: bytes in powers of 1024, seconds and degrees without prefix."""
    base, _, per = unit.partition("/")
    word = UNIT_WORDS.get(base, base) + (f"/{per}" if per else "")
    if base == "By":
        return _in_bytes(value, word)
    number, prefix = (value, "") if base in ("Cel", "1", "s") else _prefixed(value)
    return f"{number:.3g} {prefix}{word}".strip() if abs(number) < 1000 else f"{number:,.0f} {prefix}{word}".strip()


def quality_line(body: Body) -> str:
    """Return one line that says how good an answer is."""
    coverage = body["coverage"]
    through = body["completeThrough"] or "unknown"
    age = body["dataFreshnessMs"]
    parts = [
        _coverage_words(coverage),
        *([f"{coverage['gaps']} gaps"] if coverage["gaps"] is not None else []),
        f"complete through {through}",
        *([f"newest {age / 1000:.1f} s old"] if age is not None else []),
        f"tier {body['tier']}",
        *(["partial"] if body["partial"] else []),
        *body["warnings"],
        *([f"first {len(body['series'])} of {body['seriesTotal']} series"] if body["nextCursor"] else []),
    ]
    return "; ".join(parts)


def _coverage_words(coverage: Body) -> str:
    """Return what is stored of what was expected; a share of nothing is none."""
    stored, expected = coverage["storedSamples"], coverage["expectedSamples"]
    return f"coverage {stored:,}/{expected:,} ({coverage['ratio']:.1%})" if expected else "coverage unknown"


def _next_table(client: ApiClient, params: Mapping[str, str | None], before: Table) -> Table:
    """Return the next ranking, or the one before under a line that says why."""
    try:
        return top_table(client.get_json("/v1/top", params))
    except Retryable as error:
        before.caption = str(error)
        return before


def _shown_labels(series: Sequence[Body]) -> list[str]:
    """Return the labels that some series has a text for; where a thing is named, its place says enough.

    A host's own rows need no entity beside the host.
    """
    shown = [name for name in HEADINGS if any(one.get(name) for one in series)]
    if "gpuId" in shown or "entityId" in shown:
        shown = [name for name in shown if name in PLACES]
    if all(one.get("entityId") == one.get("hostId") for one in series) and "entityId" in shown:
        shown.remove("entityId")
    return shown


def _table(title: str) -> Table:
    return Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _label(row: Body, name: str) -> str:
    text = str(row.get(name) or "")
    return escape(text[:UUID_START] if name == "gpuId" and text.startswith("GPU-") else text)


def _shares(count: int, width: int) -> list[tuple[int, int]]:
    shares = min(count, width)
    return [(count * share // shares, count * (share + 1) // shares) for share in range(shares)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _level(value: float, low: float, span: float) -> str:
    return BARS[min(int((value - low) / span * len(BARS)), len(BARS) - 1)] if span else BARS[3]


def _bar(value: float, greatest: float) -> str:
    return "█" * round(abs(value) / greatest * BAR_WIDTH) if greatest else ""


def _in_bytes(value: float, word: str) -> str:
    steps = 0
    while abs(value) >= 1024 and steps < 5:
        value, steps = value / 1024, steps + 1
    prefix = ("", "Ki", "Mi", "Gi", "Ti", "Pi")[steps]
    return f"{value:.4g} {prefix}{word}"


def _prefixed(value: float) -> tuple[float, str]:
    for size, prefix in PREFIXES:
        if abs(value) >= size:
            return value / size, prefix
    return value, ""
