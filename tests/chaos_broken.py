"""Run the product with one fault built in: `chaos_broken.py FAULT -m secondsight ...`, to see that a chaos run notices.

`launcher` makes an executable that stands for the interpreter, so that every part of a platform has the fault.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HELD_SECONDS = 0.7


def commit_before_write() -> None:
    """Commit what was read instead of what was written."""
    from secondsight.process.settle import Settler

    Settler.offsets = lambda self: dict(self._world.positions)  # type: ignore[method-assign]


def acknowledge_before_append() -> None:
    """Answer senders, and keep their records in memory for a while before they are appended."""
    from secondsight.gateway.native import Intake

    begin = Intake.__init__
    held: set[Any] = set()

    def begin_late(self: Any, plans: Any, sinks: Any, *rest: Any) -> None:
        async def wait_and_append(*records: Any) -> None:
            await asyncio.sleep(HELD_SECONDS)
            await sinks.records(*records)

        async def answer_first(*records: Any) -> None:
            held.add(asyncio.get_running_loop().create_task(wait_and_append(*records)))

        begin(self, plans, replace(sinks, records=answer_first), *rest)

    Intake.__init__ = begin_late  # type: ignore[method-assign]


def count_duplicates() -> None:
    """Take every piece of a row for a row of its own."""
    import numpy as np

    from secondsight.process.cells import Window

    Window._find = lambda _self, _collector, series, _times: np.full(series.size, -1)  # type: ignore[method-assign]


def forget_late_rows() -> None:
    """Drop what belongs to windows that are written already."""
    from secondsight.process.batches import Backlog

    Backlog.add = lambda _self, _key, _piece, _position: None  # type: ignore[method-assign]


def last_word_wins() -> None:
    """Settle two claims of one cell by which came last."""
    from secondsight.process import cells

    ranks = cells.RANK.copy()
    ranks[ranks > 0] = cells.VALUE_RANK
    cells.RANK = ranks
    cells._bits = lambda values: values * 0


def forget_counters_at_restart() -> None:
    """Let counters begin anew with each process."""
    from secondsight.process.late import PriorSource

    load = PriorSource._load

    def nothing(self: Any, state: Any, *rest: Any) -> Any:
        series, lasts = load(self, state, *rest)
        return series[:0], [type(one)(one.values[:, :0], one.time_ms[:, :0], one.epoch[:, :0]) for one in lasts]

    PriorSource._load = nothing  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        commit_before_write,
        acknowledge_before_append,
        count_duplicates,
        forget_late_rows,
        last_word_wins,
        forget_counters_at_restart,
    )
}


def launcher(folder: Path, fault: str) -> Path:
    """Make an executable that runs this file in the place of the interpreter."""
    made = folder / "broken-python"
    made.write_text(f'#!/bin/sh\nCHAOS_LAUNCHER="$0" exec "{sys.executable}" "{__file__}" {fault} "$@"\n')
    made.chmod(0o755)
    return made


def main() -> None:
    from secondsight.cli import main as run

    FAULTS[sys.argv[1]]()
    sys.executable = os.environ["CHAOS_LAUNCHER"]
    sys.argv = ["secondsight", *sys.argv[4:]]
    sys.exit(run())


if __name__ == "__main__":
    main()
