"""A real agent on a host of 8 scripted H200: share of a core, memory, missed ticks, and what each reader costs.

The agent is the installed program with its NVML reader over the stub of NVML (tests/nvml_stub), its host reader and the
reader of itself, at 1 Hz, against a real gateway on loopback in a process of its own that is not counted. Figures are
of all processes of the agent after a warm-up. `pss_mib` is the kernel's; `memory_bound_mib` counts memory as if nothing
else on the machine, such as the gateway beside it, mapped the same files. What arrived is read back from the gateway's
log: metrics, ticks and values are those that were really delivered. GPU values have the noise that `host h200 8` gives
them; its share is printed. The stub's own work is part of what is measured.

Then the same agent also scrapes a dcgm-exporter of 8 GPUs and asks a kubelet with a pod a GPU, both in this process:
what these readers cost is reported apart, and the memory of that agent.

A process that wakes once a second finds every cache cold, so its cost grows with whatever else the machine runs: the
window is cut into pieces, and `cpu_percent_of_core_quietest` is the least of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import _gateway
import _platform
import _processes
import _sources
from _received import Received, received
from nvml_stub import build
from nvml_stub.scenario import Machine
from secondsight.model import EntityKind

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "15" if QUICK else "60"))
WARM_UP_SECONDS = 5.0 if QUICK else 12.0
EXTRA_SECONDS = 10.0 if QUICK else 30.0
PIECE_SECONDS = 5.0
GPUS = 8
MACHINE = (f"host h200 {GPUS}", "seed 11", "gpu * process 4242 compute memory 97710505984 sm 80 mem 40")
CONFIG = """
[agent]
gateway = "http://127.0.0.1:{port}"
token_file = "{folder}/token"
spool_dir = "{folder}/spool"
host_id = "bench-host"

[agent.nvml]
"""
EXTRAS = """
[agent.kubernetes]
socket = "{socket}"

[[agent.scrape]]
name = "dcgm"
url = "{url}"
"""


@dataclass(frozen=True, slots=True)
class Window:
    """What the agent's processes used between two instants.

    Attributes:
        pieces: Share of a core in each piece of it, in order.
        threads: Name of a process and thread -> seconds on a processor.
    """

    begin_ms: int
    end_ms: int
    cpu_seconds: float
    pieces: tuple[float, ...]
    threads: Counter[str]
    pss_mib: float
    bound_mib: float
    processes: int

    @property
    def seconds(self) -> float:
        """Return its length."""
        return (self.end_ms - self.begin_ms) / 1000


def main() -> None:
    """Run the agent for a warm-up and a window, alone and with extras, and print one JSON line."""
    print(f"versions {json.dumps(_platform.versions())}")
    print(f"load average before {_platform.load_average():.2f}")
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        window, found = _measure(Path(folder), "", SECONDS)
    _report(window, found)
    with (
        tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder,
        _sources.dcgm_exporter(GPUS) as url,
        _sources.kubelet(Path(folder), GPUS) as socket,
    ):
        more, extra = _measure(Path(folder), EXTRAS.format(url=url, socket=socket), EXTRA_SECONDS)
    print(json.dumps({"name": "agent", "figures": _figures(window, found) | _extra_figures(more, extra)}))


def _measure(folder: Path, extras: str, seconds: float) -> tuple[Window, Received]:
    with _gateway.running(folder) as gateway:
        window = _run(folder, gateway, extras, seconds)
    return window, received(folder, window.begin_ms, window.end_ms)


def _run(folder: Path, gateway: _gateway.Gateway, extras: str, seconds: float) -> Window:
    (folder / "token").write_text(gateway.token)
    (folder / "agent.toml").write_text(CONFIG.format(port=gateway.port, folder=folder) + extras)
    machine = Machine(folder / "machine", *MACHINE)
    command = [sys.executable, "-m", "secondsight", "agent", "--config", str(folder / "agent.toml")]
    environment = os.environ | machine.environment(build.library()) | {"SECONDSIGHT_LOG_LEVEL": "WARNING"}
    agent = subprocess.Popen(command, env=environment)
    try:
        time.sleep(WARM_UP_SECONDS)
        return _window(agent.pid, seconds)
    finally:
        agent.terminate()
        agent.wait(60)


def _window(pid: int, seconds: float) -> Window:
    processes = _processes.family(pid)
    begin_ms, before, threads = _now_ms(), _cpu(processes), _threads(processes)
    pieces = [_piece(processes) for _ in range(max(1, round(seconds / PIECE_SECONDS)))]
    end_ms, after = _now_ms(), _cpu(processes)
    used = _threads(processes)
    used.subtract(threads)
    return Window(
        begin_ms,
        end_ms,
        after - before,
        tuple(pieces),
        used,
        _processes.pss_bytes(processes) / 2**20,
        _processes.bound_bytes(processes) / 2**20,
        len(processes),
    )


def _piece(processes: list[int]) -> float:
    """Let a piece of the window pass and return the share of a core in it, by the scheduler's count."""
    before, began = sum(_threads(processes).values()), time.monotonic()
    time.sleep(PIECE_SECONDS)
    return (sum(_threads(processes).values()) - before) / (time.monotonic() - began)


