"""Turn the text of /proc and /sys files into raw readings of a host: (metric, part, value as the kernel gives it).

Pure functions of text. A missing, short or odd line gives no reading; nothing is ever filled in with 0. Units are the
kernel's; `SCALES` says how they relate to the units of the catalogue.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SECTOR_BYTES = 512
"""Sectors of /proc/diskstats are always 512 bytes, whatever the disk's own are."""


class Reading(NamedTuple):
    """One raw reading; `part` holds label pairs."""

    metric: str
    part: tuple[tuple[str, str], ...]
    value: float


SCALES: dict[str, float] = {
    "node_memory_total_bytes": 1024,
    "node_memory_available_bytes": 1024,
    "node_memory_pressure_seconds_total": 1e-6,
    "node_io_pressure_seconds_total": 1e-6,
    "node_cpu_pressure_seconds_total": 1e-6,
    "node_disk_io_bytes_total": SECTOR_BYTES,
    "node_disk_operation_seconds_total": 0.001,
    "node_network_speed_bits_per_second": 1e6,
}
"""Metric -> kernel's unit in the metric's unit; 1 where it is not named."""

_STACKED_OR_VIRTUAL_DISK = re.compile(r"(loop|ram|zram|fd|sr|dm-|md|nbd|zd|drbd|bcache)\d")
_PARTITION = re.compile(r"((sd|vd|hd|xvd)[a-z]+|(nvme\d+n\d+|mmcblk\d+|pmem\d+)p)\d+")
_VIRTUAL_INTERFACE = re.compile(
    r"lo$|(veth|docker|br-|virbr|cni|flannel|cali|cilium|lxc|tunl|gre|gretap|erspan|sit|ip6|ifb|dummy|kube-|nodelocaldns|tap|vnet|weave|vxlan|ovs)"
)

LOCAL_FILE_SYSTEMS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "vfat", "overlay"}
)
"""File systems that statvfs answers from memory; a network mount may hang for ever and is not asked."""

_SYSTEM_MOUNTS = re.compile(
    r"/(proc|sys|dev|run|snap|var/lib/(docker|kubelet|containerd|containers|rancher|k3s)|boot/efi)(/|$)"
)


def is_real_disk(name: str) -> bool:
    """Tell whether a name of /proc/diskstats is a whole disk: no partition, and nothing that is made of others."""
    return _STACKED_OR_VIRTUAL_DISK.match(name) is None and _PARTITION.fullmatch(name) is None


def is_real_interface(name: str) -> bool:
    """Tell whether a network device carries the host's own traffic: no loopback, bridge, tunnel or container side."""
    return _VIRTUAL_INTERFACE.match(name) is None


def cpu_times(stat: str) -> tuple[int, int] | None:
    """Return (busy, total) CPU time of all CPUs in ticks from /proc/stat; waiting for input counts as idle."""
    fields = stat.partition("\n")[0].split()
    if len(fields) < 5 or fields[0] != "cpu":
        return None
    times = _integers(fields[1:9])
    if times is None:
        return None
    idle = sum(times[3:5])
    return sum(times) - idle, sum(times)


def cpu_utilization(before: tuple[int, int] | None, after: tuple[int, int] | None) -> Iterator[Reading]:
    """Give the busy share between two `cpu_times`; nothing where there is no time between them."""
    if before is None or after is None or after[1] <= before[1]:
        return
    share = (after[0] - before[0]) / (after[1] - before[1])
    yield Reading("node_cpu_utilization_ratio", (), min(max(share, 0.0), 1.0))


def boot_time_seconds(stat: str) -> int | None:
    """Return when the host booted, in Unix seconds, from /proc/stat."""
    found = re.search(r"^btime (\d+)$", stat, re.MULTILINE)
    return int(found[1]) if found else None


def load(loadavg: str) -> Iterator[Reading]:
    """Give the load average of a minute from /proc/loadavg."""
    first = loadavg.split(maxsplit=1)[:1]
    if first and re.fullmatch(r"\d+(\.\d+)?", first[0]):
        yield Reading("node_load1", (), float(first[0]))


