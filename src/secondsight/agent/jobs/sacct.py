"""Turn what `sacct -P` prints into jobs, and jobs into events and facts of the catalogue.

The same job read twice gives the same events, so windows may overlap. How long a job ran is Slurm's own account:
stamps of local time are an hour off once a year.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo

from secondsight.agent.jobs.gres import DIGITS_MAXIMUM, gres_count, held_gpus, hosts_of
from secondsight.agent.jobs.slurmjob import JobState, SlurmJob, duration_seconds, exit_of, state_of, time_ms
from secondsight.mapping.cells import plain_text
from secondsight.wire.content import Event, Info

COLUMNS = (
    "JobIDRaw",
    "JobID",
    "UID",
    "Account",
    "Partition",
    "State",
    "ExitCode",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "AllocTRES",
    "NodeList",
    "JobName",
)
"""What sacct is asked for; the name stands last, as it may hold anything."""
TEXT_CHARACTERS = 400
NODES_NAMED = 64
HOUR_MS = 3_600_000


@dataclass(slots=True)
class Accounts:
    """Jobs of one pull, and lines that could not be read, by reason."""

    jobs: list[SlurmJob] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def sacct_jobs(text: str, zone: tzinfo) -> Accounts:
    """Return the jobs of sacct's output with its header; steps of jobs are left out.

    Args:
        text: Lines with `|` between columns; the first line names them.
        zone: Of stamps that are no epoch seconds.
    """
    found = Accounts()
    lines = [line for line in text.splitlines() if line.strip()]
    header = lines[0].split("|") if lines else []
    if not {"JobID", "JobIDRaw"} & set(header) or "State" not in header:
        found.refused["header"] += len(lines) or 1
        return found
    for line in lines[1:]:
        fields = _fields(line, header)
        if fields is None:
            found.refused["line"] += 1
        elif "." not in (fields.get("JobID") or fields.get("JobIDRaw", "")):
            found.jobs.append(_job(fields, zone))
    return found


def exit_event(job: SlurmJob, teams: Mapping[str, str]) -> Event | None:
    """Return the event that says how a job ended, or None while it has not, or nobody knows when."""
    end_ms = job.end_ms
    if end_ms is None and job.state > JobState.RUNNING and job.state is not JobState.UNKNOWN:
        known = job.start_ms is not None and job.elapsed_seconds is not None
        end_ms = (job.start_ms or 0) + 1000 * (job.elapsed_seconds or 0) if known else None
    if end_ms is None:
        return None
    facts = facts_of(job, teams) | {
        "id": f"{job.job_id}:{job.start_ms or 0}",
        "reason": job.word,
        "signal": "" if job.signal is None else str(job.signal),
        "cancelled_by": job.cancelled_by,
        "elapsed_seconds": "" if job.elapsed_seconds is None else str(job.elapsed_seconds),
        "gpu_seconds": "" if job.gpu_seconds is None else str(job.gpu_seconds),
        "end": "exact" if job.end_ms is not None else "estimate",
    }
    attributes = {name: text for name, text in facts.items() if text}
    return Event("job_exit", job.job_id, "", end_ms, job.exit_code or 0, attributes=attributes)


def job_info(job: SlurmJob, teams: Mapping[str, str]) -> Info | None:
    """Return what a job is, as of its start, or None before that."""
    if job.start_ms is None or job.state is JobState.PENDING:
        return None
    attributes = {name: text for name, text in facts_of(job, teams).items() if text}
    return Info("job_info", job.job_id, "", job.start_ms, attributes)


def facts_of(job: SlurmJob, teams: Mapping[str, str]) -> dict[str, str]:
    """Return facts of a job as texts; "" where they are not known."""
    nodes = ",".join(job.nodes[:NODES_NAMED])
    facts = {
        "scheduler": "slurm",
        "job_id": job.job_id,
        "array_id": job.array_id,
        "name": job.name,
        "user_id": job.user_id,
        "account": job.account,
        "owner_team": teams.get(job.account, job.account),
        "partition": job.partition,
        "gpus": "" if job.gpus is None else str(job.gpus),
        "nodes": nodes,
        "node_count": str(len(job.nodes) or ""),
        "start_ms": "" if job.start_ms is None else str(job.start_ms),
    }
    return {name: plain_text(text, TEXT_CHARACTERS) for name, text in facts.items()}


def _fields(line: str, header: Sequence[str]) -> dict[str, str] | None:
    """Return the columns of a line; a name that holds the delimiter takes what is over."""
    words = line.split("|")
    over = len(words) - len(header)
    if over > 0 and "JobName" in header:
        place = header.index("JobName")
        words[place : place + over + 1] = ["|".join(words[place : place + over + 1])]
    return dict(zip(header, words, strict=True)) if len(words) == len(header) and words[0] else None


def _job(fields: Mapping[str, str], zone: tzinfo) -> SlurmJob:
    state, by = state_of(fields["State"])
    code, signal = exit_of(fields.get("ExitCode", ""))
    elapsed = fields.get("ElapsedRaw", "")
    is_raw = elapsed.isdecimal() and len(elapsed) <= DIGITS_MAXIMUM
    elapsed_seconds = int(elapsed) if is_raw else duration_seconds(fields.get("Elapsed", ""))
    start_ms = time_ms(fields.get("Start", ""), zone)
    shown, raw, user = fields.get("JobID", ""), fields.get("JobIDRaw", ""), fields.get("UID", "")
    has_run = bool(elapsed_seconds) or (start_ms is not None and state is not JobState.PENDING)
    return SlurmJob(
        job_id=raw or shown,
        name=fields.get("JobName", ""),
        array_id=shown if "_" in shown else "",
        user_id=user if user.isdecimal() else "",
        account=fields.get("Account", ""),
        partition=fields.get("Partition", ""),
        state=state,
        word=fields["State"].partition(" ")[0].lower(),
        nodes=hosts_of(fields.get("NodeList", "")),
        gpus=_gpus(fields) if has_run else None,
        eligible_ms=time_ms(fields.get("Eligible", ""), zone),
        start_ms=start_ms,
        end_ms=_end_ms(fields.get("End", ""), zone, start_ms, elapsed_seconds),
        elapsed_seconds=elapsed_seconds,
        exit_code=code,
        signal=signal,
        cancelled_by=by,
    )


def _gpus(fields: Mapping[str, str]) -> int | None:
    """Return the GPUs that a job had; versions before 20.11 tell them as generic resources."""
    tres, gres = fields.get("AllocTRES", ""), fields.get("AllocGRES", "")
    return held_gpus(tres) if tres or not gres else gres_count(gres)


def _end_ms(text: str, zone: tzinfo, start_ms: int | None, elapsed_seconds: int | None) -> int | None:
    """Return the end; of a local time that stands twice, the one that the time it ran agrees with."""
    end_ms = time_ms(text, zone)
    if end_ms is None or start_ms is None or elapsed_seconds is None or text.strip().isdecimal():
        return end_ms
    wanted_ms = start_ms + 1000 * elapsed_seconds
    return wanted_ms if abs(end_ms - wanted_ms) == HOUR_MS else end_ms