def _cpu(processes: list[int]) -> float:
    return sum(_processes.cpu_seconds(pid) for pid in processes)


def _threads(processes: list[int]) -> Counter[str]:
    """Return the place of a process in its family and a thread's name -> seconds."""
    found: Counter[str] = Counter()
    for place, pid in enumerate(processes):
        for name, seconds in _processes.cpu_seconds_by_thread(pid).items():
            found[f"{place}/{name}"] += seconds
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _report(window: Window, found: Received) -> None:
    """Print where the time goes, one line a thread and a reader."""
    print(
        f"{window.processes} processes, {sum(window.threads.values()) / window.seconds:.3%} of a core by the scheduler"
    )
    print(f"  of a core by pieces of {PIECE_SECONDS:.0f} s: {', '.join(f'{piece:.2%}' for piece in window.pieces)}")
    for name, seconds in window.threads.most_common():
        if seconds > 0:
            print(f"  thread {name:20} {1000 * seconds / window.seconds:8.3f} ms/s")
    for reader, at in sorted(found.reads.items()):
        reads, seconds = at[-1][0] - at[0][0], at[-1][1] - at[0][1]
        if reads:
            used = found.increase("agent_collect_cpu_seconds_total", f"source={reader}")
            cost = f"{1000 * used / window.seconds:8.3f} ms/s of a core"
            print(f"  reader {reader:20} {cost}, {1000 * seconds / reads:8.3f} ms a read by the clock, {reads} reads")
    for kind, ticks in sorted(found.ticks.items()):
        print(f"  {kind.name.lower()}: {len(ticks)} ticks, {found.values[kind] / len(ticks):.0f} values a tick")
    print(f"  gpu metrics {len(found.gpu_metrics)}, {found.noisy_share:.0%} of the series noisy")
    print(f"load average after {_platform.load_average():.2f}")


def _figures(window: Window, found: Received) -> dict[str, float | None]:
    gpu_ticks = found.ticks[EntityKind.GPU]
    due = len(found.ticks[EntityKind.PLATFORM] | gpu_ticks)
    return {
        "cpu_percent_of_core": round(100 * window.cpu_seconds / window.seconds, 3),
        "pss_mib": round(window.pss_mib, 1),
        "ticks_missed": int(found.increase("agent_samples_missed_total")) + due - len(gpu_ticks),
        "cpu_percent_of_core_scheduler": round(100 * sum(window.threads.values()) / window.seconds, 3),
        "cpu_percent_of_core_quietest": round(100 * min(window.pieces), 3),
        "memory_bound_mib": round(window.bound_mib, 1),
        "gpus": len({entity for _, entity, _ in found.gpu_series}),
        "gpu_metrics": len(found.gpu_metrics),
        "values_per_second": round(sum(found.values.values()) / window.seconds, 1),
        "load_average": round(_platform.load_average(), 2),
    }


def _extra_figures(window: Window, found: Received) -> dict[str, float | None]:
    """Return what the readers of other programs cost, and the memory of the agent that has them."""

    def percent(reader: str) -> float:
        used = found.increase("agent_collect_cpu_seconds_total", f"source={reader}")
        return round(100 * used / window.seconds, 3)

    return {
        "extra_dcgm_percent_of_core": percent("dcgm"),
        "extra_kubelet_percent_of_core": percent("kubernetes"),
        "extra_pss_mib": round(window.pss_mib, 1),
        "extra_memory_bound_mib": round(window.bound_mib, 1),
    }


if __name__ == "__main__":
    main()
