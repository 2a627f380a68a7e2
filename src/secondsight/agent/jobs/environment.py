"""Turn the environment of a job's processes, prolog or epilog into whose job it is and which GPUs it has.

Of a process only the variables named here are kept; names of users and command lines are never read.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.jobs.devices import NUMBER, Gpu, device_of, numbered
from secondsight.agent.jobs.gres import indexes_of
from secondsight.mapping.allocation import Owner
from secondsight.mapping.cells import Key

VARIABLES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ROCR_VISIBLE_DEVICES",
        "SLURMD_NODENAME",
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_CLUSTER_NAME",
        "SLURM_JOBID",
        "SLURM_JOB_ACCOUNT",
        "SLURM_JOB_GPUS",
        "SLURM_JOB_ID",
        "SLURM_JOB_NAME",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_START_TIME",
        "SLURM_JOB_UID",
        "SLURM_SHARDS_ON_NODE",
        "SLURM_STEP_GPUS",
    }
)
VALUE_CHARACTERS = 4096
ENVIRONMENT_MAXIMUM_BYTES = 4 << 20
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_NO_DEVICES = frozenset({"", "NoDevFiles", "-1", "void", "none"})

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Placed:
    """The GPUs of a job.

    Attributes:
        reason: Why some of them cannot be told, or "".
    """

    places: tuple[Key, ...] = ()
    reason: str = ""


def kept(pairs: Mapping[str, str], more: str = "") -> dict[str, str]:
    """Return the variables that are used, of any; `more` names a further one."""
    return {
        name: text[:VALUE_CHARACTERS] for name, text in pairs.items() if name in VARIABLES or (more and name == more)
    }


def process_environment(root: Path, pid: int, more: str = "") -> dict[str, str]:
    """Return what is used of a process's environment.

    Raises:
        OSError: It is gone, or this agent may not look.
    """
    with (root / "proc" / str(pid) / "environ").open("rb") as file:
        data = file.read(ENVIRONMENT_MAXIMUM_BYTES)
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return kept({os.fsdecode(name): value.decode(errors="replace") for name, _, value in pairs}, more)


def process_start_ms(root: Path, pid: int, boot_seconds: int | None) -> int | None:
    """Return when a process was started, epoch ms to about a second, or None where that is not to be had."""
    if boot_seconds is None:
        return None
    try:
        fields = (root / "proc" / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return boot_seconds * 1000 + int(fields[19]) * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def job_id_of(environment: Environment) -> str:
    """Return the id of the job, or ""."""
    found = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", "")
    return found if found.isascii() and found.isdecimal() else ""


def owner_of(environment: Environment, teams: Mapping[str, str], model_variable: str, user_id: str = "") -> Owner:
    """Return whose job it is."""
    account = environment.get("SLURM_JOB_ACCOUNT", "")
    user = environment.get("SLURM_JOB_UID", "") or user_id
    return Owner(
        job_id=job_id_of(environment),
        workload_id=environment.get("SLURM_JOB_NAME", ""),
        owner_team=teams.get(account, account),
        model_id=environment.get(model_variable, "") if model_variable else "",
        user_id=user if user.isdecimal() else "",
    )


def start_of(environment: Environment) -> int | None:
    """Return when the job started, epoch ms, where Slurm told its processes."""
    text = environment.get("SLURM_JOB_START_TIME", "")
    return int(text) * 1000 if text.isdecimal() and 0 < len(text) <= 11 else None


def is_shard(environment: Environment) -> bool:
    """Tell whether the job has shares of GPUs, which others use beside it."""
    return environment.get("SLURM_SHARDS_ON_NODE", "") not in ("", "0")


def placed(
    environments: Sequence[Environment], minors: Sequence[int] | None, gpus: Sequence[Gpu], *, by: str = "minor"
) -> Placed:
    """Return the GPUs of a job, by the best witness of those there are.

    MIG devices by name; else the devices that the kernel lets it open; else Slurm's numbers of the job's GPUs, unless
    as many UUIDs stand beside them; else its steps' numbers, or UUIDs. Numbers that count from 0 inside the job's own
    devices tell nothing, unless they are as many as the host has.

    Args:
        environments: Of its processes.
        minors: Device minors that it may open, or None where that is not limited.
        gpus: The GPUs that are present.
        by: What Slurm's numbers mean, `minor` or `index`.
    """
    visible = _named(environments, *_VISIBLE)
    slices = [name for name in visible if name.lower().startswith("mig-")]
    if slices:
        return _by_name(slices, gpus, by)
    if minors is not None:
        return _by_name([str(minor) for minor in minors], gpus, "minor")
    uuids = [name for name in visible if not NUMBER(name)]
    told = _named(environments, "SLURM_JOB_GPUS")
    if not told or len(uuids) == len(told):
        told = uuids or _named(environments, "SLURM_STEP_GPUS")
    return _by_name(told, gpus, by) if told else _all_or_unknown(visible, gpus)


def _all_or_unknown(visible: Sequence[str], gpus: Sequence[Gpu]) -> Placed:
    if visible and len(visible) == len(gpus):
        return Placed(tuple((gpu.uuid, "") for gpu in gpus))
    return Placed(reason="gpu_number" if visible else "")


def _named(environments: Sequence[Environment], *names: str) -> list[str]:
    """Return the devices that any process names in some variables, each once, in order."""
    found: list[str] = []
    for environment in environments:
        for name in names:
            text = environment.get(name, "").strip()
            if text in _NO_DEVICES:
                continue
            for item in text.split(","):
                numbers = indexes_of(item)
                found += map(str, numbers) if numbers else [item.strip()]
    return [name for name in dict.fromkeys(found) if name not in _NO_DEVICES]


def _by_name(names: Sequence[str], gpus: Sequence[Gpu], by: str) -> Placed:
    places: list[Key] = []
    reason = ""
    for name in names:
        if NUMBER(name):
            gpu = numbered(int(name), gpus, by=by)
            place = None if gpu is None else (gpu.uuid, "")
        else:
            device = device_of(name, gpus)
            place = None if device is None else device.place
        if place is None:
            reason = "gpu_id"
        else:
            places.append(place)
    return Placed(tuple(dict.fromkeys(places)), reason)
