"""Read who has which GPU from folders of one file a GPU: an exporter's job files, and an AMD prolog's JSON files.

A job file is named `3` for a GPU, or `3.1` for a MIG instance of it, and holds one job id a line; two jobs in it share
the GPU, an empty one means that it is free. A JSON file is named by a GPU's number modulo 128.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.agent.jobs.devices import Gpu, numbered, part_of
from secondsight.agent.jobs.environment import job_id_of, kept, owner_of
from secondsight.agent.jobs.handed import read_handed
from secondsight.mapping.allocation import Holding, Owner, Share
from secondsight.mapping.cells import Key

FILES_MAXIMUM = 1024
FILE_MAXIMUM_BYTES = 64 << 10
NUMBERS = 128
_NAME = re.compile(r"(\d{1,4})(?:\.(\d{1,2}))?(?:\.json)?").fullmatch


@dataclass(slots=True)
class FoundFiles:
    """Who has which GPU by the files.

    Attributes:
        unplaced: Jobs of GPUs that are not known now.
    """

    holdings: list[Holding] = field(default_factory=list)
    unplaced: set[str] = field(default_factory=set)
    unresolved: Counter[str] = field(default_factory=Counter)


def job_files(folder: Path, gpus: Sequence[Gpu]) -> FoundFiles:
    """Return who has which GPU by an exporter's job files; their numbers are indexes.

    Raises:
        OSError: The folder cannot be listed.
    """
    found = FoundFiles()
    for number, instance, text, written_ms in _files(folder):
        gpu = numbered(number, gpus, by="index")
        jobs = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        place = None if gpu is None else (gpu.uuid, part_of(instance))
        _add(found, place, [Owner(job) for job in jobs], written_ms)
    return found


def json_files(folder: Path, gpus: Sequence[Gpu], teams: Mapping[str, str]) -> FoundFiles:
    """Return who has which GPU by an AMD prolog's files.

    Raises:
        OSError: The folder cannot be listed.
    """
    found = FoundFiles()
    for number, instance, text, written_ms in _files(folder):
        variables = _variables(text)
        if not job_id_of(variables):
            found.unresolved["gpu_file"] += bool(text.strip())
            continue
        gpu = numbered(number % NUMBERS, gpus, by="index")
        place = None if gpu is None else (gpu.uuid, part_of(instance))
        _add(found, place, [owner_of(variables, teams, "")], written_ms)
    return found


def _add(found: FoundFiles, place: Key | None, owners: Sequence[Owner], written_ms: int) -> None:
    if place is None:
        found.unplaced |= {owner.job_id for owner in owners}
        found.unresolved["gpu_number"] += len(owners)
        return
    share = Share.SOLE if len(owners) < 2 else Share.SHARED
    found.holdings += [Holding(*place, owner, share, written_ms) for owner in owners]


def _files(folder: Path) -> Iterator[tuple[int, int | None, str, int]]:
    """Give (number, instance, text, time of writing in ms) of the files of GPUs."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if _NAME(entry.name) and entry.is_file(follow_symlinks=False))
    for name in names[:FILES_MAXIMUM]:
        found = _NAME(name)
        try:
            text, written_ms = read_handed(folder / name, FILE_MAXIMUM_BYTES)
        except OSError:
            continue
        if found:
            yield int(found[1]), None if found[2] is None else int(found[2]), text, written_ms


def _variables(text: str) -> dict[str, str]:
    try:
        read = json.loads(text)
        return kept({str(name): str(value) for name, value in read.items()})
    except (ValueError, RecursionError, AttributeError):
        return {}
