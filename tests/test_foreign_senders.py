"""Senders that are not ours, the real programs: each cell in the log is one that they read, and none is missing."""

import itertools
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foreign_rig import CATALOGUE, Foreign
from gateway_fixture import serving
from prometheus_server import PROMETHEUS, VMAGENT, current_prometheus, exporter, prometheus, vmagent, wait_until
from secondsight.clock import SystemClock

BUILD = Path(__file__).parents[1] / ".build"
UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(4))


class Page:
    """An exporter's page: counts scrapes, and has them in its figures, so that each can be told."""

    def __init__(self) -> None:
        self._scrapes = itertools.count(1)
        self._lock = threading.Lock()
        self.given = 0

    def __call__(self) -> str:
        with self._lock:
            number = self.given = next(self._scrapes)
        lines = ["# TYPE DCGM_FI_DEV_POWER_USAGE gauge", "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter"]
        lines.append("# TYPE vllm:time_to_first_token_seconds histogram")
        for place, uuid in enumerate(UUIDS):
            labels = f'{{gpu="{place}",UUID="{uuid}",Hostname="node-a",modelName="NVIDIA H100 80GB HBM3"}}'
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{labels} {100 + place}.{number % 1000:03d}")
            lines.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {number * 1_000_000 + place}")
            lines.append(f"DCGM_FI_DEV_GPU_TEMP{labels} 0")
            lines.append(f"NOT_IN_THE_CATALOGUE{labels} {number}")
            for bound, count in (("0.1", 1), ("1", 2), ("+Inf", 3)):
                name = "vllm:time_to_first_token_seconds_bucket"
                lines.append(f'{name}{{model_name="m{place}",Hostname="node-a",le="{bound}"}} {count * number}')
            for suffix, value in (("sum", 2.5 * number), ("count", 3 * number)):
                name = f"vllm:time_to_first_token_seconds_{suffix}"
                lines.append(f'{name}{{model_name="m{place}",Hostname="node-a"}} {value}')
        return "\n".join(lines) + "\n"


@contextmanager
def live_gateway(folder: Path) -> Iterator[Foreign]:
    folder.mkdir()
    with serving(folder, SystemClock()) as run:
        yield Foreign(run, run.token(name="prom"))


