"""Try questions with known readings on the planner: is each treated as expected, and are its figures right?

    make eval-ask
    make eval-ask ARGS="other_questions.jsonl"

Figures are compared with SQL of the expected reading on the caller's rows alone; the planner's own statements go
through the guard and run on the rows of everyone. The SQL of a reading is written here from its fields, or given.
"""

import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ask_rig import KNOWN, Store, ms, planner
from guard_fixture import COUNTERS, GAUGES
from secondsight.ask.answer import Answer, Asked, answer

CASES = Path(__file__).parent / "cases" / "ask"
FACTORS = (1.0, 3.6e6, 1e-2, 100.0)
"""Figures may come in kWh for joules, and in percent for ratios."""
CLOSE = 1e-6

Case = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    case: Case
    answer: Answer
    treated: bool
    figures: bool | None
    note: str = ""


def load(paths: Iterable[Path] = ()) -> list[Case]:
    """Return the cases of some files, or all that are kept here."""
    chosen = list(paths) or sorted(CASES.glob("*.jsonl"))
    return [json.loads(line) for path in chosen for line in path.read_text().splitlines() if line]


def judge(case: Case, store: Store) -> Verdict:
    """Return what the planner makes of a case."""
    asked = Asked(case["question"], case.get("timezone", "UTC"), tuple(case.get("context", ())))
    found = answer(asked, planner(), KNOWN, store.run, ms(case["now"]))
    treated = found.treatment.value == case["expect"]
    sql = case.get("oracle") or sql_of(case)
    if not treated or not sql or case["expect"] != "answer":
        return Verdict(case, found, treated, None, found.question.rule)
    expected = store.expected(sql)
    missing = [row for row in expected if not holds(row, found)]
    return Verdict(case, found, treated, not missing, f"no row like {missing[0]}" if missing else "")


def holds(row: Sequence[Any], found: Answer) -> bool:
    """Tell whether some row of an answer has every cell of a row; rows of nothing but NULL count as no row."""
    wanted = [cell for cell in row if cell is not None]
    if not wanted or (len(wanted) == 1 and wanted[0] == 0 and not any(table.rows for table in found.tables)):
        return True
    rows = [line for table in found.tables for line in table.rows]
    return any(all(any(like(cell, other) for other in line) for cell in wanted) for line in rows)


def like(wanted: Any, cell: Any) -> bool:
    """Tell whether two cells are the same, or the same figure in another unit."""
    if isinstance(wanted, int | float) and isinstance(cell, int | float):
        return any(math.isclose(wanted, cell * factor, rel_tol=CLOSE, abs_tol=1e-9) for factor in FACTORS)
    return str(wanted) == str(cell) or (str(wanted) == str(cell)[: len(str(wanted))] and len(str(wanted)) >= 10)


_BUCKETS = {
    "hour": "toStartOfHour({t})", "day": "toDate({t})", "week": "toMonday({t})", "month": "toStartOfMonth({t})",
    "hour_of_day": "toHour({t})",
}  # fmt: skip
_DIVISORS = (("/3.6e6", 3.6e6), ("/ 1e9", 1e9), ("/1e9", 1e9), ("/ 1000", 1e3), ("/1e6", 1e6), ("/ 2^30", 2.0**30))


def sql_of(case: Case) -> str:
    """Return the SQL of an expected reading, or nothing where its words are no formula."""
    reading = case.get("interpretation") or {}
    formula = [_formula(metric, reading) for metric in reading.get("metrics", ())]
    if not reading.get("time_range") or not formula or not all(formula):
        return ""
    time = "event_time" if reading["view"] in ("gpu_error_events_secure", "gpu_telemetry_1s_secure") else "window_start"
    dims = [_dimension(name, time, case) for name in reading["dimensions"]]
    where = [f"{time} {sign} {_instant(reading['time_range'][end])}" for sign, end in ((">=", "from"), ("<", "to"))]
    where += [_filter(column, value) for column, value in reading["filter"].items()]
    items = [*(f"{text} AS k{index}" for index, text in enumerate(dims)), *formula]
    grouped = f" GROUP BY {', '.join(f'k{index}' for index in range(len(dims)))}" if dims else ""
    return f"SELECT {', '.join(items)} FROM {reading['view']} WHERE {' AND '.join(where)}{grouped}"


def _dimension(name: str, time: str, case: Case) -> str:
    word = name.split(" ")[0]
    if word not in _BUCKETS:
        return name
    zone = name.partition("(")[2].rstrip(")") or case.get("timezone", "UTC")
    return _BUCKETS[word].format(t=f"toTimeZone({time}, '{zone}')")


def _instant(text: str) -> str:
    return f"toDateTime('{text.rstrip('Z').replace('T', ' ')}', 'UTC')"


