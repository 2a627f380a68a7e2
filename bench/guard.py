"""What the guard takes for a statement before the engine sees it: cold, and where its plan is kept.

Honest statements of the tests, from one line to joins of several queries, over the views of the catalogue's fixture.
Cold is everything from text to verified text; kept is the same statement again five seconds later. Refusals are timed
as well: no code tells what it took.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from guard_fixture import CASES, LIMITS, NOW_MS, registry, scope
from secondsight.guard.check import Plans, guard
from secondsight.guard.refusal import Refused

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "6" if QUICK else "30"))
STEP_MS = 5_000


def cases(expect: str) -> list[str]:
    """Return the statements of the tests that pass, or that are refused."""
    lines = [line for path in sorted(CASES.glob("*.jsonl")) for line in path.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return [case["sql"] for case in found if case["expect"] == expect and case.get("policy") != "choice"]


def timed(run: Callable[[str, int], object], statements: Sequence[str], seconds: float) -> list[float]:
    """Return the milliseconds of each run, statement after statement, for so many seconds."""
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    now_ms = NOW_MS
    while time.perf_counter() < ends:
        now_ms += STEP_MS
        for statement in statements:
            begin = time.perf_counter()
            run(statement, now_ms)
            taken.append((time.perf_counter() - begin) * 1e3)
    return taken


def main() -> None:
    """Print one line of figures."""
    views, caller = registry(), scope()
    plans = Plans(views, LIMITS, kept=1_024)

    def cold(statement: str, now_ms: int) -> object:
        return guard(statement, caller, views, NOW_MS + now_ms % 1_000, LIMITS)

    def kept(statement: str, now_ms: int) -> object:
        return plans.guard(statement, caller, NOW_MS + now_ms % 1_000)

    def refused(statement: str, now_ms: int) -> object:
        try:
            return cold(statement, now_ms)
        except Refused as refusal:
            return refusal

    honest, hostile = cases("allow"), cases("reject")
    for run in (cold, kept):
        timed(run, honest, 0.01)
    before = os.getloadavg()[0]
    took = {
        "cold": timed(cold, honest, SECONDS * 0.6),
        "kept": timed(kept, honest, SECONDS * 0.2),
        "refused": timed(refused, hostile, SECONDS * 0.2),
    }
    figures = {
        "p50_ms": round(float(np.percentile(took["kept"], 50)), 3),
        "p95_ms": round(float(np.percentile(took["kept"], 95)), 3),
        "cold_p50_ms": round(float(np.percentile(took["cold"], 50)), 2),
        "cold_p95_ms": round(float(np.percentile(took["cold"], 95)), 2),
        "refused_p95_ms": round(float(np.percentile(took["refused"], 95)), 2),
        "statements": len(honest),
        "load_before": round(before, 2),
        "sqlglot": version("sqlglot"),
        "python": platform.python_version(),
    }
    print(json.dumps({"name": "guard", "figures": figures}))


if __name__ == "__main__":
    main()
