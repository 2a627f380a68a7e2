"""Keep an eye on the Slurm jobs that have a control group on this host: who they are, since when, with which devices.

A job's processes are looked at in its first ticks, later only now and then while nothing is known of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.host import proc
from secondsight.agent.jobs.cgroups import JobFolder, device_minors, job_folders, processes
from secondsight.agent.jobs.environment import Environment, job_id_of, process_environment, process_start_ms

LOOKS = 4
LOOK_AGAIN_TICKS = 12
ENVIRONMENTS_MAXIMUM = 32
FORGET_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Witness:
    """What the host shows of one job.

    Attributes:
        user_id: Numeric, by the path of the control group.
        environments: Of some of its processes, each once.
        minors: Of the devices that it may open, or None where that is not limited.
        started_ms: Start of the first of its processes that was seen.
        is_refused: True if this agent may not look at any of its processes.
    """

    user_id: str = ""
    environments: tuple[Environment, ...] = ()
    minors: tuple[int, ...] | None = None
    started_ms: int | None = None
    is_refused: bool = False


class NodeJobs:
    """The jobs of one host. One thread uses it."""

    def __init__(self, root: Path, model_variable: str) -> None:
        self._root = root
        self._model_variable = model_variable
        self._witnesses: dict[str, Witness] = {}
        self._looks: dict[str, int] = {}
        self._last_ms: dict[str, int] = {}
        self.boot_seconds: int | None = None
        self.present: Mapping[str, Witness] = {}

    def look(self, tick_ms: int) -> bool:
        """Take in what is there now; return whether there is a folder of Slurm that would tell."""
        self.boot_seconds = proc.boot_time_seconds(self._stat())
        folders = job_folders(self._root)
        for job, folder in (folders or {}).items():
            looks = self._looks.get(job, 0)
            known = self._witnesses.get(job, Witness())
            if looks < LOOKS or (not known.environments and looks % LOOK_AGAIN_TICKS == 0):
                self._witnesses[job] = self._look_at(folder, known)
            self._looks[job] = looks + 1
            self._last_ms[job] = tick_ms
        self.present = {job: self._witnesses[job] for job in folders or ()}
        self._forget(tick_ms)
        return folders is not None

    def last_ms(self, job: str) -> int | None:
        """Return the tick at which a job last had a control group, or None if it never had one lately."""
        return self._last_ms.get(job)

    def _stat(self) -> str:
        try:
            return (self._root / "proc/stat").read_text(errors="replace")
        except OSError:
            return ""

    def _look_at(self, folder: JobFolder, known: Witness) -> Witness:
        environments = {tuple(sorted(each.items())): each for each in known.environments}
        starts = [] if known.started_ms is None else [known.started_ms]
        refused = 0
        for pid in processes(folder.path):
            try:
                environment = process_environment(self._root, pid, self._model_variable)
            except PermissionError:
                refused += 1
                continue
            except OSError:
                continue
            start_ms = process_start_ms(self._root, pid, self.boot_seconds)
            starts += [] if start_ms is None else [start_ms]
            if job_id_of(environment) == folder.job_id and len(environments) < ENVIRONMENTS_MAXIMUM:
                environments.setdefault(tuple(sorted(environment.items())), environment)
        return Witness(
            folder.user_id,
            tuple(environments.values()),
            device_minors(folder),
            min(starts, default=None),
            bool(refused) and not environments,
        )

    def _forget(self, tick_ms: int) -> None:
        for job, last_ms in list(self._last_ms.items()):
            if job not in self.present:
                self._witnesses.pop(job, None)
                self._looks.pop(job, None)
                if abs(tick_ms - last_ms) > FORGET_MS:
                    del self._last_ms[job]
