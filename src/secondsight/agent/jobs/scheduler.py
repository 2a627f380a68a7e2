"""Ask Slurm's accounting, queue and nodes now and then, and export what they say in batches.

Each of the three may fail by itself: it is then counted (`scheduler_failed:sacct` and so on), its figures are unknown,
and the others still report. Accounting is read in windows that overlap; where it stands is kept beside the spool.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

from secondsight.agent.client.connection import Connection
from secondsight.agent.client.secret import read_secret
from secondsight.agent.jobs.command import output_of
from secondsight.agent.jobs.report import AllocationReport, Findings, Means, Station
from secondsight.agent.jobs.sacct import COLUMNS, exit_event, job_info, sacct_jobs
from secondsight.agent.jobs.settings import SacctConfig
from secondsight.agent.jobs.slurmjob import JobState, SlurmJob
from secondsight.agent.jobs.slurmtext import SQUEUE_FIELDS, NodeGpus, sinfo_gpus, squeue_jobs
from secondsight.agent.jobs.waits import QueueWaits
from secondsight.agent.wholefile import write_whole
from secondsight.contracts import Tick
from secondsight.errors import Retryable, SecondsightError
from secondsight.mapping.cells import part_text

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
OUTPUT_MAXIMUM_BYTES = 64 << 20
STATES_MAXIMUM = 10_000
SENT_REMEMBERED = 50_000
DOWN = ("down", "drain", "drng", "fail", "maint", "reboot", "unknown", "inval")
"""Beginnings of the states of nodes whose free GPUs cannot be given."""


class SchedulerReader:
    """Reads one cluster's scheduler; see `contracts.Reader`."""

    def __init__(self, config: SacctConfig, station: Station, means: Means) -> None:
        """Prepare; nothing is started yet.

        Raises:
            Rejected: `bad_url`.
        """
        self.name = "sacct"
        self.interval_ms = round(config.interval_minutes * MINUTE_MS)
        self._config = config
        self._means = means
        self._entity = f"slurm/{station.host_id}"
        self._report = AllocationReport("sacct", self.interval_ms, station, means)
        self._progress = station.state_dir / "sacct.json"
        self._jobs = Connection(config.jobs_url, means.clock) if config.jobs_url else None
        self._sent: dict[tuple[str, str, int, str], None] = {}
        self._waits = QueueWaits()
        self._through_ms = self._restore()
        self._failing: set[str] = set()

    def read(self, tick_ms: int) -> Tick:
        """Ask each of them once; what fails is unknown until the next time."""
        found = Findings()
        reached_ms: list[int] = []
        self._try("sacct", lambda: reached_ms.append(self._pull(found, tick_ms)))
        if self._config.jobs_url or self._config.squeue:
            self._try("squeue", lambda: self._queue(found))
        if self._config.sinfo:
            self._try("sinfo", lambda: self._nodes(found))
        tick = self._report.tick(found, tick_ms)
        if reached_ms:
            self._keep_progress(reached_ms[0])
        return tick

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._jobs is not None:
            self._jobs.close()

    def _try(self, name: str, ask: Callable[[], None]) -> None:
        try:
            ask()
        except (SecondsightError, OSError) as error:
            self._means.counts.add(f"scheduler_failed:{name}")
            if name not in self._failing:
                logger.warning("%s cannot be asked, its figures are unknown: %s", name, error)
            self._failing.add(name)
        else:
            self._failing.discard(name)

    def _run(self, *command: str) -> str:
        environment = dict(os.environ) | {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}
        return output_of(
            command,
            environment,
            timeout_seconds=self._config.timeout_seconds,
            limit_bytes=OUTPUT_MAXIMUM_BYTES,
        )

    def _pull(self, found: Findings, tick_ms: int) -> int:
        """Read accounting for one window; return up to when, epoch ms."""
        window_ms = round(self._config.window_hours * HOUR_MS)
        last_ms = self._through_ms
        overlap_ms = round(self._config.overlap_minutes * MINUTE_MS)
        start_ms = tick_ms - window_ms if last_ms is None else min(last_ms, tick_ms) - overlap_ms
        end_ms = min(start_ms + window_ms, tick_ms)
        span = [f"--starttime={_stamp(start_ms)}", f"--endtime={_stamp(end_ms)}"]
        text = self._run(
            self._config.sacct, "--allusers", "--allocations", "--duplicates", "--parsable2", *span,
            f"--format={','.join(COLUMNS)}",
        )  # fmt: skip
        accounts = sacct_jobs(text, UTC)
        found.unresolved += Counter({f"sacct_{name}": count for name, count in accounts.refused.items()})
        if "header" in accounts.refused:
            raise Retryable("sacct printed no header with JobID and State")
        for job in accounts.jobs:
            self._add(job, found)
        self._waits.take(accounts.jobs, (start_ms, end_ms), overlap_ms)
        self._means.counts.add_discarded(self._waits.take_refused())
        found.histograms += self._waits.points(self._means.catalog.get("scheduler_queue_wait_seconds"), self._entity)
        return end_ms

    def _add(self, job: SlurmJob, found: Findings) -> None:
        """Add what a job's accounting says and was not sent before."""
        info, event = job_info(job, self._config.teams), exit_event(job, self._config.teams)
        if info is not None and self._is_new((info.entity, "info", info.time_ms, repr(info.attributes))):
            found.infos.append(info)
        if event is not None and self._is_new((event.entity, "exit", event.time_ms, repr(event.attributes))):
            found.events.append(event)

    def _is_new(self, key: tuple[str, str, int, str]) -> bool:
        if key in self._sent:
            return False
        if len(self._sent) >= SENT_REMEMBERED:
            self._sent.clear()
        self._sent[key] = None
        return True

    def _queue(self, found: Findings) -> None:
        jobs = squeue_jobs(self._ask_rest() if self._jobs is not None else self._ask_squeue())
        found.unresolved += Counter({f"squeue_{name}": count for name, count in jobs.refused.items()})
        waiting: Counter[str] = Counter({job.partition: 0 for job in jobs.jobs})
        waiting.update(job.partition for job in jobs.jobs if job.state is JobState.PENDING)
        for partition, count in waiting.items():
            found.readings.append(("scheduler_queue_depth", self._entity, part_text([("queue", partition)]), count))
        for job in jobs.jobs[:STATES_MAXIMUM]:
            found.readings.append(("job_state", job.job_id, "", job.state))
            if job.restarts is not None:
                found.readings.append(("job_restarts_total", job.job_id, "", job.restarts))

    def _ask_squeue(self) -> str:
        columns = ",".join(f"{name}:|" for name in SQUEUE_FIELDS)
        return self._run(self._config.squeue, "--noheader", "--all", "--array", f"--Format={columns}")

    def _ask_rest(self) -> str:
        assert self._jobs is not None  # noqa: S101 # the caller has looked
        parts = urlsplit(self._config.jobs_url)
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if self._config.token_file is not None:
            headers["X-SLURM-USER-TOKEN"] = read_secret(self._config.token_file)
        answer = self._jobs.request(
            "GET",
            parts.path + (f"?{parts.query}" if parts.query else ""),
            headers,
            timeout_seconds=self._config.timeout_seconds,
            limit_bytes=OUTPUT_MAXIMUM_BYTES,
        )
        if answer.status != 200:
            raise Retryable(f"slurmrestd answered {answer.status}")
        return answer.body.decode(errors="replace")

    def _nodes(self, found: Findings) -> None:
        text = self._run(
            self._config.sinfo, "--noheader", "--Node", "--Format=NodeList:|,StateLong:|,Gres:|,GresUsed:|"
        )
        found.readings += [(name, self._entity, part, count) for name, part, count in capacity(sinfo_gpus(text))]

    def _restore(self) -> int | None:
        """Take up what an earlier run kept; return up to when accounting was read."""
        try:
            said = json.loads(self._progress.read_text())
            through_ms = said["through_ms"]
            if "waits" in said:
                self._waits.restore(said["waits"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._means.counts.add("job_state_unreadable")
            return None
        return through_ms if isinstance(through_ms, int) else None

    def _keep_progress(self, through_ms: int) -> None:
        self._through_ms = through_ms
        try:
            write_whole(self._progress, json.dumps({"through_ms": through_ms, "waits": self._waits.kept()}).encode())
        except OSError as error:
            self._means.counts.add("job_state_write_failed")
            logger.debug("%s cannot be written: %s", self._progress, error)


def capacity(nodes: list[NodeGpus]) -> Iterator[tuple[str, str, int]]:
    """Give (metric, part, GPUs) of nodes: how many there are, are given, are free, and are free but down."""
    total = used = idle = 0
    down: Counter[str] = Counter()
    for node in nodes:
        here, busy = node.nodes * sum(node.total.values()), node.nodes * sum(node.used.values())
        total, used = total + here, used + busy
        reason = next((word for word in DOWN if node.state.startswith(word)), "")
        if reason:
            down[reason] += max(here - busy, 0)
        else:
            idle += max(here - busy, 0)
    yield "scheduler_gpus_capacity", "", total
    yield "scheduler_gpus_allocated", "", used
    yield "scheduler_gpus_idle", "", idle
    for reason, count in down.items():
        yield "scheduler_gpus_down", part_text([("reason", reason)]), count


def _stamp(instant_ms: int) -> str:
    """Return a time as sacct reads it, in UTC."""
    return datetime.fromtimestamp(instant_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
