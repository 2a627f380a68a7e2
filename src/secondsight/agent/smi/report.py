"""Show what an import found: a table for people, one JSON object for programs."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from secondsight.agent.smi.importing import ImportedFile
from secondsight.agent.smi.rows import Subject
from secondsight.agent.smi.troubles import ADVICE
from secondsight.catalog.scale import to_physical
from secondsight.mapping.cells import Cell

REFUSALS_SHOWN = 20


def as_json(files: Sequence[ImportedFile]) -> str:
    """Return everything that was read as one JSON object."""
    told = {"files": [_file(file) for file in files], "readings": [one for file in files for one in _readings(file)]}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def as_text(files: Sequence[ImportedFile]) -> str:
    """Return a summary of each file and the last reading of every metric."""
    lines: list[str] = []
    for file in files:
        lines += _summary(file)
    rows = list(_last_readings(files))
    if rows:
        lines += ["", *_table([("entity", "part", "metric", "last", "unit", "readings"), *rows])]
    return "\n".join(lines) + "\n"


def _summary(file: ImportedFile) -> Iterator[str]:
    times = [ms for ms, _ in file.ticks if ms is not None]
    span = f"{_time(min(times))} to {_time(max(times))}" if times else "no instant known"
    yield f"{file.name}: {file.document.form}, {len(file.document.rows)} rows in {len(file.ticks)} ticks, {span}"
    for row in file.document.rows:
        if row.subject is Subject.LISTED:
            names = ("mig.profile", "mig.device", "mig.uuid", "uuid")
            yield "  MIG {} device {} {} of {}".format(*(row.text(name) for name in names))
    absent = _absent(file)
    if absent:
        yield "  no reading: " + ", ".join(f"{count} {reason}" for reason, count in sorted(absent.items()))
    unknown = _unknown(file)
    if unknown:
        yield f"  {len(unknown)} columns that the catalogue does not have"
    for trouble, entity, times_told in file.troubles:
        yield f"  {entity or 'the host'}: {trouble.value.replace('_', ' ')} ({times_told}x): {ADVICE[trouble]}"
    refusals = file.document.refusals
    for refusal in refusals[:REFUSALS_SHOWN]:
        place = f"line {refusal.line} " if refusal.line else ""
        yield f"  {place}refused: {refusal.reason} [{refusal.code}]"
    if len(refusals) > REFUSALS_SHOWN:
        yield f"  and {len(refusals) - REFUSALS_SHOWN} more refused"


def _file(file: ImportedFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "form": file.document.form,
        "rows": len(file.document.rows),
        "ticks": len(file.ticks),
        "intervalMs": file.interval_ms,
        "absent": dict(sorted(_absent(file).items())),
        "unknownColumns": dict(sorted(_unknown(file).items())),
        "troubles": [{"trouble": t.value, "entity": entity, "times": times} for t, entity, times in file.troubles],
        "refused": [{"line": r.line, "code": r.code, "reason": r.reason} for r in file.document.refusals],
    }


def _readings(file: ImportedFile) -> Iterator[dict[str, Any]]:
    for ms, mapped in file.ticks:
        for cell in mapped.gathered.cells:
            yield {
                "file": file.name,
                "time": None if ms is None else _time(ms),
                "entity": cell.entity,
                "part": cell.part,
                "metric": cell.metric.name,
                "value": _value(cell),
                "quality": cell.quality.name.lower(),
            }


def _last_readings(files: Iterable[ImportedFile]) -> Iterator[tuple[str, ...]]:
    last: dict[tuple[str, str, str], Cell] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for file in files:
        for _, mapped in file.ticks:
            for cell in mapped.gathered.cells:
                key = (cell.entity, cell.part, cell.metric.name)
                counts[key] += cell.value is not None
                if cell.value is not None or key not in last:
                    last[key] = cell
    for key, cell in sorted(last.items()):
        value = _value(cell)
        shown = cell.quality.name.lower() if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
        yield (*key, shown, cell.metric.unit, str(counts[key]))


def _value(cell: Cell) -> float | None:
    return None if cell.value is None else to_physical(cell.metric, cell.value)


def _absent(file: ImportedFile) -> Counter[str]:
    counted: Counter[str] = Counter()
    for _, mapped in file.ticks:
        counted.update(mapped.gathered.discarded)
    return counted


def _unknown(file: ImportedFile) -> Counter[str]:
    counted: Counter[str] = Counter()
    for _, mapped in file.ticks:
        counted.update(mapped.unknown)
    return counted


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
