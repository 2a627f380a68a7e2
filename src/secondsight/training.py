"""Turn the steps of a training job into datagrams for the agent of its host. One file, nothing to install.

    from secondsight.training import Run
    with Run(job="llm-7b", framework="torch") as run:
        run.step(tokens=65536, loss=2.31)

It never slows and never breaks the job: no thread, no lock, no blocking call, no exception. A datagram that cannot be
sent at once is dropped and counted. What it would have said is not lost: counters and histograms count from the start
of the run, so the next datagram holds them too. Needs Python 3.8; copy the file into images that have an older one of
the package. A datagram is one JSON object, see `Run._datagram`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

VERSION = 1
SOCKET_PATH = "/run/secondsight/training.sock"
SOCKET_VARIABLE = "SECONDSIGHT_TRAINING_SOCKET"
DATAGRAM_BYTES_MAXIMUM = 16_384
SEND_INTERVAL_SECONDS = 0.2
"""Steps that follow each other faster are told together."""
RETRY_SECONDS = 1.0
"""How long nothing is tried after no agent was there."""
MEMORY_INTERVAL_SECONDS = 10.0
EVENTS_MAXIMUM = 16
NAMES_MAXIMUM = 8
"""Phases, operations, data sets: each has its own count in every datagram."""
SCORES_MAXIMUM = 32
NAME_CHARACTERS = 64

BOUNDS_SECONDS = tuple(round(step * 10.0**power, 6) for power in range(-3, 4) for step in (1, 1.5, 2, 3, 5, 7))
"""Upper bounds of the buckets of every duration, 1 ms to 7000 s; one more bucket holds what took longer."""

_JOB_VARIABLES = ("SECONDSIGHT_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID")
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RESTART_VARIABLES = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")

_AWAY = (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.ENOTDIR, errno.EPERM)
_MEMORY_GAUGES = (
    ("allocator_allocated_bytes", "allocated_bytes.all.current"),
    ("allocator_reserved_bytes", "reserved_bytes.all.current"),
    ("allocator_inactive_split_bytes", "inactive_split_bytes.all.current"),
)
_MEMORY_COUNTS = (("allocator_retries", "num_alloc_retries"), ("allocator_ooms", "num_ooms"))

_DETAILS = ("phase_seconds", "collective_seconds")
"""Counts that stay away from a datagram that would be too long."""

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Run:
    """One process of one training job. Use it as a context manager, or call `close`.

    Args:
        job: Id of the job; the scheduler's, or that of the launcher, if empty.
        framework: What trains: `torch`, `jax`, `megatron`.
        run: Tells runs of one job apart; may be empty.
        model: AI model that is trained.
        steps_planned: Steps that the run shall do.
        rank: Number of this process in the job; from the environment if None.
        world_size: Processes in the job; from the environment if None.
        socket_path: The agent's socket; SECONDSIGHT_TRAINING_SOCKET or /run/secondsight/training.sock if empty.
        send_interval_seconds: Steps that follow each other faster are told together; 0 tells each.
        environment: Where all that is looked up.
        clock: Monotonic seconds.
    """

    _counts: dict[str, float]
    _gauges: dict[str, float]
    _events: list[dict[str, object]]
    _names: dict[str, set[str]]
    _head: str
    _step: int
    _broken: int
    _last_step_at: float | None
    _next_send: float
    _away_until: float
    _socket: socket.socket | None = None

    def __init__(  # noqa: PLR0913 # what a caller may say, by keyword
        self,
        job: str = "",
        framework: str = "",
        *,
        run: str = "",
        model: str = "",
        steps_planned: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        socket_path: str = "",
        send_interval_seconds: float = SEND_INTERVAL_SECONDS,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._closed = True
        self._clock = clock
        self._reset()
        try:
            found = os.environ if environment is None else environment
            self._send_interval = float(send_interval_seconds)
            self._path = str(socket_path or found.get(SOCKET_VARIABLE, "") or SOCKET_PATH)
            self._said = _said(
                {
                    "job": job or _first(found, _JOB_VARIABLES) or _script(),
                    "run": run,
                    "framework": framework,
                    "model": model,
                    "rank": _whole(rank, _first(found, _RANK_VARIABLES)),
                    "local_rank": _whole(None, _first(found, _LOCAL_RANK_VARIABLES)),
                    "world_size": _whole(world_size, _first(found, _WORLD_SIZE_VARIABLES)),
                    "restarts": _whole(None, _first(found, _RESTART_VARIABLES)),
                    "steps_planned": _whole(steps_planned, ""),
                }
            )
            self._begin()
            self._closed = False
            self._send()
        except Exception:  # noqa: BLE001 # the job goes on, whatever is wrong here
            self._closed = True

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        self.close("ok" if kind is None else kind.__name__)

    def step(  # noqa: PLR0913 # what a caller may say, by keyword
        self,
        step: int | None = None,
        *,
        tokens: float = 0,
        samples: float = 0,
        loss: float | None = None,
        grad_norm: float | None = None,
        learning_rate: float | None = None,
        loss_scale: float | None = None,
        data_wait_seconds: float | None = None,
        step_seconds: float | None = None,
        queue_batches: float | None = None,
        mfu: float | None = None,
        skipped: bool = False,
    ) -> None:
        """Tell that a step is done. Values that are None are left out; those on a device are not fetched.

        Args:
            step: Number of the step; counted from the one before if None.
            tokens: Tokens that this process took in.
            samples: Samples that this process took in.
            loss: May be NaN or infinite: that is told as what it is.
            grad_norm: Norm of the gradient.
            learning_rate: Learning rate.
            loss_scale: Factor of mixed-precision training.
            data_wait_seconds: How long the step waited for its batch.
            step_seconds: How long the step took; measured from the call before if None.
            queue_batches: Batches ready in the data loader's queue.
            mfu: Model FLOPs utilisation, 0..1.
            skipped: The gradient was unusable (overflow) and the step changed nothing.
        """
        if self._closed:
            return
        try:
            if self._pid != os.getpid():
                self._reset()
                self._begin()
            now = self._clock()
            self._counts["steps"] += 1
            self._step = self._gauges["step"] = self._step + 1 if step is None else int(step)
            self._count_step(tokens, samples, skipped)
            self._time_step(now, step_seconds, data_wait_seconds)
            urgent = loss is not None and self._watch_loss(loss)
            if grad_norm is not None:
                self._watch_gradient(grad_norm)
            self._take_gauges(learning_rate, loss_scale, queue_batches, mfu)
            if now >= self._next_send or (urgent and now >= self._away_until):
                self._send(now)
        except Exception:  # noqa: BLE001 # the job goes on
            self._broken += 1

    def phase(self, name: str) -> _Timer:
        """Measure a part of a step: `with run.phase("forward"):`."""
        return _Timer(self, "phase_seconds|" + self._name("phase", name))

    def data_wait(self) -> _Timer:
        """Measure waiting for the next batch: `with run.data_wait():`."""
        return _Timer(self, "data_wait_seconds|")

    def collective(self, operation: str, seconds: float, bus_bytes_per_second: float | None = None) -> None:
        """Tell how long a collective operation (`all_reduce`) took."""
        if self._closed:
            return
        try:
            name = self._name("collective", operation)
            self._observe("collective_seconds|" + name, seconds)
            if bus_bytes_per_second is not None:
                self._gauge("bus_bytes_per_second|" + name, bus_bytes_per_second)
        except Exception:  # noqa: BLE001 # the job goes on
            self._broken += 1

    def read_bytes(self, count: float, dataset: str = "data") -> None:
        """Tell how many bytes the data loader read."""
        try:
            self._add("read_bytes|" + self._name("dataset", dataset), count)
        except Exception:  # noqa: BLE001 # the job goes on
            self._broken += 1

    def checkpoint(self, phase: str = "save") -> Checkpoint:
        """Measure saving (or `load`ing) a checkpoint; `with run.checkpoint() as saved: saved.bytes = size`.

        An exception inside counts as a failure, and goes on. The time is not counted as that of a step.
        """
        return Checkpoint(self, "load" if phase == "load" else "save")

    def evaluation(self, step: int | None = None, **scores: float) -> None:
        """Tell scores of an evaluation by name: `run.evaluation(val_loss=2.1, accuracy=0.4)`.

        The time since the last step is not counted as that of a step.
        """
        try:
            self._last_step_at = None
            if step is not None:
                self._step = self._gauges["step"] = int(step)
            for name, value in scores.items():
                key = "score|" + name[:NAME_CHARACTERS]
                if key in self._gauges or self._scores < SCORES_MAXIMUM:
                    self._scores += key not in self._gauges
                    self._gauge(key, value)
            self._send()
        except Exception:  # noqa: BLE001 # the job goes on
            self._broken += 1

    def close(self, outcome: str = "ok") -> None:
        """Tell the end; may be called twice. A forked child that made no step says nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._pid == os.getpid():
                self._event("end", {"outcome": outcome[:NAME_CHARACTERS]})
                self._send()
            self._shut()
        except Exception:  # noqa: BLE001 # the job goes on
            self._broken += 1

    def _reset(self) -> None:
        """Count from zero: at first, and in a forked child, which is a process of its own."""
        self._counts = {"steps": 0, "tokens": 0}
        self._gauges, self._events, self._names = {}, [], {}
        self._step = self._sequence = self._lost = self._broken = self._scores = 0
        self._loss_kind, self._last_step_at = "", None
        self._next_send = self._away_until = self._next_memory = 0.0

    def _begin(self) -> None:
        self._pid = os.getpid()
        head = {"v": VERSION, "pid": self._pid, "start": time.time_ns(), **self._said}
        self._head = _encode(head)[:-1] + ","
        self._shut()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def _shut(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self._shut()

    def _add(self, key: str, count: Any) -> None:
        number = _number(count)
        if number is None or not 0 <= number < math.inf:
            self._broken += 1
        else:
            self._counts[key] = self._counts.get(key, 0) + number

    def _gauge(self, key: str, value: Any) -> None:
        number = _number(value)
        if number is None:
            self._broken += 1
        else:
            self._gauges[key] = number

    def _observe(self, key: str, seconds: Any) -> None:
        number = _number(seconds)
        if number is None or not 0 <= number < math.inf:
            self._broken += 1
            return
        counts = self._counts
        bucket = f"{key}|{bisect_left(BOUNDS_SECONDS, number)}"
        counts[bucket] = counts.get(bucket, 0) + 1
        total = key + "|s"
        counts[total] = counts.get(total, 0) + number

    def _count_step(self, tokens: Any, samples: Any, skipped: bool) -> None:
        if tokens:
            self._add("tokens", tokens)
        if samples:
            self._add("samples", samples)
        if skipped:
            self._add("anomalies|overflow_skip", 1)

    def _time_step(self, now: float, step_seconds: Any, data_wait_seconds: Any) -> None:
        before, self._last_step_at = self._last_step_at, now
        if step_seconds is None and before is not None:
            step_seconds = now - before
        if step_seconds is not None:
            self._observe("step_seconds|", step_seconds)
            self._gauge("step_seconds", step_seconds)
        if data_wait_seconds is not None:
            self._observe("data_wait_seconds|", data_wait_seconds)

    def _take_gauges(self, learning_rate: Any, loss_scale: Any, queue_batches: Any, mfu: Any) -> None:
        if learning_rate is not None:
            self._gauge("learning_rate", learning_rate)
        if loss_scale is not None:
            self._gauge("loss_scale", loss_scale)
        if queue_batches is not None:
            self._gauge("queue_batches", queue_batches)
        if mfu is not None:
            self._gauge("mfu", mfu)

    def _watch_loss(self, loss: Any) -> bool:
        """Take a loss; tell whether it has just stopped being a number."""
        number = _number(loss)
        if number is None:
            self._broken += 1
            return False
        self._gauges["loss"] = number
        kind = "" if math.isfinite(number) else "nan" if number != number else "inf"
        before, self._loss_kind = self._loss_kind, kind
        if not kind or kind == before:
            return False
        self._event("loss_" + kind, {"step": self._step})
        return True

    def _watch_gradient(self, norm: Any) -> None:
        number = _number(norm)
        if number is None:
            self._broken += 1
        elif math.isfinite(number):
            self._gauges["grad_norm"] = number
        else:
            self._gauges.pop("grad_norm", None)
            self._add("anomalies|nan" if number != number else "anomalies|inf", 1)

    def _event(self, kind: str, facts: dict[str, object]) -> None:
        if len(self._events) < EVENTS_MAXIMUM:
            self._events.append({"kind": kind, "ms": time.time_ns() // 1_000_000, **facts})

    def _name(self, family: str, name: str) -> str:
        """Return a name as it may stand in a datagram; beyond the first few all are one."""
        known = self._names.setdefault(family, set())
        short = str(name).replace("|", "_")[:NAME_CHARACTERS]
        if short not in known:
            if len(known) >= NAMES_MAXIMUM:
                return "other"
            known.add(short)
        return short

    def _send(self, now: float | None = None) -> None:
        """Send one datagram, or drop and count it; never waits."""
        now = self._clock() if now is None else now
        if now < self._away_until:
            self._lost += 1
            return
        self._next_send = now + self._send_interval
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_INTERVAL_SECONDS
            self._read_memory()
        try:
            data = self._datagram(self._counts)
            if len(data) > DATAGRAM_BYTES_MAXIMUM:
                data = self._datagram({key: n for key, n in self._counts.items() if not key.startswith(_DETAILS)})
            if self._socket is not None:
                self._socket.sendto(data, self._path)
        except OSError as error:
            self._lost += 1
            if error.errno in _AWAY:
                self._away_until = self._next_send = now + RETRY_SECONDS
            return
        self._sequence += 1
        self._events.clear()

    def _datagram(self, counts: dict[str, float]) -> bytes:
        """Return the state of the run as JSON.

        `c` holds what only grows, since the process began: plain counts by name, `name|label`, and of each duration
        `name|label|bucket` (observations in that bucket of BOUNDS_SECONDS) and `name|label|s` (their sum). `g` holds
        the last values. `e` holds events that no datagram has told yet. `lost` counts datagrams that were dropped,
        `broken` values that were no numbers.
        """
        told = {"seq": self._sequence, "lost": self._lost, "broken": self._broken, "c": counts, "g": self._gauges}
        if self._events:
            told["e"] = self._events
        return (self._head + _encode(told)[1:]).encode()

    def _read_memory(self) -> None:
        """Take the allocator's figures, if the job has torch and uses a GPU; never imports anything."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        try:
            if cuda is None or not cuda.is_initialized():
                return
            stats = cuda.memory_stats()
        except Exception:  # noqa: BLE001 # whatever a foreign library raises
            self._broken += 1
            return
        for name, key in _MEMORY_GAUGES:
            if key in stats:
                self._gauges[name] = stats[key]
        for name, key in _MEMORY_COUNTS:
            if key in stats:
                self._counts[name] = stats[key]


class _Timer:
    """Measures a block into a duration of a run."""

    def __init__(self, run: Run, key: str) -> None:
        self._run = run
        self._key = key
        self._begin = 0.0

    def __enter__(self) -> _Timer:
        self._begin = _now(self._run)
        return self

    def __exit__(self, _kind: object, _error: object, _trace: object) -> None:
        run = self._run
        if run._closed:
            return
        try:
            run._observe(self._key, _now(run) - self._begin)
        except Exception:  # noqa: BLE001 # the job goes on
            run._broken += 1


class Checkpoint:
    """Measures a checkpoint. Set `bytes` to its size, and `failed` if it failed without an exception."""

    def __init__(self, run: Run, phase: str) -> None:
        self.bytes: float | None = None
        self.failed = False
        self._run = run
        self._phase = phase
        self._begin = 0.0

    def __enter__(self) -> Checkpoint:
        self._begin = _now(self._run)
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if self._run._closed:
            return
        try:
            self._tell(failed=self.failed or kind is not None)
        except Exception:  # noqa: BLE001 # the job goes on
            self._run._broken += 1

    def _tell(self, *, failed: bool) -> None:
        run = self._run
        run._last_step_at = None
        if failed:
            run._add("checkpoint_failures|" + self._phase, 1)
        else:
            run._observe("checkpoint_seconds|" + self._phase, _now(run) - self._begin)
            if self._phase == "save":
                run._gauge("checkpoint_last_success", time.time_ns() // 1_000_000 / 1000)
            if self.bytes is not None:
                run._gauge("checkpoint_bytes", self.bytes)
        run._send()


def _now(run: Run) -> float:
    """Return the run's monotonic seconds, or 0 for a run that could not begin."""
    try:
        return run._clock()
    except Exception:  # noqa: BLE001 # the job goes on
        return 0.0


def _number(value: Any) -> float | None:
    """Return a value as a number, or None; a value on a device is not fetched, as that would wait for the device."""
    if type(value) is float or type(value) is int:
        return value
    place = getattr(value, "device", "cpu")
    if str(getattr(place, "type", place)) != "cpu":
        return None
    try:
        return float(value)
    except Exception:  # noqa: BLE001 # whatever a foreign type raises
        return None


def _whole(given: Any, found: str) -> int | None:
    text = found if given is None else given
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the first variable that says something."""
    return next((environment[name] for name in names if environment.get(name, "") not in ("", "none")), "")


def _script() -> str:
    return (sys.argv[0] if sys.argv else "").rpartition("/")[2] or "python"


def _said(facts: dict[str, object]) -> dict[str, object]:
    """Return the facts that are known, texts cut to what may stand in a datagram."""
    cut = {
        name: value if isinstance(value, int) else str(value or "")[:NAME_CHARACTERS] for name, value in facts.items()
    }
    return {name: value for name, value in cut.items() if value != ""}
