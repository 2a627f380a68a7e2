"""Find the Slurm jobs of this host in its control groups: their ids, processes and devices. No process is started.

Version 1: `/sys/fs/cgroup/<controller>/slurm*/uid_<uid>/job_<id>/step_*/...`. Version 2:
`/sys/fs/cgroup/system.slice/*slurmstepd.scope/job_<id>/step_*/...`. A job's folder goes when slurmd says that it ended.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("devices", "freezer", "memory", "cpuset", "cpu,cpuacct", "cpuacct", "pids")
SCOPES = (
    "sys/fs/cgroup/system.slice/*slurmstepd.scope",
    "sys/fs/cgroup/*slurmstepd.scope",
    "sys/fs/cgroup/unified/system.slice/*slurmstepd.scope",
)
FOLDERS_MAXIMUM = 256
PROCESSES_MAXIMUM = 64
NVIDIA_MAJOR = 195
NVIDIA_MINORS = range(250)
"""Minors of GPUs; 254 and 255 are control devices."""

_JOB = re.compile(r"job_(\d+)").fullmatch
_USER = re.compile(r"uid_(\d+)").fullmatch
_DEVICE = re.compile(r"([abc]) ([\d*]+):([\d*]+) ").match


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job by its control group.

    Attributes:
        user_id: Numeric id where the path has it (version 1).
        devices: Folder whose `devices.list` says what the job may open (version 1), or None.
    """

    job_id: str
    path: Path
    user_id: str = ""
    devices: Path | None = None


def job_folders(root: Path) -> dict[str, JobFolder] | None:
    """Return the jobs that have a control group now, or None where there is no Slurm folder to tell."""
    bases = [base for pattern in SCOPES for base in root.glob(pattern)]
    if bases:
        return {job.job_id: job for base in bases for job in _jobs_in(base, "")}
    for controller in CONTROLLERS:
        bases = list((root / "sys/fs/cgroup" / controller).glob("slurm*"))
        if bases:
            return {job.job_id: job for base in bases for job in _first_version(base, controller)}
    return None


def processes(folder: Path) -> list[int]:
    """Return some processes of a job, those of its own steps before the external one's."""
    steps = sorted(_subfolders(folder), key=lambda path: (path.name == "step_extern", path.name))
    found: list[int] = []
    for step in (*steps, folder):
        for pid in _processes_below(step):
            found.append(pid)
            if len(found) >= PROCESSES_MAXIMUM:
                return found
    return list(dict.fromkeys(found))


def device_minors(job: JobFolder) -> tuple[int, ...] | None:
    """Return the minors of the GPUs that a job may open, or None where its devices are not limited, or not known."""
    if job.devices is None:
        return None
    try:
        lines = (job.devices / "devices.list").read_text().splitlines()
    except OSError:
        return None
    return minors_of(lines)


def minors_of(lines: list[str]) -> tuple[int, ...] | None:
    """Return the minors of GPUs in a `devices.list`, or None where it lets everything through."""
    minors = []
    for line in lines:
        found = _DEVICE(line + " ")
        if not found:
            continue
        kind, major, minor = found.groups()
        if kind == "a" or (kind == "c" and major in ("*", str(NVIDIA_MAJOR)) and minor == "*"):
            return None
        if kind == "c" and major == str(NVIDIA_MAJOR) and int(minor) in NVIDIA_MINORS:
            minors.append(int(minor))
    return tuple(dict.fromkeys(minors))


def _first_version(base: Path, controller: str) -> Iterator[JobFolder]:
    for folder in _subfolders(base):
        user = _USER(folder.name)
        if user:
            for job in _jobs_in(folder, user[1]):
                yield JobFolder(job.job_id, job.path, user[1], job.path if controller == "devices" else None)


def _jobs_in(folder: Path, user_id: str) -> Iterator[JobFolder]:
    for path in _subfolders(folder):
        found = _JOB(path.name)
        if found:
            yield JobFolder(found[1], path, user_id)


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _processes_below(folder: Path) -> Iterator[int]:
    for number, (path, _, files) in enumerate(os.walk(folder)):
        if number >= FOLDERS_MAXIMUM:
            return
        if "cgroup.procs" in files:
            try:
                words = Path(path, "cgroup.procs").read_text().split()
            except OSError:
                continue
            yield from (int(word) for word in words if word.isdecimal())
