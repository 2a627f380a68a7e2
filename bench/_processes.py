"""Account for a process and everything it started: processor time by thread, and memory as if alone on its host."""

import os
from collections import Counter, defaultdict
from pathlib import Path

TICK_HZ = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return a process and all its descendants that live."""
    found = [pid]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in path.read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    """Return user and system seconds of a process so far, in steps of the kernel's clock tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK_HZ


def cpu_seconds_by_thread(pid: int) -> Counter[str]:
    """Return the name of a thread -> seconds on a processor, to the nanosecond."""
    found: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        found[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def pss_bytes(pids: list[int]) -> int:
    """Return the proportional memory of processes as the kernel tells it; what others map too counts in part."""
    return sum(_kilobytes(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss") for pid in pids) * 1024


def bound_bytes(pids: list[int]) -> int:
    """Return the memory of processes as if no others mapped the same files: a bound from above of that memory.

    Private pages of each count whole, shared ones of each file once for all of them.
    """
    private = 0
    shared: defaultdict[str, int] = defaultdict(int)
    for pid in pids:
        for name, sizes in _mappings(pid):
            private += sizes["Private_Clean"] + sizes["Private_Dirty"]
            shared[name] = max(shared[name], sizes["Shared_Clean"] + sizes["Shared_Dirty"])
    return (private + sum(shared.values())) * 1024


def _mappings(pid: int) -> list[tuple[str, Counter[str]]]:
    """Return (what is mapped and from where, sizes in KiB) of every mapping."""
    found: list[tuple[str, Counter[str]]] = []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            file = words[5] if len(words) > 5 and words[5].startswith("/") else words[0]
            found.append((f"{file}@{words[2]}", Counter()))
        elif len(words) == 3:
            found[-1][1][words[0][:-1]] = int(words[1])
    return found


def _kilobytes(text: str, name: str) -> int:
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:"))
