"""Account for what the agent and the processes that it started use: processor time, and memory in proportion (PSS).

Processor time never falls: a child that ended counts on among those that were waited for. Memory makes the kernel walk
all pages, so it is asked for rarely.
"""

import os
import resource
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from secondsight.clock import Clock

PSS_EVERY_SECONDS = 60.0
CPU_EVERY_SECONDS = 1.0
SHARE_SECONDS = 60.0
"""Shares of a core are over about so long."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
OWN, OTHER = "agent", "other"
CHILDREN = {"secondsight.agent.nvml.child": "nvml", "secondsight.agent.dcgm.child": "dcgm", "nvidia-smi": "smi"}
"""What a child's command line holds -> what it is called."""


@dataclass(frozen=True, slots=True)
class Used:
    """What one process uses; processes of one name are added up.

    Attributes:
        pid: The newest of that name.
        cpu_seconds: User and system time.
        pss_bytes: None where the kernel does not tell.
    """

    name: str
    pid: int
    cpu_seconds: float
    pss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What all of it uses.

    Attributes:
        cpu_seconds: Of all processes, those that ended included.
        cpu_share: Share of one core lately; None just after the start.
        pss_read: When memory was last asked for, monotonic seconds.
    """

    used: tuple[Used, ...]
    cpu_seconds: float
    cpu_share: float | None
    pss_read: float

    @property
    def pss_bytes(self) -> int | None:
        """Return the memory of all processes, None where it is not known of each."""
        sizes = [one.pss_bytes for one in self.used]
        return None if None in sizes else sum(size for size in sizes if size is not None)


class ProcessCosts:
    """The costs of this process and its children. Safe to call from threads."""

    def __init__(self, clock: Clock, proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._proc = proc
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._pss: dict[int, int | None] = {}
        self._pss_read: float | None = None
        self._cost: Cost | None = None
        self._read = 0.0
        self._history: deque[tuple[float, float]] = deque()

    def now(self) -> Cost:
        """Return the costs, at most a second old; memory up to a minute."""
        with self._lock:
            now = self._clock.monotonic_seconds()
            if self._cost is None or now - self._read >= CPU_EVERY_SECONDS:
                self._read, self._cost = now, self._look(now)
            return self._cost

    def _look(self, now: float) -> Cost:
        own = resource.getrusage(resource.RUSAGE_SELF)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        times = {os.getpid(): own.ru_utime + own.ru_stime}
        for pid in self._children():
            seconds = self._cpu_seconds(pid)
            if seconds is not None:
                times[pid] = seconds
        self._names = {pid: self._names.get(pid) or self._name(pid) for pid in times}
        if self._pss_read is None or now - self._pss_read >= PSS_EVERY_SECONDS or not times.keys() <= self._pss.keys():
            self._pss_read = now
            self._pss = {pid: self._pss_bytes(pid) for pid in times}
        cpu_seconds = sum(times.values()) + ended.ru_utime + ended.ru_stime
        return Cost(tuple(self._by_name(times)), cpu_seconds, self._share(now, cpu_seconds), self._pss_read)

    def _by_name(self, times: dict[int, float]) -> Iterator[Used]:
        for name in sorted(set(self._names.values()), key=lambda name: (name != OWN, name)):
            pids = sorted(pid for pid in times if self._names[pid] == name)
            sizes = [self._pss[pid] for pid in pids]
            pss_bytes = None if None in sizes else sum(size for size in sizes if size is not None)
            yield Used(name, pids[-1], sum(times[pid] for pid in pids), pss_bytes)

    def _share(self, now: float, cpu_seconds: float) -> float | None:
        self._history.append((now, cpu_seconds))
        while len(self._history) > 2 and now - self._history[1][0] >= SHARE_SECONDS:
            self._history.popleft()
        since, before = self._history[0]
        return max((cpu_seconds - before) / (now - since), 0.0) if now > since else None

    def _children(self) -> list[int]:
        """Return the processes that any thread of this one started and that are still there."""
        try:
            threads = os.listdir(self._proc / "self/task")  # noqa: PTH208 # a list of names is all that is wanted
        except OSError:
            return []
        texts = [self._text(f"self/task/{thread}/children") for thread in threads]
        return [int(word) for text in texts for word in text.split()]

    def _cpu_seconds(self, pid: int) -> float | None:
        fields = self._text(f"{pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND if len(fields) > 12 else None

    def _name(self, pid: int) -> str:
        if pid == os.getpid():
            return OWN
        command = self._text(f"{pid}/cmdline")
        return next((name for words, name in CHILDREN.items() if words in command), OTHER)

    def _pss_bytes(self, pid: int) -> int | None:
        for line in self._text(f"{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return None

    def _text(self, path: str) -> str:
        """Return the text of a file, "" where it cannot be read, as when a process has just ended."""
        try:
            return (self._proc / path).read_text(errors="replace")
        except OSError:
            return ""
