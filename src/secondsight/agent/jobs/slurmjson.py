"""Turn Slurm's JSON into jobs: slurmrestd's answer to `/slurm/v*/jobs`, and `squeue --json`, of all their versions.

Numbers are plain up to 0.0.38 and objects from 0.0.39 on; a state is a text, or a list of a state and its flags.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from secondsight.agent.jobs.gres import held_gpus, hosts_of, node_indexes
from secondsight.agent.jobs.slurmjob import JobState, SlurmJob, number_of, state_of
from secondsight.errors import Rejected


def jobs_of_json(text: str | bytes) -> list[SlurmJob]:
    """Return the jobs of a document; items of another form are left out.

    Raises:
        Rejected: `bad_slurm_json`: the text is something else.
    """
    try:
        items = json.loads(text)["jobs"] or []
        return [_job(item) for item in items if isinstance(item, dict) and number_of(item.get("job_id")) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Rejected("bad_slurm_json", f"Slurm's JSON cannot be read: {error!r}") from error


def _job(item: Mapping[str, Any]) -> SlurmJob:
    state, _ = state_of(_state_text(item.get("job_state")))
    nodes = hosts_of(_text(item.get("nodes")))
    code, signal = _exit(item.get("exit_code"))
    started = state is not JobState.PENDING
    tres = _text(item.get("tres_alloc_str"))
    array, task = number_of(item.get("array_job_id")), number_of(item.get("array_task_id"))
    user = number_of(item.get("user_id"))
    return SlurmJob(
        job_id=str(number_of(item.get("job_id"))),
        name=_text(item.get("name")),
        array_id=f"{array}_{task}" if array and task is not None else "",
        user_id="" if user is None else str(user),
        account=_text(item.get("account")),
        partition=_text(item.get("partition")),
        state=state,
        nodes=nodes,
        gpus=held_gpus(tres) if started else None,
        node_gpus=_node_gpus(nodes, item.get("gres_detail")),
        eligible_ms=_ms(item.get("eligible_time")),
        start_ms=_ms(item.get("start_time")) if started else None,
        end_ms=_ms(item.get("end_time")) if state > JobState.RUNNING else None,
        exit_code=code,
        signal=signal,
        restarts=number_of(item.get("restart_cnt")),
    )


def _state_text(value: Any) -> str:
    """Return the state; of a list, the flag COMPLETING says less than the state beside it."""
    if isinstance(value, list):
        words = [str(word) for word in value]
        return next((word for word in words if word != "COMPLETING"), words[0] if words else "")
    return _text(value)


def _exit(value: Any) -> tuple[int | None, int | None]:
    """Return exit code and signal: of old versions from the wait status, of newer ones as they say."""
    if not isinstance(value, dict):
        status = number_of(value)
        return (None, None) if status is None else (status >> 8 & 0xFF, status & 0x7F)
    signal = value.get("signal")
    number = number_of(signal.get("id") if isinstance(signal, dict) and "id" in signal else signal)
    code = number_of(value.get("return_code")) if "return_code" in value else number_of(value)
    return code, number or 0


def _node_gpus(nodes: Sequence[str], detail: Any) -> dict[str, tuple[int, ...]]:
    texts = detail if isinstance(detail, list) else []
    found = {}
    for host, text in zip(nodes, texts, strict=False):
        indexes = node_indexes(_text(text))
        if indexes:
            found[host] = indexes
    return found


def _ms(value: Any) -> int | None:
    seconds = number_of(value)
    return seconds * 1000 if seconds else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