def _filter(column: str, value: Any) -> str:
    if isinstance(value, list):
        return f"{column} IN ({', '.join(repr(one) for one in value)})"
    if isinstance(value, str) and value.startswith("!="):
        return f"{column} {value}"
    return f"{column} = {value!r}"


def _formula(metric: str, reading: dict[str, Any]) -> str:
    """Return the expression of one metric that the words of an aggregation mean, or nothing."""
    words = reading["aggregation"]
    raw = reading["view"] == "gpu_telemetry_1s_secure"
    factor = next((value for text, value in _DIVISORS if text in words), 1.0) / (8 if "* 8" in words else 1)
    if metric == "error_events":
        return "count()" if words in ("count", "sum(_increase), count") else ""
    if metric == "gpus" and "coverage_ratio" in words:
        return "sum(gpus * coverage_ratio)"
    if metric == "coverage_ratio" and words.startswith("sum(coverage_ratio"):
        return "sum(coverage_ratio * gpus) / sum(gpus)"
    if metric in COUNTERS and "sum(_increase)" in words:
        per_gpu = " / uniqExact(gpu_id)" if "uniq" in words else ""
        scale = 3.6e6 if metric == "gpu_energy_joules_total" and "3.6e6" in words else 1
        return f"sum({metric}_increase) / {scale}{per_gpu}"
    return _of_gauge(metric, words, factor, raw=raw) if metric in GAUGES else ""


def _of_gauge(metric: str, words: str, factor: float, *, raw: bool) -> str:
    text = ""
    quantile = re.search(r"\bp(\d\d)\b", words)
    if (words.startswith("weighted mean") and "p" not in words.split(":")[0].split("mean")[1]) or words.startswith(
        ("avg bytes", f"avg({metric})", "avg")
    ):
        text = f"avg({metric})" if raw else f"sum({metric}_avg * {metric}_count) / sum({metric}_count)"
    elif words == "max of _p95 and max of _max":
        text = f"max({metric}_p95), max({metric}_max)"
    elif words in ("max", "max of _max"):
        text = f"max({metric})" if raw else f"max({metric}_max)"
    elif words in ("min", "min of _min"):
        text = f"min({metric})" if raw else f"min({metric}_min)"
    elif words.startswith("max of window _p95"):
        text = f"max({metric}_p95)"
    elif quantile and words in (f"p{quantile[1]}", f"p{quantile[1]} of 30s means"):
        text = f"quantile(0.{quantile[1]})({metric if raw else metric + '_avg'})"
    elif words.startswith("quantile over 30s"):
        text = f"quantile(0.95)({metric}_avg)"
    return f"({text}) / {factor}" if text and factor != 1 else text


def report(verdicts: Sequence[Verdict]) -> str:
    """Return rates by category, what was not as expected, and one JSON line."""
    by: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by[verdict.case["category"]].append(verdict)
    lines = [f"{'category':16} cases treated figures"]
    for category, found in sorted(by.items()):
        lines.append(f"{category:16} {len(found):5} {_rate(found)} {_figures(found)}")
    for verdict in verdicts:
        if not verdict.treated or verdict.figures is False:
            said = f"{verdict.answer.treatment.value}, expected {verdict.case['expect']}"
            lines.append(f"  {verdict.case['id']} {verdict.case['question']!r}: {said}; {verdict.note}")
    return "\n".join([*lines, json.dumps({"name": "eval-ask", "figures": totals(verdicts)})])


def totals(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the figures of a run."""
    compared = [verdict for verdict in verdicts if verdict.figures is not None]
    kinds = Counter(verdict.case["expect"] for verdict in verdicts)
    treated = Counter(verdict.case["expect"] for verdict in verdicts if verdict.treated)
    wrong = [v for v in verdicts if v.figures is False or (not v.treated and v.answer.treatment.value == "answer")]
    return {
        "questions": len(verdicts),
        "as_expected": sum(verdict.treated and verdict.figures is not False for verdict in verdicts),
        "figures_compared": len(compared),
        "figures_right": sum(verdict.figures is True for verdict in compared),
        "wrong_with_confidence": len(wrong),
        **{f"{kind}_treated": f"{treated[kind]}/{count}" for kind, count in sorted(kinds.items())},
    }


def _rate(found: Sequence[Verdict]) -> str:
    return f"{sum(verdict.treated for verdict in found):3}/{len(found):<3}"


def _figures(found: Sequence[Verdict]) -> str:
    compared = [verdict for verdict in found if verdict.figures is not None]
    return f"{sum(verdict.figures is True for verdict in compared):3}/{len(compared):<3}" if compared else "      -"


def main(arguments: Sequence[str]) -> int:
    """Run the cases and print the report."""
    with Store() as store:
        verdicts = [judge(case, store) for case in load(Path(name) for name in arguments)]
    print(report(verdicts))
    figures = totals(verdicts)
    return 0 if figures["wrong_with_confidence"] == 0 and figures["as_expected"] >= 0.85 * len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
