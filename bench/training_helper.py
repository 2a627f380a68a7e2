"""Measure what one step told to the agent costs a training job: agent up, away, and not reading.

    python bench/training_helper.py          some seconds

`told` sends a datagram with every step, as a job of slow steps does; without it steps are told together.
"""

import json
import os
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secondsight.training import DATAGRAM_BYTES_MAXIMUM, Run

STEPS = 5_000 if os.environ.get("BENCH_QUICK") else 50_000
ROUNDS = 5


def main() -> None:
    """Print one line of JSON, nanoseconds a step."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "training.sock"
        figures |= _figures("down", path)
        with _agent(path, reads=False):
            figures |= _figures("blocked", path)
        with _agent(path, reads=True):
            figures |= _figures("up", path)
    print(json.dumps({"name": "training-helper", "figures": figures}))


def _figures(state: str, path: Path) -> dict[str, float]:
    told = [_step_ns(path, 0.0) for _ in range(ROUNDS)]
    together = [_step_ns(path, 0.2) for _ in range(ROUNDS)]
    found = {f"{state}_told_ns": round(statistics.median(told)), f"{state}_ns": round(statistics.median(together))}
    print(f"{state:8} {found[f'{state}_ns']:7.0f} ns a step, {found[f'{state}_told_ns']:7.0f} ns with a datagram each")
    return found


def _step_ns(path: Path, interval_seconds: float) -> float:
    with Run(job="bench", socket_path=str(path), send_interval_seconds=interval_seconds, environment={}) as run:
        begun = time.perf_counter_ns()
        for _ in range(STEPS):
            run.step(tokens=65536, loss=2.31, grad_norm=0.9, learning_rate=3e-4, data_wait_seconds=0.004)
        return (time.perf_counter_ns() - begun) / STEPS


@contextmanager
def _agent(path: Path, *, reads: bool) -> Iterator[None]:
    """Serve the socket, and read it in a process of its own or not at all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(path))
        child = os.fork() if reads else 0
        if reads and child == 0:
            while True:
                one.recv(DATAGRAM_BYTES_MAXIMUM)
        yield
        if reads:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    path.unlink()


if __name__ == "__main__":
    main()
