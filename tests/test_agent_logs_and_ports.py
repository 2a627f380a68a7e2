"""A whole agent with a pipe for the kernel's log and a tree of ports: events and rows reach a gateway, each once."""

import os
from pathlib import Path

from agent_fixture import http_server
from secondsight.agent.config import AgentConfig
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.model import EntityKind
from secondsight.wire.content import Event
from test_agent_run import Site, running
from tick_cells import cells_of

GPU = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
BOOT_ID = "11111111-2222-3333-4444-555555555555"


def tree(root: Path) -> int:
    """Make a host with one GPU, one port and a pipe for its log; return the pipe, open."""
    files = {
        "proc/sys/kernel/random/boot_id": BOOT_ID + "\n",
        "proc/driver/nvidia/gpus/0000:3b:00.0/information": f"GPU UUID: \t {GPU}\nBus Location: \t 0000:3b:00.0\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "4631917\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "dev").mkdir()
    os.mkfifo(root / "dev/kmsg")
    return os.open(root / "dev/kmsg", os.O_RDWR)


def events(site: Site) -> list[Event]:
    """Return the newest version of each event that reached the gateway."""
    newest: dict[tuple[object, ...], Event] = {}
    for frame in site.gateway.frames:
        for event in frame.content.events:
            key = (event.metric, event.entity, event.time_ms, event.code, event.attributes.get("text"))
            if key not in newest or newest[key].version < event.version:
                newest[key] = event
    return list(newest.values())


def falls_counted(site: Site) -> int:
    """Return the newest count of falls off the bus that reached the gateway."""
    counts = [cells_of(frame.content) for frame in site.gateway.frames if frame.header.kind is EntityKind.GPU]
    return max((cells.get("gpu_xid_errors_total xid=79", 0) for cells in counts), default=0)


def test_log_lines_and_ports_reach_the_gateway_over_a_restart(tmp_path: Path) -> None:
    root = tmp_path / "root"
    pipe = tree(root)
    site = Site()
    fall = b"4,{n},1000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=p, GPU has fallen off the bus.\n"
    with http_server(site.respond) as url:
        (tmp_path / "token").write_text("secret\n")
        config = AgentConfig(
            gateway=url,
            token_file=tmp_path / "token",
            spool_dir=tmp_path / "spool",
            host_id="host-1",
            interval_ms=100,
            root=root,
            host_metrics=False,
            kernel_log=KernelLogConfig(interval_ms=100),
            batch_seconds=0.1,
            stop_seconds=3.0,
        )
        os.write(pipe, fall.replace(b"{n}", b"1"))
        with running(config):
            site.wait_for(("host-1/kernel", EntityKind.GPU), ("host-1", EntityKind.FABRIC_PORT))
            (root / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
            with site.changed:
                assert site.changed.wait_for(
                    lambda: any(e.metric == "fabric_port_link_change" for e in events(site)), 30
                )
        os.write(pipe, fall.replace(b"{n}", b"1"))  # a device gives it again, to whoever opens it
        os.write(pipe, fall.replace(b"{n}", b"2"))
        with running(config), site.changed:
            assert site.changed.wait_for(lambda: falls_counted(site) == 2, 30)
    os.close(pipe)
    (fell,) = [event for event in events(site) if event.metric == "gpu_xid"]
    assert (fell.entity, fell.code) == (GPU, 79)
    headers = [frame.header for frame in site.gateway.frames]
    assert {h.source for h in headers if h.collector_id == "host-1/kernel"} == {"kernel_log"}
