"""Write and read what a job's prolog and epilog say: the exact start and end of jobs, by files in a folder.

One file an occurrence, replaced whole, so that neither side ever waits for the other. Writing never fails the job: what
goes wrong is said on the error output, and the exit code is 0. Readers also take plain `NAME=value` lines, which a
prolog can write without this program, as a file `<anything>.start` or `<anything>.end`.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.jobs.environment import job_id_of, kept
from secondsight.agent.jobs.handed import read_handed

FILES_MAXIMUM = 10_000
FILE_MAXIMUM_BYTES = 1 << 20
TIME_MAXIMUM_MS = 253_402_300_799_999
MODE = 0o640


@dataclass(frozen=True, slots=True)
class Hook:
    """One occurrence.

    Attributes:
        is_start: True for a prolog, False for an epilog.
        variables: Of its environment, those that are used.
    """

    job_id: str
    is_start: bool
    time_ms: int
    variables: Mapping[str, str]
    path: Path


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job as the hooks tell it; a job that is requeued has several."""

    start: Hook
    end_ms: int | None
    paths: tuple[Path, ...]


def write_hook(folder: Path, word: str, environment: Mapping[str, str], now_ms: int, more: str = "") -> Path:
    """Write that a job starts or ends now. A link that others left in its way is not followed: prologs are root's.

    Args:
        folder: Made when it is not there.
        word: `start` or `end`.
        environment: Of the prolog or epilog.
        now_ms: Epoch ms.
        more: A further variable to keep.

    Raises:
        OSError: The disk refuses.
        ValueError: The environment names no job.
    """
    variables = kept(environment, more)
    job = job_id_of(variables)
    if not job:
        raise ValueError("SLURM_JOB_ID is not set: this is no prolog or epilog of Slurm")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{job}-{now_ms}.{word}"
    temporary = folder / f".{path.name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w") as out:
        json.dump({"time_ms": now_ms, "variables": variables}, out)
    temporary.replace(path)
    return path


def read_hooks(folder: Path, more: str = "") -> tuple[list[Hook], int]:
    """Return the occurrences in a folder, oldest first, and how many files could not be read.

    Raises:
        OSError: The folder cannot be listed.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if re.search(r"\.(start|end)$", entry.name)]
    found: list[Hook] = []
    refused = max(len(names) - FILES_MAXIMUM, 0)
    for name in sorted(names)[:FILES_MAXIMUM]:
        hook = None if name.startswith(".") else _read(folder / name, more)
        if hook is not None:
            found.append(hook)
        elif not name.startswith("."):
            refused += 1
    return sorted(found, key=lambda hook: (hook.time_ms, not hook.is_start)), refused


def runs_of(hooks: Iterable[Hook]) -> tuple[list[Run], list[Hook]]:
    """Return the runs of jobs in order of their starts, and ends without a start.

    A run ends with the first end after its start; one that another start of its job follows ended by then.
    """
    runs: list[Run] = []
    open_runs: dict[str, Hook] = {}
    lonely: list[Hook] = []
    for hook in hooks:
        before = open_runs.pop(hook.job_id, None)
        if before is not None:
            paths = (before.path,) if hook.is_start else (before.path, hook.path)
            runs.append(Run(before, hook.time_ms, paths))
        elif not hook.is_start:
            lonely.append(hook)
        if hook.is_start:
            open_runs[hook.job_id] = hook
    runs += [Run(hook, None, (hook.path,)) for hook in open_runs.values()]
    return sorted(runs, key=lambda run: run.start.time_ms), lonely


def _read(path: Path, more: str) -> Hook | None:
    try:
        text, written_ms = read_handed(path, FILE_MAXIMUM_BYTES)
    except OSError:
        return None
    time_ms, variables = _fields(text, written_ms)
    job = job_id_of(variables)
    return Hook(job, path.suffix == ".start", time_ms, kept(variables, more), path) if job else None


def _fields(text: str, written_ms: int) -> tuple[int, dict[str, str]]:
    """Return time and variables of a file; of plain lines the time is that of its writing, unless a line says."""
    try:
        read = json.loads(text)
        pairs = {str(name): str(value) for name, value in read["variables"].items()}
        time_ms = int(read["time_ms"])
    except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError):
        pairs = dict(re.findall(r"^(?:export )?([A-Za-z_]\w*)=(.*)$", text, re.MULTILINE))
    else:
        return time_ms if 0 < time_ms <= TIME_MAXIMUM_MS else written_ms, pairs
    stated = pairs.get("TIME_MS", "")
    return int(stated) if re.fullmatch(r"\d{12,14}", stated) else written_ms, pairs