def memory(meminfo: str) -> Iterator[Reading]:
    """Give total and available memory in KiB from /proc/meminfo."""
    wanted = {"MemTotal": "node_memory_total_bytes", "MemAvailable": "node_memory_available_bytes"}
    for found in re.finditer(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", meminfo, re.MULTILINE):
        yield Reading(wanted[found[1]], (), int(found[2]))


def pressure(name: str, text: str) -> Iterator[Reading]:
    """Give stall times in microseconds from /proc/pressure/`name` (memory, io, cpu)."""
    for found in re.finditer(r"^(some|full) .*\btotal=(\d+)$", text, re.MULTILINE):
        if name != "cpu":
            yield Reading(f"node_{name}_pressure_seconds_total", (("kind", found[1]),), int(found[2]))
        elif found[1] == "some":
            yield Reading("node_cpu_pressure_seconds_total", (), int(found[2]))


def oom_kills(vmstat: str) -> Iterator[Reading]:
    """Give the count of processes killed for want of memory from /proc/vmstat."""
    found = re.search(r"^oom_kill (\d+)$", vmstat, re.MULTILINE)
    if found:
        yield Reading("node_oom_kills_total", (), int(found[1]))


def retransmits(snmp: str) -> Iterator[Reading]:
    """Give the count of TCP segments sent again from /proc/net/snmp."""
    lines = [line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(lines) == 2 and "RetransSegs" in lines[0] and len(lines[0]) == len(lines[1]):
        value = _integers([lines[1][lines[0].index("RetransSegs")]])
        if value is not None:
            yield Reading("node_tcp_retransmits_total", (), value[0])


def disks(diskstats: str, known: frozenset[str] | None) -> Iterator[Reading]:
    """Give bytes, operations, times and queue of every whole disk from /proc/diskstats.

    Args:
        diskstats: Text of the file.
        known: Names in /sys/block (which lists no partitions), or None where it cannot be read.
    """
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) < 14 or not is_real_disk(fields[2]) or (known is not None and fields[2] not in known):
            continue
        numbers = _integers(fields[3:14])
        if numbers is not None:
            yield from _disk(fields[2], numbers)


def _disk(name: str, numbers: list[int]) -> Iterator[Reading]:
    device = ("device", name)
    for direction, first in (("read", 0), ("write", 4)):
        part = (device, ("direction", direction))
        yield Reading("node_disk_operations_total", part, numbers[first])
        yield Reading("node_disk_io_bytes_total", part, numbers[first + 2])
        yield Reading("node_disk_operation_seconds_total", part, numbers[first + 3])
    yield Reading("node_disk_queue_depth", (device,), numbers[8])


def interfaces(net_dev: str) -> Iterator[Reading]:
    """Give bytes, errors and drops of every real network device from /proc/net/dev."""
    for line in net_dev.splitlines():
        name, colon, rest = line.partition(":")
        name = name.strip()
        numbers = _integers(rest.split())
        if colon and is_real_interface(name) and numbers is not None and len(numbers) >= 12:
            yield from _interface(name, numbers)


def _interface(name: str, numbers: list[int]) -> Iterator[Reading]:
    for direction, first in (("receive", 0), ("transmit", 8)):
        part = (("device", name), ("direction", direction))
        yield Reading("node_network_io_bytes_total", part, numbers[first])
        yield Reading("node_network_errors_total", (*part, ("kind", "err")), numbers[first + 2])
        yield Reading("node_network_errors_total", (*part, ("kind", "drop")), numbers[first + 3])


def interface_names(net_dev: str) -> list[str]:
    """Return the real network devices that /proc/net/dev lists."""
    names = [line.partition(":")[0].strip() for line in net_dev.splitlines() if ":" in line]
    return [name for name in names if is_real_interface(name)]


def link(name: str, carrier: str | None, speed: str | None) -> Iterator[Reading]:
    """Give link state and speed (Mbit/s) from /sys/class/net/`name`; a device that is off has neither."""
    part = (("device", name),)
    carrier, speed = (carrier or "").strip(), (speed or "").strip()
    if carrier in ("0", "1"):
        yield Reading("node_network_link_up", part, int(carrier))
    if re.fullmatch(r"[0-9]+", speed) and int(speed) > 0:
        yield Reading("node_network_speed_bits_per_second", part, int(speed))


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    path: str
    type: str


def mounts(text: str) -> list[Mount]:
    """Return local file systems that programs write to, from /proc/mounts: each once, under its shortest path."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] not in LOCAL_FILE_SYSTEMS or "ro" in fields[3].split(","):
            continue
        mount = Mount(fields[0], _unescape_mount(fields[1]), fields[2])
        if _SYSTEM_MOUNTS.match(mount.path) or (mount.type == "overlay" and mount.path != "/"):
            continue
        known = found.get(mount.device)
        if known is None or len(mount.path) < len(known.path):
            found[mount.device] = mount
    return sorted(found.values(), key=lambda mount: mount.path)


def _unescape_mount(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def gpu_functions(devices: Iterable[tuple[str, str]]) -> int:
    """Return how many of these PCI functions, given as (vendor, class) texts of sysfs, are NVIDIA GPUs."""
    return sum(vendor.strip() == "0x10de" and kind.strip()[:6] in ("0x0300", "0x0302") for vendor, kind in devices)


def _integers(texts: list[str]) -> list[int] | None:
    joined = "".join(texts)
    return [int(text) for text in texts] if joined.isascii() and joined.isdigit() else None
