"""Turn (seed, group of hosts, second) into the job that runs there and the phase it is in.

The schedule of a group is a pure function of the seed and the day, so any second of any run can be asked for in any
order and comes out the same.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

DAY_SECONDS = 86_400
LOAD_SECONDS = 45
WARM_UP_SECONDS = 25
CHECKPOINT_EVERY_SECONDS = 900
CHECKPOINT_SECONDS = 18
MEMORY_STEPS = 6

TEAMS: tuple[str, ...] = ("perception", "language", "ranking", "research", "speech")
MODELS: tuple[str, ...] = ("tern-13b", "heron-70b", "wren-7b", "osprey-moe", "swift-1b")


class Workload(StrEnum):
    """What a job does with its GPUs."""

    TRAINING = "training"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True)
class Job:
    """One job of one group of hosts, [start_seconds, end_seconds) of epoch time."""

    job_id: str
    workload_id: str
    owner_team: str
    model_id: str
    workload: Workload
    start_seconds: int
    end_seconds: int
    activity: float
    memory_ratio: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a job asks of each of its GPUs at one second.

    Attributes:
        activity: Share of the SMs kept busy, 0..1.
        tensor_share: Share of that activity in tensor cores.
        memory_ratio: Memory held, share of the board's.
        reading: Share of the PCIe bandwidth used to bring data in.
        communicating: Share of the NVLink bandwidth used.
        writing: Share of the PCIe bandwidth used to bring data out (checkpoints).
    """

    activity: float
    tensor_share: float
    memory_ratio: float
    reading: float
    communicating: float
    writing: float


IDLE = Load(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def job_at(seed: int, group: int, second: int) -> Job | None:
    """Return the job that runs on a group at an epoch second, or None while the group is free."""
    for job in _jobs_of_day(seed, group, second // DAY_SECONDS):
        if job.start_seconds <= second < job.end_seconds:
            return job
    return None


def load_of(job: Job | None, second: int) -> Load:
    """Return what the job asks for at an epoch second within its life; nothing for None."""
    if job is None:
        return IDLE
    age = second - job.start_seconds
    if age < LOAD_SECONDS:
        held = job.memory_ratio * (1 + age * MEMORY_STEPS // LOAD_SECONDS) / MEMORY_STEPS
        return Load(0.02, 0.1, held, 0.35, 0.01, 0.0)
    if age < LOAD_SECONDS + WARM_UP_SECONDS:
        return Load(0.35, 0.5, job.memory_ratio, 0.05, 0.1, 0.0)
    return _training(job, age) if job.workload is Workload.TRAINING else _serving(job, second)


def _training(job: Job, age: int) -> Load:
    into_checkpoint = age % CHECKPOINT_EVERY_SECONDS
    if age > CHECKPOINT_EVERY_SECONDS and into_checkpoint < CHECKPOINT_SECONDS:
        return Load(0.06, 0.2, job.memory_ratio, 0.01, 0.02, 0.4)
    if _fraction(job.start_seconds, age // 7) < 0.012:
        return Load(job.activity * 0.25, 0.5, job.memory_ratio, 0.2, 0.1, 0.0)
    return Load(job.activity, 0.62, job.memory_ratio, 0.06, 0.55, 0.0)


def _serving(job: Job, second: int) -> Load:
    day = np.sin(2 * np.pi * (second % DAY_SECONDS) / DAY_SECONDS - 1.9)
    burst = 0.12 * (_fraction(job.start_seconds, second // 13) - 0.5)
    activity = float(np.clip(job.activity * (0.6 + 0.3 * day) + burst, 0.03, 1.0))
    return Load(activity, 0.4, job.memory_ratio, 0.03, 0.2, 0.01)


@lru_cache(maxsize=65_536)
def _jobs_of_day(seed: int, group: int, day: int) -> tuple[Job, ...]:
    rng = np.random.default_rng((seed, group, day))
    at = day * DAY_SECONDS + int(rng.integers(0, 120))
    end_of_day = (day + 1) * DAY_SECONDS
    jobs: list[Job] = []
    while at < end_of_day - 120:
        length = int(np.clip(rng.lognormal(8.6, 0.9), 300, 10 * 3600))
        end = min(at + length, end_of_day)
        jobs.append(_job(rng, group, at, end))
        at = end + int(rng.integers(20, 400))
    return tuple(jobs)


def _job(rng: np.random.Generator, group: int, start: int, end: int) -> Job:
    number = (start // 60 * 131 + group * 7919) % 90_000 + 10_000
    model = MODELS[int(rng.integers(len(MODELS)))]
    training = rng.random() < 0.72
    return Job(
        job_id=f"job-{number}",
        workload_id=f"{'train' if training else 'serve'}-{model}",
        owner_team=TEAMS[int(rng.integers(len(TEAMS)))],
        model_id=model,
        workload=Workload.TRAINING if training else Workload.INFERENCE,
        start_seconds=start,
        end_seconds=end,
        activity=float(rng.uniform(0.72, 0.97) if training else rng.uniform(0.4, 0.8)),
        memory_ratio=float(rng.uniform(0.55, 0.94)),
    )


def _fraction(*keys: int) -> float:
    """Return a number in [0, 1) that is a fixed function of the keys."""
    mixed = 0x9E3779B97F4A7C15
    for key in keys:
        mixed = ((mixed ^ key) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed / 2.0**64
