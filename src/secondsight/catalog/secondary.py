"""Name the rows that say what many samples were together, beside the row of the last of them.

A host that ships a row every 30 s polls every second all the same where that is cheap. Beside the plain row of an
entity it then sends rows whose part is marked `secondary=NAME`: for each gauge the least, greatest and mean value of
the polls. They are no samples of their own: rollups use them in place of the plain row's value, and reads leave them
out.
"""

from enum import StrEnum

LABEL = "secondary"
MARK = f"{LABEL}="
"""Stands in the part of a secondary row and of no other: values of labels hold no `=`."""

WINDOW_SECONDS = 30
"""Polls that a secondary row stands for where no `COUNT` says otherwise: one a second of the window."""


class Statistic(StrEnum):
    """What a secondary row holds.

    AVG and REST are the mean of the polls: AVG + REST / polls, in stored integers, so that sums stay exact. COUNT is
    there only where polls are missing.
    """

    MIN = "min"
    MAX = "max"
    AVG = "avg"
    REST = "rest"
    P95 = "p95"
    COUNT = "count"


def secondary_part(part: str, statistic: Statistic) -> str:
    """Return the part of a secondary row of a part."""
    pairs = [pair for pair in part.split(",") if pair]
    return ",".join(sorted([*pairs, f"{MARK}{statistic.value}"]))


def split_part(part: str) -> tuple[str, Statistic | None]:
    """Return the part that a row speaks of, and what it holds of it; None for a plain row or an unknown statistic."""
    if not is_secondary(part):
        return part, None
    pairs = part.split(",")
    marked = next((pair for pair in pairs if pair.startswith(MARK)), "")
    known = {statistic.value: statistic for statistic in Statistic}
    return ",".join(pair for pair in pairs if pair != marked), known.get(marked.removeprefix(MARK))


def is_secondary(part: str) -> bool:
    """Tell whether a part is that of a secondary row."""
    return MARK in part
