"""Turn the reports of a host's training processes into rows of their runs.

A run is a job and a run id; its entity is `job` or `job/run`. Processes report what they counted since they began, so a
report that is lost loses no count, and what a run adds up to goes on through restarts of its processes and of the
agent (`kept`, `restored`). What is the same in every process of a job (its step, its loss) comes from the process of
the lowest rank, and only from the host that has rank 0, so that no step of a job counts once for every host.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from secondsight.agent.training import losses
from secondsight.agent.training.datagram import Incident, Report
from secondsight.agent.training.jobrun import (
    OWN_GAUGES,
    SILENT_SECONDS,
    JobRun,
    Process,
    lag_seconds,
    own_gauges,
    process_key,
    rank_order,
)
from secondsight.agent.training.kept import kept, restored
from secondsight.agent.training.measures import COUNTS, DURATIONS, GAUGES, Key, Measured, gather, known_key
from secondsight.agent.training.pace import Pace
from secondsight.catalog.load import Catalog
from secondsight.mapping.cells import Gathered
from secondsight.mapping.changes import Facts
from secondsight.model import EntityKind
from secondsight.wire.content import Event

Alive = Callable[[int], bool]
"""Tells whether a process of this host is there."""

JOB_WIDE = ("steps", "anomalies")
PROCESSES_MAXIMUM = 256
BUCKET_MAXIMUM = 2**53
ANOMALY_PAUSE_SECONDS = 60.0
"""One kind of anomaly is told once in that time, however many processes see it."""
FORGET_SECONDS = 3600.0
TIME_SLACK_MS = 86_400_000
END_OK, END_FAILED, END_VANISHED = 0, 1, 2
RESTART_PROCESS, RESTART_LAUNCHER = 1, 2


class Runs:
    """All runs of one host. Not thread-safe.

    Args:
        known_since_ms: A process that began before and is not known was counting already: what it had counted then
            is nobody's increase.
    """

    def __init__(self, catalog: Catalog, alive: Alive, *, node: str, runs_maximum: int, known_since_ms: int) -> None:
        self._catalog = catalog
        self._alive = alive
        self._node = node
        self._runs_maximum = runs_maximum
        self._known_since_ms = known_since_ms
        self._runs: dict[str, JobRun] = {}
        self._events: list[Event] = []
        self._facts = Facts()
        self.begun = Gathered()
        self.discarded: Counter[str] = Counter()
        self.changed = False

    def take(self, report: Report, now: float, tick_ms: int, pid: int = 0, uid: int | None = None) -> None:
        """Take in one report.

        Args:
            report: The report.
            now: Monotonic seconds.
            tick_ms: Time for events that have none of this day.
            pid: Who sent it, by the kernel; 0 where that is not known.
            uid: Whose process it is; None where that is not known.
        """
        run = self._run_of(report, now)
        if run is None:
            self.discarded["entities_limit"] += 1
            return
        if uid is not None and run.uid not in (None, uid):
            self.discarded["foreign_user"] += 1
            return
        found = self._process_of(run, report, tick_ms)
        if found is None:
            self.discarded["parts_limit"] += 1
            return
        key, process = found
        run.uid = uid if run.uid is None else run.uid
        self.changed = self.changed or report.counts != process.counted
        process.heard, process.pid, process.local_rank = now, pid, report.local_rank
        self._fold(run, key, process, report)
        self._learn(run, report, uid)
        if key == run.lead:
            self._follow(run, report, now, tick_ms)
        for incident in report.incidents:
            self._note(run, key, incident, now, tick_ms)

    def gather(self, now: float, tick_ms: int, into: Gathered) -> None:
        """Add the rows of every run that has a process, and what happened since the last call.

        Counts that were not told before also stand in `begun`, as 0: for the instant before, so that all is increase.
        """
        self.begun = Gathered()
        for run in list(self._runs.values()):
            self._look_for_lost(run, now, tick_ms)
            if run.processes:
                self._watch_stall(run, now, tick_ms)
                told = self._told_of(run, now)
                self._begin(run, told)
                gather(told, run.entity, self._catalog, into)
                into.attributes[run.entity, ""] = run.attributes
            self._let_go(run)
        into.events += [(EntityKind.TRAINING, event) for event in self._events]
        into.infos += [(EntityKind.TRAINING, info) for info in self._facts.take(tick_ms)]
        self._events = []

    def kept(self) -> dict[str, Any]:
        """Return what must outlive the agent, as JSON."""
        return {
            run.entity: {
                "measured": kept(run.measured),
                "wide": {key: kept(measured) for key, measured in run.wide.items()},
                "processes": {key: [p.start, p.counted] for key, p in run.processes.items()},
            }
            for run in self._runs.values()
        }

    def restore(self, said: Mapping[str, Any], now: float) -> None:
        """Take up what `kept` gave; processes that do not report again are let go of in time.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: It is not what `kept` gives.
        """
        runs: dict[str, JobRun] = {}
        for entity, one in list(said.items())[: self._runs_maximum]:
            run = runs[entity] = JobRun(entity, restored(one["measured"]), touched=now)
            run.wide = {key: restored(measured) for key, measured in one["wide"].items()}
            for key, (start, counted) in one["processes"].items():
                run.processes[key] = Process(int(start), dict(counted), heard=now)
                run.wide.setdefault(key, Measured())
            run.counted = {count for measured in (run.measured, *run.wide.values()) for count in measured.counts}
            run.lead_here = "0" in run.processes or not all(key.isdecimal() for key in run.processes)
        self._runs = runs

    def _run_of(self, report: Report, now: float) -> JobRun | None:
        entity = f"{report.job}/{report.run}" if report.run else report.job
        run = self._runs.get(entity)
        if run is None:
            if len(self._runs) >= self._runs_maximum and not self._forget_one():
                return None
            run = self._runs[entity] = JobRun(entity)
            start_ms = report.start // 1_000_000
            run.measured.start_ms = start_ms if start_ms >= self._known_since_ms else 0
            self.changed = True
        run.touched = now
        return run

    def _forget_one(self) -> bool:
        """Make room: the run without processes that was heard of least recently goes."""
        idle = [run for run in self._runs.values() if not run.processes]
        if not idle:
            return False
        del self._runs[min(idle, key=lambda run: run.touched).entity]
        return True

    def _process_of(self, run: JobRun, report: Report, tick_ms: int) -> tuple[str, Process] | None:
        """Return the process that reports, made known if it is new."""
        key = process_key(run, report)
        process = run.processes.get(key)
        if process is not None and process.start == report.start:
            return key, process
        if process is None and sum(len(other.processes) for other in self._runs.values()) >= PROCESSES_MAXIMUM:
            return None
        again = process is not None or key in run.wide
        process = run.processes[key] = Process(report.start)
        run.wide.setdefault(key, Measured()).count(("steps", ""), 0)
        if report.start // 1_000_000 < self._known_since_ms:
            process.counted = dict(report.counts)
            for text in report.counts:
                self._add(run, key, text, 0)
        self.changed = True
        if key == run.lead and (again or report.restarts):
            self._restart(run, key, report, tick_ms)
        return key, process

    def _restart(self, run: JobRun, key: str, report: Report, tick_ms: int) -> None:
        code = RESTART_LAUNCHER if report.restarts else RESTART_PROCESS
        reason = "launcher" if report.restarts else "new_process"
        facts = {"reason": reason, "rank": key, "node": self._node, "restarts": str(report.restarts or 0)}
        self._event("training_restart", run, _time_ms(report.start // 1_000_000, tick_ms), code, facts)

    def _fold(self, run: JobRun, key: str, process: Process, report: Report) -> None:
        """Add what was counted since the last report."""
        counts = {**report.counts, "lost": report.lost}
        for text, value in counts.items():
            increase = value - process.counted.get(text, 0)
            is_new = text not in process.counted
            if (increase > 0 or is_new) and not self._add(run, key, text, max(increase, 0)):
                self.discarded["unknown_metric"] += 1
        process.counted.update(counts)
        process.gauges = report.gauges
        if report.broken:
            self.discarded["parse"] += max(report.broken - int(process.counted.get("broken", 0)), 0)
            process.counted["broken"] = report.broken

    def _add(self, run: JobRun, teller: str, text: str, increase: float) -> bool:
        name, _, rest = text.partition("|")
        label, _, bucket = rest.rpartition("|") if name in DURATIONS else (rest, "", "")
        into = run.wide[teller] if name in JOB_WIDE else run.measured
        if name in COUNTS:
            key = known_key(self._catalog, name, label, into.counts)
            if key is not None:
                into.count(key, increase)
            return key is not None
        if name not in DURATIONS:
            return False
        if name == "step_seconds":
            label = "first" if rank_order(teller)[1] <= 0 else "other"
        return self._spread(into, (name, label), bucket, increase)

    def _spread(self, into: Measured, key: Key, bucket: str, increase: float) -> bool:
        known = known_key(self._catalog, *key, into.durations)
        if known is None:
            return False
        spread = into.spread(known)
        if bucket == "s":
            spread.sum += increase
        elif bucket.isdecimal() and int(bucket) < len(spread.buckets):
            spread.buckets[int(bucket)] = min(spread.buckets[int(bucket)] + int(increase), BUCKET_MAXIMUM)
        else:
            return False
        return True

    def _learn(self, run: JobRun, report: Report, uid: int | None) -> None:
        if report.rank == 0 or report.rank is None or (report.world_size or 1) == 1:
            run.lead_here = True
        elif "0" not in run.processes:
            run.lead_here = False
        run.world_size = report.world_size or run.world_size
        run.steps_planned = report.steps_planned or run.steps_planned
        run.attributes = tuple(
            (name, value) for name, value in (("framework", report.framework), ("model_id", report.model)) if value
        )
        facts = {
            "framework": report.framework,
            "model": report.model,
            "world_size": str(report.world_size or ""),
            "user_id": "" if uid is None else str(uid),
        }
        known = {name: value for name, value in facts.items() if value}
        self._facts.learn("training_run_info", run.entity, known, named=True)

    def _follow(self, run: JobRun, report: Report, now: float, tick_ms: int) -> None:
        step = report.gauges.get("step")
        if step is not None and 0 <= step < 2**53:
            run.pace.see(now, int(step))
        loss = report.gauges.get("loss")
        code = None if loss is None else run.watch.see(loss)
        if code is not None:
            self._anomaly(run, code, now, tick_ms, {"loss": f"{loss:.6g}", "step": _number_text(step)})

    def _note(self, run: JobRun, key: str, incident: Incident, now: float, tick_ms: int) -> None:
        time_ms = _time_ms(incident.time_ms, tick_ms)
        if incident.kind == "end":
            process = run.processes[key]
            process.done = True
            outcome = incident.facts.get("outcome", "ok")
            failed = outcome != "ok"
            if failed or key == run.lead:
                facts = {"rank": key, "node": self._node, "outcome": outcome}
                self._event("training_run_end", run, time_ms, END_FAILED if failed else END_OK, facts)
        elif incident.kind in ("loss_nan", "loss_inf"):
            code = losses.NAN if incident.kind == "loss_nan" else losses.INFINITE
            self._anomaly(run, code, now, time_ms, {"rank": key, "step": incident.facts.get("step", "")})
        else:
            self.discarded["unknown_metric"] += 1

    def _anomaly(self, run: JobRun, code: int, now: float, time_ms: int, facts: dict[str, str]) -> None:
        before = run.told.get(code)
        if before is None or now - before >= ANOMALY_PAUSE_SECONDS:
            run.told[code] = now
            self._event("training_anomaly", run, time_ms, code, facts | {"node": self._node})

    def _watch_stall(self, run: JobRun, now: float, tick_ms: int) -> None:
        """Tell that a run stands still, and later until when it did."""
        age = run.pace.age_seconds(now)
        if not run.lead_here or age is None:
            return
        still = run.pace.is_still(now)
        if still and run.stalled_since_ms is None:
            run.stalled_since_ms = tick_ms - int(age * 1000)
            self._event("training_anomaly", run, run.stalled_since_ms, losses.STALL, {"node": self._node})
        elif not still and run.stalled_since_ms is not None:
            ended = Event(
                "training_anomaly",
                run.entity,
                "",
                run.stalled_since_ms,
                losses.STALL,
                end_ms=tick_ms - int(age * 1000),
                version=2,
                attributes={"node": self._node},
            )
            self._events.append(ended)
            run.stalled_since_ms = None

    def _look_for_lost(self, run: JobRun, now: float, tick_ms: int) -> None:
        for key, process in run.processes.items():
            silent = now - process.heard
            if process.done or silent < SILENT_SECONDS:
                continue
            if process.pid and not self._alive(process.pid):
                process.done = True
                facts = {"rank": key, "node": self._node, "outcome": "vanished"}
                self._event("training_run_end", run, tick_ms, END_VANISHED, facts)
            elif silent > FORGET_SECONDS:
                process.done = True

    def _begin(self, run: JobRun, told: Measured) -> None:
        news = told.counts.keys() - run.counted
        if news:
            run.counted |= news
            gather(Measured(counts=dict.fromkeys(news, 0.0)), run.entity, self._catalog, self.begun)
            self.begun.attributes[run.entity, ""] = run.attributes

    def _let_go(self, run: JobRun) -> None:
        for key in [key for key, process in run.processes.items() if process.done]:
            del run.processes[key]
            self.changed = True
        if not run.processes:
            run.pace, run.watch, run.stalled_since_ms, run.uid = Pace(), losses.LossWatch(), None, None

    def _told_of(self, run: JobRun, now: float) -> Measured:
        """Return what is told of a run now: counts for ever, last values while steps are done."""
        told = Measured(dict(run.measured.counts), run.measured.durations, dict(own_gauges(run)), run.measured.start_ms)
        told.gauges |= run.pace.gauges(now, None)
        lag = lag_seconds(run)
        if lag is not None:
            told.gauges["rank_step_lag_seconds", ""] = lag
        if run.lead_here and run.lead is not None:
            told.counts |= run.wide.get(run.lead, Measured()).counts
            told.gauges |= self._lead_gauges(run, now)
        return told

    def _lead_gauges(self, run: JobRun, now: float) -> dict[Key, float]:
        said = {} if run.pace.is_still(now) else run.processes[run.lead or ""].gauges
        gauges: dict[Key, float] = {}
        for text, value in said.items():
            name, _, label = text.partition("|")
            key = known_key(self._catalog, name, label, gauges) if name in GAUGES and name not in OWN_GAUGES else None
            if key is not None:
                gauges[key] = value
        for name, known in (("world_size", run.world_size), ("steps_planned", run.steps_planned)):
            if known is not None:
                gauges[name, ""] = known
        return gauges | run.pace.gauges(now, run.steps_planned)

    def _event(self, metric: str, run: JobRun, time_ms: int, code: int, facts: Mapping[str, str]) -> None:
        self._events.append(Event(metric, run.entity, "", time_ms, code, attributes=dict(facts)))


def _time_ms(told_ms: int, tick_ms: int) -> int:
    """Return the time that a job told, or that of the tick where it cannot be."""
    return told_ms if tick_ms - TIME_SLACK_MS < told_ms <= tick_ms + 1000 else tick_ms


def _number_text(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
