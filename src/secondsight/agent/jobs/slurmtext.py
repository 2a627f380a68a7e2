"""Turn what `scontrol -d show job`, `squeue` and `sinfo` print into jobs and counts. Pure functions of text.

A line that cannot be read is counted and costs itself alone.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from secondsight.agent.jobs.gres import DIGITS_MAXIMUM, gres_of, held_gpus, hosts_of, node_indexes
from secondsight.agent.jobs.slurmjob import JobState, SlurmJob, duration_seconds, exit_of, state_of, time_ms
from secondsight.agent.jobs.slurmjson import jobs_of_json
from secondsight.errors import Rejected

SQUEUE_FIELDS = ("JobID", "Account", "UserID", "Partition", "State", "NumNodes", "NumCPUs", "tres-alloc")
"""Columns that are asked of squeue, in this order, with `|` between them."""
TO_END_OF_LINE = frozenset(
    {"Command", "Comment", "AdminComment", "SystemComment", "WorkDir", "StdErr", "StdIn", "StdOut"}
)
"""Keys of scontrol whose value runs to the end of its line; they are personal, and left out."""

OF_NODES = frozenset({"Nodes", "CPU_IDs", "Mem", "GRES", "GRES_IDX"})
"""Keys of what a job has of some nodes; of each kind of node there are such."""

AFTER_NAME = " UserId="
"""What stands behind a name, which may hold anything, where scontrol prints a job on one line."""

_STATE_MARKS = "*~#!%$@^+-"
_COUNTED = re.compile(r"\s*(\d{1,9})\s*((?:\(null\)|gpu[:(])\S*)\s*").fullmatch
_KEY = re.compile(r"(?:^|\s)([A-Za-z][\w/.*:-]*)=")


@dataclass(slots=True)
class Jobs:
    """Jobs of one output, and how many items of it could not be read, by reason."""

    jobs: list[SlurmJob] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one node, or of each of several alike.

    Attributes:
        state: Slurm's long word in lower case, without the marks behind it.
        total, used: Type -> GPUs.
    """

    nodes: int
    state: str
    total: Mapping[str, int]
    used: Mapping[str, int]


def scontrol_jobs(text: str, zone: tzinfo) -> list[SlurmJob]:
    """Return the jobs of `scontrol -d show job`."""
    blocks = re.split(r"\n(?=JobId=)", text.strip())
    return [_scontrol_job(block, zone) for block in blocks if block.startswith("JobId=")]


def squeue_jobs(text: str, fields: Sequence[str] = SQUEUE_FIELDS) -> Jobs:
    """Return the jobs of squeue: columns with `|` between them, one JSON object a line, or one JSON document.

    What a job that waits has asked for is not what it has: it has no GPUs.
    """
    found = Jobs()
    if re.match(r'\s*\{\s*("|\n)', text) and '"jobs"' in text:
        try:
            found.jobs = jobs_of_json(text)
        except Rejected:
            found.refused["json"] += 1
        return found
    for line in text.splitlines():
        if not line.strip():
            continue
        job = _json_line(line) if line.lstrip().startswith("{") else _columns(line, fields)
        if job is None:
            found.refused["line"] += 1
        else:
            found.jobs.append(job)
    return found


def sinfo_gpus(text: str) -> list[NodeGpus]:
    """Return the GPUs of nodes by `sinfo -h -N -O "NodeList:|,StateLong:|,Gres:|,GresUsed:|"`, or by counted lines.

    The first column is a node, which is listed once for each of its partitions and counts once, or a number of nodes,
    which may stand alone before the resources.
    """
    found: list[NodeGpus] = []
    seen: set[str] = set()
    for line in text.splitlines():
        words = [word.strip() for word in line.split("|")] if "|" in line else line.split()
        alone = _COUNTED(line)
        if alone:
            found.append(NodeGpus(int(alone[1]), "", _by_type(alone[2]), {}))
            continue
        if len(words) < 3 or words[0] in seen:
            continue
        counted = words[0].isdecimal() and len(words[0]) <= DIGITS_MAXIMUM
        seen |= set() if counted else {words[0]}
        used = words[3] if len(words) > 3 else None
        state = words[1].rstrip(_STATE_MARKS).lower()
        found.append(NodeGpus(int(words[0]) if counted else 1, state, _by_type(words[2]), _by_type(used)))
    return found


