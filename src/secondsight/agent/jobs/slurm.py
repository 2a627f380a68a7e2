"""Read from a Slurm node which job has which GPU, without a process per tick.

Witnesses, the better ones first: prolog and epilog (`hooks.py`), control groups with the environment of the processes
in them (`node.py`), folders of one file a GPU (`gpufiles.py`). They are put together by job.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from secondsight.agent.jobs.command import output_of
from secondsight.agent.jobs.devices import numbered
from secondsight.agent.jobs.environment import Environment, Placed, is_shard, owner_of, placed, start_of
from secondsight.agent.jobs.gpufiles import FoundFiles, job_files, json_files
from secondsight.agent.jobs.hooks import Run, read_hooks, runs_of
from secondsight.agent.jobs.node import NodeJobs, Witness
from secondsight.agent.jobs.report import AllocationReport, Findings, Means, Station
from secondsight.agent.jobs.settings import SlurmConfig
from secondsight.agent.jobs.slurmtext import scontrol_jobs
from secondsight.contracts import Tick
from secondsight.errors import Retryable
from secondsight.mapping.allocation import Holding, Owner, Share
from secondsight.mapping.intervals import Listing

logger = logging.getLogger(__name__)

GRACE_MS = 60_000
"""How long a job that its prolog told of may be without a control group, at its beginning and at its end."""
SCONTROL_SECONDS = 3.0
SCONTROL_BYTES = 1 << 20
ASKED_REMEMBERED = 1000


@dataclass(slots=True)
class _Now:
    """What one look gives, while it is put together.

    Attributes:
        alive: Jobs that go on though their GPUs, or that they do, cannot be told now.
        is_blind: True if a folder that would tell cannot be read.
    """

    tick_ms: int
    found: Findings = field(default_factory=Findings)
    holdings: list[Holding] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    is_blind: bool = False


class SlurmReader:
    """Reads one node; see `contracts.Reader`.

    Counts `job_hook_unreadable`, `job_hook_stale`, `job_hook_left` and `job_files_failed`.
    """

    def __init__(self, config: SlurmConfig, station: Station, means: Means) -> None:
        self.name = "slurm"
        self.interval_ms = config.interval_ms
        self._config = config
        self._station = station
        self._means = means
        self._report = AllocationReport("slurm", config.interval_ms, station, means)
        self._node = NodeJobs(station.root, config.model_variable)
        self._ended: dict[str, int] = {}
        self._asked: dict[str, Placed] = {}
        self._consumed: set[Path] = set()
        self._left: set[Path] = set()

    def read(self, tick_ms: int) -> Tick:
        """Look at the node once.

        Raises:
            Retryable: There is nothing to look at; nothing ends by that.
        """
        self._clear_consumed()
        has_folders = self._node.look(tick_ms)
        self._check_sight(has_folders)
        now = _Now(tick_ms)
        runs, ends = self._runs(now)
        started = {run.start.job_id: run for run in self._going_on(runs, has_folders, now)}
        for job in {**started, **self._node.present}:
            self._add_job(job, started.get(job), now)
        for files in self._files(now):
            now.holdings += [each for each in files.holdings if each.owner.job_id not in self._ended]
            now.alive |= files.unplaced - self._ended.keys()
            now.found.unresolved.update(files.unresolved)
        if now.is_blind and not has_folders:
            now.alive |= self._report.open_jobs()
        now.found.listing = Listing(tuple(now.holdings), ends, frozenset(now.alive))
        self._forget_ended(tick_ms)
        return self._report.tick(now.found, tick_ms)

    def close(self) -> None:
        """Nothing is held."""

    def _check_sight(self, has_folders: bool) -> None:
        config = self._config
        others = any((config.hooks_dir, config.gpu_jobs_dir, config.gpu_json_dir))
        root = self._station.root
        if not has_folders and not others and not (root / "sys/fs/cgroup").is_dir():
            raise Retryable(
                f"there are no control groups under {root}: mount the host's /sys/fs/cgroup, or set agent.slurm."
                f"hooks_dir; {self._report.open_intervals} allocations are taken to go on"
            )

    def _runs(self, now: _Now) -> tuple[list[Run], dict[str, int]]:
        """Return the runs that the hooks tell of, and the ends of jobs whose start they did not see."""
        folder = self._config.hooks_dir
        if folder is None:
            return [], {}
        try:
            hooks, refused = read_hooks(folder, self._config.model_variable)
        except OSError as error:
            self._note_blind(now, error)
            return [], {}
        if refused:
            self._means.counts.add("job_hook_unreadable", refused)
        runs, lonely = runs_of(hook for hook in hooks if hook.path not in self._left)
        self._consumed |= {hook.path for hook in lonely}
        ends = {hook.job_id: hook.time_ms for hook in lonely}
        self._ended |= ends
        return runs, ends

    def _going_on(self, runs: list[Run], has_folders: bool, now: _Now) -> Iterator[Run]:
        """Give the runs that go on; those that ended become history."""
        for run in runs:
            job = run.start.job_id
            if run.end_ms is not None:
                self._ended[job] = run.end_ms
                self._consumed |= set(run.paths)
                holdings, _ = self._holdings_of(job, run, now)
                now.found.history.append(Listing(holdings, {job: run.end_ms}, complete=False))
            elif self._is_stale(run, has_folders, now.tick_ms):
                self._means.counts.add("job_hook_stale")
                self._consumed |= set(run.paths)
            else:
                self._ended.pop(job, None)
                yield run

    def _is_stale(self, run: Run, has_folders: bool, tick_ms: int) -> bool:
        """Tell whether a run must have ended without its epilog: the host booted, or its control group is long gone."""
        boot_seconds = self._node.boot_seconds
        if boot_seconds is not None and run.start.time_ms < boot_seconds * 1000:
            return True
        last_ms = max(run.start.time_ms, self._node.last_ms(run.start.job_id) or 0)
        return has_folders and tick_ms - last_ms > GRACE_MS

    def _add_job(self, job: str, run: Run | None, now: _Now) -> None:
        """Add what a job has that runs, or that it runs though what it has cannot be told."""
        if run is None and job in self._ended:
            return
        if job not in self._node.present and self._node.last_ms(job) is not None:
            now.alive.add(job)
            return
        holdings, reason = self._holdings_of(job, run, now)
        now.holdings += holdings
        if reason:
            now.alive.add(job)

    def _holdings_of(self, job: str, run: Run | None, now: _Now) -> tuple[tuple[Holding, ...], str]:
        """Return what a job has, and why some of it cannot be told."""
        witness = self._node.present.get(job, Witness())
        environments = [*([run.start.variables] if run else []), *witness.environments]
        placing = placed(environments, witness.minors, self._means.gpus.gpus(), by=self._config.numbers)
        if not environments and not placing.places and witness.is_refused:
            placing = Placed(reason="no_permission")
        if placing.reason and self._config.scontrol:
            placing = self._ask_scontrol(job, environments)
        if placing.reason:
            now.found.unresolved[placing.reason] += 1
        owner = self._owner_of(job, environments, witness)
        share = Share.SHARED if any(map(is_shard, environments)) else Share.SOLE
        start_ms, exact = _start_of(run, environments, witness)
        made = tuple(Holding(*place, owner, share, start_ms, exact) for place in placing.places)
        return made, placing.reason

    def _owner_of(self, job: str, environments: list[Environment], witness: Witness) -> Owner:
        merged = {name: text for each in reversed(environments) for name, text in each.items() if text}
        owner = owner_of(merged, self._config.teams, self._config.model_variable, witness.user_id)
        return replace(owner, job_id=job)

    def _ask_scontrol(self, job: str, environments: list[Environment]) -> Placed:
        """Ask Slurm once which GPUs of this node a job has."""
        if job not in self._asked:
            if len(self._asked) >= ASKED_REMEMBERED:
                self._asked.clear()
            node = next((name for each in environments if (name := each.get("SLURMD_NODENAME"))), "")
            self._asked[job] = self._scontrol(job, node or self._station.host_id)
        return self._asked[job]

    def _scontrol(self, job: str, node: str) -> Placed:
        command = (self._config.scontrol, "--details", "show", "job", job)
        environment = dict(os.environ) | {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}
        try:
            text = output_of(command, environment, timeout_seconds=SCONTROL_SECONDS, limit_bytes=SCONTROL_BYTES)
        except Retryable as error:
            logger.warning("the GPUs of job %s are unknown: %s", job, error)
            return Placed(reason="scontrol_failed")
        by_node = {name: numbers for each in scontrol_jobs(text, UTC) for name, numbers in each.node_gpus.items()}
        numbers = by_node.get(node) or by_node.get(node.partition(".")[0]) or ()
        gpus = [numbered(number, self._means.gpus.gpus(), by=self._config.numbers) for number in numbers]
        places = tuple((gpu.uuid, "") for gpu in gpus if gpu is not None)
        return Placed(places, "" if numbers and len(places) == len(numbers) else "gpu_number")

    def _files(self, now: _Now) -> Iterator[FoundFiles]:
        """Give what the folders of one file a GPU say; one that cannot be read is counted."""
        gpus = self._means.gpus.gpus()
        config = self._config
        try:
            if config.gpu_jobs_dir is not None:
                yield job_files(config.gpu_jobs_dir, gpus)
            if config.gpu_json_dir is not None:
                yield json_files(config.gpu_json_dir, gpus, config.teams)
        except OSError as error:
            self._note_blind(now, error)

    def _note_blind(self, now: _Now, error: OSError) -> None:
        """Note that a folder cannot be read: what it told of goes on."""
        now.is_blind = True
        self._means.counts.add("job_files_failed")
        logger.debug("slurm: %s", error)

    def _forget_ended(self, tick_ms: int) -> None:
        """Forget ends of jobs that nothing shows any more."""
        shown = self._node.present.keys()
        self._ended = {job: at for job, at in self._ended.items() if job in shown or abs(tick_ms - at) <= GRACE_MS}

    def _clear_consumed(self) -> None:
        """Delete the files whose word was reported with the tick before."""
        for path in self._consumed:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._means.counts.add("job_hook_left")
                self._left.add(path)
                logger.debug("%s stays where it is: %s", path, error)
        self._consumed.clear()
        self._left = {path for path in self._left if path.exists()}


def _start_of(run: Run | None, environments: list[Environment], witness: Witness) -> tuple[int | None, bool]:
    """Return when a job started, epoch ms, and whether Slurm itself says so."""
    if run is not None:
        return run.start.time_ms, True
    told = next((start for each in environments if (start := start_of(each)) is not None), None)
    return (told, True) if told is not None else (witness.started_ms, False)