def check_cells(gateway: Foreign, seen: int) -> None:
    """Check that every scrape up to `seen` is there, whole."""
    cells = gateway.cells()
    energies = {uuid: set() for uuid in UUIDS}
    for name, value in cells.items():
        metric, entity, *_ = name.split()
        if metric == "gpu_energy_joules_total" and isinstance(value, float):
            energies[entity].add(round(value * 1000))
    for place, uuid in enumerate(UUIDS):
        wanted = {number * 1_000_000 + place for number in range(2, seen)}
        assert wanted <= energies[uuid]
        assert energies[uuid] <= {number * 1_000_000 + place for number in range(1, seen + 100)}
    temperatures = [value for name, value in cells.items() if name.startswith("gpu_temperature_celsius")]
    assert set(temperatures) - {"STALE"} == {0.0}
    collectors = {frame.header.collector_id for frame in gateway.frames() if frame.header.rows}
    assert collectors == {"prom/remote-write/node-a/dcgm-exporter"}
    readings = gateway.histograms()
    assert {
        (bounds, tuple(count // buckets[0] for count in buckets)) for _, _, _, bounds, buckets, _, _ in readings
    } == {((0.1, 1.0), (1, 1, 1))}
    assert len(readings) >= 4 * (seen - 2)
    assert {one["code"] for one in gateway.refused()} == {"unknown_metric"}
    named = {name for one in gateway.refused() for name in names_of(one["message"])}
    assert "NOT_IN_THE_CATALOGUE" in named
    assert not any(name.startswith(("DCGM", "vllm")) for name in named)


def names_of(message: str) -> list[str]:
    """Return the names that a refusal ends with, after what to do about them."""
    return message.rpartition("; ")[2].split(", ")


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus on this machine (Debian package prometheus)")
def test_prometheus_writes_every_scrape(tmp_path: Path) -> None:
    page = Page()
    with exporter(page) as exporter_port, live_gateway(tmp_path / "data") as gateway:
        port, token = gateway.run.port, gateway.token
        with prometheus(tmp_path, exporter_port, port, token):
            wait_until(lambda: page.given >= 6 and len(gateway.histograms()) >= 16, lambda: log(tmp_path))
            seen = page.given
            wait_until(lambda: energy_of(gateway) >= seen, lambda: log(tmp_path))
        check_cells(gateway, seen)
        intervals = [frame.header.interval_ms for frame in gateway.frames() if frame.header.rows]
        assert intervals[-1] == 1000
    assert "non-recoverable" not in log(tmp_path)
    assert not re.search(r"level=(error|warn).*remote", log(tmp_path))


SECOND_VERSION = "    protobuf_message: io.prometheus.write.v2.Request\n"
CUSTOM_BUCKETS = (
    "    convert_classic_histograms_to_nhcb: true\n    scrape_native_histograms: true\n",
    f"    send_native_histograms: true\n{SECOND_VERSION}",
)
"""Histograms of the classic kind are sent as native ones with bounds of their own."""


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("settings", [("", SECOND_VERSION), CUSTOM_BUCKETS], ids=["classic", "custom buckets"])
def test_a_current_prometheus_writes_every_scrape(tmp_path: Path, settings: tuple[str, str]) -> None:
    try:
        program = current_prometheus()
    except LookupError as why:
        pytest.skip(str(why))
    page = Page()
    with exporter(page) as exporter_port, live_gateway(tmp_path / "data") as gateway:
        with prometheus(tmp_path, exporter_port, gateway.run.port, gateway.token, (program, *settings)):
            wait_until(lambda: page.given >= 6 and len(gateway.histograms()) >= 16, lambda: log(tmp_path))
            seen = page.given
            wait_until(lambda: energy_of(gateway) >= seen, lambda: log(tmp_path))
        check_cells(gateway, seen)
    assert not re.search(r"level=(ERROR|WARN).*remote", log(tmp_path)), log(tmp_path)


@pytest.mark.skipif(VMAGENT is None, reason="there is no vmagent on this machine (Debian package victoria-metrics)")
def test_vmagent_writes_every_scrape(tmp_path: Path) -> None:
    page = Page()
    with exporter(page) as exporter_port, live_gateway(tmp_path / "data") as gateway:
        with vmagent(tmp_path, exporter_port, gateway.run.port, gateway.token):
            wait_until(lambda: page.given >= 6, lambda: log(tmp_path))
            seen = page.given
            wait_until(lambda: energy_of(gateway) >= seen, lambda: log(tmp_path))
        check_cells(gateway, seen)


def test_the_client_library_of_prometheus_writes_by_the_second_version(tmp_path: Path) -> None:
    program = second_version_client()
    with serving(tmp_path, SystemClock(), catalogue=(CATALOGUE,)) as run:
        gateway = Foreign(run, run.token(name="prom"))
        command = [str(program), f"http://127.0.0.1:{run.port}", gateway.token]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert told.stdout.splitlines() == ["2 1 0"] * 3, told.stderr
        cells = gateway.cells()
        assert [value for name, value in sorted(cells.items()) if "celsius" in name] == [40, 41, 42]
        assert [sum(buckets) for _, _, _, _, buckets, _, _ in gateway.histograms()] == [3, 3, 3]
        assert {name for one in gateway.refused() for name in names_of(one["message"])} == {"not_in_the_catalogue"}


def second_version_client() -> Path:
    """Build the program that writes by 2.0, once; skip where that cannot be done."""
    program = BUILD / "remote-write-client"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            pytest.skip("there is no go on this machine to build a sender of remote write 2.0 with")
        command = [go, "build", "-o", str(program), "."]
        folder = Path(__file__).parent / "remote_write_client"
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
        if built.returncode:
            pytest.skip(f"a sender of remote write 2.0 cannot be built: {built.stderr[-200:]}")
    return program


def energy_of(gateway: Foreign) -> int:
    """Return the newest scrape whose energy is in the log."""
    cells = gateway.cells()
    energies = [value for name, value in cells.items() if name.startswith("gpu_energy") and isinstance(value, float)]
    return round(max(energies, default=0) // 1000)


def log(folder: Path) -> str:
    return (folder / "sender.log").read_text(errors="replace")[-3000:]