def _scontrol_job(block: str, zone: tzinfo) -> SlurmJob:
    fields: dict[str, str] = {}
    node_lines: list[dict[str, str]] = []
    for line in block.splitlines():
        of_nodes = fields
        for key, value in _pairs(line.strip()):
            if key == "Nodes":
                of_nodes = {}
                node_lines.append(of_nodes)
            (of_nodes if key in OF_NODES else fields)[key] = value
    state, by = state_of(fields.get("JobState", ""))
    code, signal = exit_of(fields.get("ExitCode", ""))
    has_gpus = state is not JobState.PENDING
    tres = fields.get("AllocTRES") or fields.get("TRES", "")
    array = fields.get("ArrayJobId", "")
    user, restarts = re.search(r"\((\d+)\)", fields.get("UserId", "")), fields.get("Restarts", "")
    return SlurmJob(
        job_id=fields.get("JobId", ""),
        name=fields.get("JobName", ""),
        array_id=f"{array}_{fields.get('ArrayTaskId', '')}" if array else "",
        user_id=user[1] if user else "",
        account=_known(fields.get("Account", "")),
        partition=_known(fields.get("Partition", "")),
        state=state,
        nodes=hosts_of(fields.get("NodeList", "")),
        gpus=held_gpus(tres) if has_gpus else None,
        node_gpus=_node_gpus(node_lines),
        eligible_ms=time_ms(fields.get("EligibleTime", ""), zone),
        start_ms=time_ms(fields.get("StartTime", ""), zone) if has_gpus else None,
        end_ms=None if state <= JobState.RUNNING else time_ms(fields.get("EndTime", ""), zone),
        elapsed_seconds=duration_seconds(fields.get("RunTime", "")),
        exit_code=code,
        signal=signal,
        cancelled_by=by,
        restarts=int(restarts) if restarts.isdecimal() and len(restarts) <= DIGITS_MAXIMUM else None,
    )


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    """Give the pairs of a line of scontrol; a value goes on until the next key, a job's name until that of its user."""
    keys = list(_KEY.finditer(line))
    read_to = 0
    for number, key in enumerate(keys):
        if key[1] in TO_END_OF_LINE:
            return
        if key.start() < read_to:
            continue
        read_to = keys[number + 1].start() if number + 1 < len(keys) else len(line)
        if key[1] == "JobName":
            read_to = line.find(AFTER_NAME, key.end()) if AFTER_NAME in line[key.end() :] else len(line)
        yield key[1], line[key.end() : read_to].strip()


def _by_type(text: str | None) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in gres_of(text or ""):
        if each.name == "gpu":
            found[each.type] += each.count
    return dict(found)


def _node_gpus(lines: Sequence[Mapping[str, str]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for line in lines:
        indexes = node_indexes(line.get("GRES", "") or line.get("GRES_IDX", ""))
        for host in hosts_of(line["Nodes"]):
            found[host] = tuple(dict.fromkeys((*found.get(host, ()), *indexes)))
    return {host: indexes for host, indexes in found.items() if indexes}


def _columns(line: str, fields: Sequence[str]) -> SlurmJob | None:
    words = [word.strip() for word in line.split("|")]
    if len(words) not in (len(fields), len(fields) + 1) or not words[0][:1].isdecimal():
        return None
    named = dict(zip(fields, words, strict=False))
    return _queued(named["JobID"], named["State"], named.get("tres-alloc", ""), named)


def _json_line(line: str) -> SlurmJob | None:
    """Return the job of a line that squeue was made to print as JSON; its texts are not escaped, so many are none."""
    try:
        item = json.loads(line)
    except ValueError:
        return None
    if not isinstance(item, dict) or "id" not in item or "state" not in item:
        return None
    named = {"Account": str(item.get("a", "")), "Partition": str(item.get("p", ""))}
    return _queued(str(item["id"]), str(item["state"]), str(item.get("tres", "")), named)


def _queued(job_id: str, state_text: str, tres: str, named: Mapping[str, Any]) -> SlurmJob:
    state, _ = state_of(state_text)
    user = str(named.get("UserID", ""))
    return SlurmJob(
        job_id,
        user_id=user if user.isdecimal() else "",
        account=_known(str(named.get("Account", ""))),
        partition=_known(str(named.get("Partition", ""))),
        state=state,
        gpus=held_gpus(tres) if state is JobState.RUNNING else None,
    )


def _known(text: str) -> str:
    return "" if text in ("(null)", "N/A", "None") else text
