"""Run the cases of the guard, or files of cases in the same form, and print rates by kind.

Hostile statements must be refused; of the others, the guarded statement on everyone's rows must give what the original
gives on the caller's rows. Ends with 1 where a hostile statement passes, rows of others leak, results differ, or fewer
than 95 of 100 honest statements pass.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guard_fixture import CASES, LIMITS, NOW_MS, registry, scope
from guard_oracle import SECRETS, Oracle
from secondsight.guard.check import guard
from secondsight.guard.plan import Guarded
from secondsight.guard.refusal import Refused

NOW = {"now()": "toDateTime('2026-11-20 12:00:00', 'UTC')", "today()": "toDate('2026-11-20')"}
WANTED_SHARE = 0.95


@dataclass
class Tally:
    """What became of the cases of one kind.

    Attributes:
        faults: Ids of cases that went wrong, with why.
    """

    honest: int = 0
    passed: int = 0
    hostile: int = 0
    refused: int = 0
    either: int = 0
    faults: list[str] = field(default_factory=list)


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the cases of these files."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines() if line.strip()]


def judge(cases: Iterable[Mapping[str, Any]], oracle: Oracle) -> dict[str, Tally]:
    """Return what became of the cases, by kind."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case in cases:
        tally = tallies[case["kind"]]
        loose = case.get("policy") == "choice"
        guarded = attempt(case["sql"])
        tally.either += loose
        if case["expect"] == "allow":
            tally.honest += 1
            tally.passed += guarded is not None
        elif not loose:
            tally.hostile += 1
            tally.refused += guarded is None
            if guarded is not None:
                tally.faults.append(f"{case['id']} passed")
        if guarded is not None:
            tally.faults += [f"{case['id']} {fault}" for fault in compare(case["sql"], guarded, oracle)]
    return dict(tallies)


def attempt(sql: str) -> Guarded | None:
    """Return what the guard makes of a statement, None where it refuses."""
    try:
        return guard(sql, scope(), registry(), NOW_MS, LIMITS)
    except Refused:
        return None


def compare(sql: str, guarded: Guarded, oracle: Oracle) -> list[str]:
    """Return what is wrong with the answer to a statement that passed."""
    original = sql
    for call, value in NOW.items():
        original = original.replace(call, value)
    ((mine, all_rows),) = oracle.compare([(original.rstrip().rstrip(";"), guarded.sql)])
    leaked = [secret for secret in SECRETS if secret in all_rows.text and secret not in sql]
    faults = [f"gives rows of others ({leaked})"] if leaked else []
    if mine.error:
        return faults
    if all_rows.error:
        return [*faults, "fails"]
    return faults if mine.same(all_rows) else [*faults, "gives another result"]


def main() -> int:
    """Print the rates and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="files of cases; those of the tests without")
    files = parser.parse_args().files or sorted(CASES.glob("*.jsonl"))
    with Oracle() as oracle:
        tallies = judge(read(files), oracle)
    print(f"{'kind':<20} {'honest passed':>15} {'hostile refused':>17} {'either':>7}")
    for kind, tally in sorted(tallies.items()):
        honest, hostile = f"{tally.passed}/{tally.honest}", f"{tally.refused}/{tally.hostile}"
        print(f"{kind:<20} {honest:>15} {hostile:>17} {tally.either:>7}")
        for fault in tally.faults:
            print(f"  {fault}")
    honest = sum(tally.honest for tally in tallies.values())
    passed = sum(tally.passed for tally in tallies.values())
    hostile = sum(tally.hostile for tally in tallies.values())
    refused = sum(tally.refused for tally in tallies.values())
    faults = sum(len(tally.faults) for tally in tallies.values())
    print(f"honest passed {passed} of {honest}, hostile refused {refused} of {hostile}, faults {faults}")
    return int(faults > 0 or refused < hostile or passed < WANTED_SHARE * honest)


if __name__ == "__main__":
    sys.exit(main())
