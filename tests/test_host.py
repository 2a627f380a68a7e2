"""The host reader on recorded trees, on this machine, and its pure parts on odd text."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.agent.counts import Counts
from secondsight.agent.host import proc
from secondsight.agent.host.place import Place
from secondsight.agent.host.reader import HostReader
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.clock import ManualClock, SystemClock
from secondsight.contracts import Tick
from secondsight.model import Quality
from secondsight.wire.content import Content

CASES = Path(__file__).parent / "cases" / "host"
TREES = sorted(path for path in CASES.iterdir() if path.is_dir())


def cells_of(content: Content) -> dict[str, Any]:
    """Return `metric part` -> physical value of a one-tick content, or the quality where there is no value."""
    block = content.scalars
    found: dict[str, Any] = {}
    if block is None:
        return found
    keys = [content.entities.entities[index] for index in block.entity_index]
    for group in block.groups:
        for offset, row in enumerate(group.values):
            metric = load_catalog().get(content.schema.columns[group.first_column + offset].metric)
            for position, value in enumerate(row):
                if group.present is None or group.present[offset, position]:
                    found[f"{metric.name} {keys[position].part}".strip()] = to_physical(metric, value.item())
    for row, column, quality in zip(block.quality_row, block.quality_column, block.quality, strict=True):
        name = f"{content.schema.columns[column].metric} {keys[row].part}".strip()
        found.setdefault(name, Quality(quality).name.lower())
    return found


def said(tick: Tick) -> list[dict[str, Any]]:
    out = []
    for content in tick.contents:
        cells = cells_of(content)
        free = [name for name in cells if name.startswith("node_filesystem_available_bytes")]
        events = [[e.metric, e.time_ms, e.code, dict(e.attributes)] for e in content.events]
        infos = [[i.metric, dict(i.attributes)] for i in content.infos]
        out.append(
            {
                "entities": sorted({entity.entity for entity in content.entities.entities}),
                "cells": dict(sorted((cells | dict.fromkeys(free, "some")).items())),
                "events": events,
                "infos": infos,
            }
        )
    return out


@pytest.mark.parametrize("tree", TREES, ids=lambda path: path.name)
def test_recorded_tree(tree: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root = tmp_path / "root"
    reader = HostReader(Place("host-1", "r1", root), load_catalog(), ManualClock(), Counts())
    found = []
    for name in ("first", "second"):
        shutil.copytree(tree / name, root, dirs_exist_ok=True)
        found.append(said(reader.read(1_700_000_000_000)))
    reader.close()
    expected = CASES / f"{tree.name}.expected.json"
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(expected.read_text())


def test_this_machine() -> None:
    clock = SystemClock()
    reader = HostReader(Place("host-1"), load_catalog(), clock, Counts())
    cells = cells_of(reader.read(clock.now_ms()).contents[0])
    assert cells["node_memory_total_bytes"] > cells["node_memory_available_bytes"] > 0
    assert cells["node_boot_time_seconds"] * 1000 < clock.now_ms()
    assert cells["node_filesystem_available_bytes mount=/"] > 0


def test_definitions_do_not_change_from_tick_to_tick(tmp_path: Path) -> None:
    reader = HostReader(Place("host-1", root=tmp_path), load_catalog(), ManualClock(), Counts())
    contents = []
    for name in ("first", "second", "first", "second"):
        shutil.copytree(CASES / "gpu-node" / name, tmp_path, dirs_exist_ok=True)
        contents += reader.read(1_700_000_000_000).contents
    assert len({id(content.schema) for content in contents[1:]}) == 1
    assert len({id(content.entities) for content in contents}) == 1


@pytest.mark.parametrize(
    "name", ["sda", "sdab", "vda", "xvda", "hda", "nvme0n1", "nvme10n2", "mmcblk0", "pmem0", "dasda"]
)
def test_real_disks(name: str) -> None:
    assert proc.is_real_disk(name)


@pytest.mark.parametrize(
    "name",
    [
        "sda1",
        "vda15",
        "nvme0n1p1",
        "mmcblk0p2",
        "loop0",
        "ram3",
        "zram0",
        "dm-0",
        "md127",
        "sr0",
        "fd0",
        "nbd0",
        "zd16",
    ],
)
def test_partitions_and_virtual_disks(name: str) -> None:
    assert not proc.is_real_disk(name)


@pytest.mark.parametrize("name", ["eth0", "eno1", "enp65s0f0np0", "ib0", "bond0", "wlan0", "lounge0", "bridge-a"])
def test_real_interfaces(name: str) -> None:
    assert proc.is_real_interface(name)


@pytest.mark.parametrize("name", ["lo", "veth1", "docker0", "br-1a2b", "virbr0", "cni0", "flannel.1", "cali1", "tunl0"])
def test_virtual_interfaces(name: str) -> None:
    assert not proc.is_real_interface(name)


def test_utilisation_needs_time_between() -> None:
    assert list(proc.cpu_utilization(None, (1, 2))) == []
    assert list(proc.cpu_utilization((1, 2), None)) == []
    assert list(proc.cpu_utilization((1, 10), (1, 10))) == []
    assert list(proc.cpu_utilization((5, 10), (1, 9))) == []


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_utilisation_is_a_ratio(busy: int, idle: int, more_busy: int, more_idle: int) -> None:
    before, after = (busy, busy + idle), (busy + more_busy, busy + idle + more_busy + more_idle)
    for reading in proc.cpu_utilization(before, after):
        assert 0 <= reading.value <= 1


@given(st.text(max_size=200))
def test_no_text_breaks_a_parser(text: str) -> None:
    for parse in (proc.load, proc.memory, proc.oom_kills, proc.retransmits, proc.interfaces):
        list(parse(text))
    list(proc.disks(text, None))
    list(proc.pressure("io", text))
    list(proc.link("eth0", text, text))
    proc.mounts(text)
    proc.cpu_times(text)
    proc.boot_time_seconds(text)
