"""Read one GPU: its figures of every tick, what is looked up rarely, its GPU instances, its facts and its processes.

Everything here calls the driver and may hang; the pool decides who waits. No state is shared between GPUs.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from secondsight.agent.nvml.child import facts
from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.child.group import Group, Wanted

SLOW_SECONDS = 10.0
FACTS_SECONDS = 60.0
LINKS_MAXIMUM = 36
FANS_MAXIMUM = 9
PROCESSES_EXPECTED = 64
PROCESSES_MAXIMUM = 4096

PROCESS_LISTS = ("Compute", "Graphics", "MPSCompute")


class Plan(NamedTuple):
    """What the agent wants of each GPU; the names are the catalogue's.

    Attributes:
        main: Each tick.
        slow: Rarely.
        links: Rarely, of each NVLink.
        fans: Rarely, of each fan.
        instance: Each tick, of each GPU instance of a GPU in MIG mode.
        processes: True if processes will be asked for.
        events: True if events are listened to.
        age_seconds: How long a sample of GPM is good to be averaged from.
        driver_list: Folder with the driver's own list of GPUs, which shows one that came after the start.
        start_delay_seconds: Wait before the driver is started first.
        turn_files: Where processes take turns in starting it.
    """

    main: Wanted
    slow: Wanted
    links: tuple[str, ...] = ()
    fans: tuple[str, ...] = ()
    instance: tuple[str, ...] = ()
    processes: bool = True
    events: bool = True
    age_seconds: float = 5.0
    driver_list: str = "/proc/driver/nvidia/gpus"
    start_delay_seconds: float = 0.0
    turn_files: tuple[str, ...] = ()


class Listed(NamedTuple):
    """A GPU as the driver lists it."""

    uuid: str
    pci_bus_id: str
    gpu_index: int
    minor: int


class Device:
    """One GPU by one handle.

    Attributes:
        code: First code of the last reading that speaks of the whole GPU or driver, else 0.
        slow_read: True until the newest slow record was taken away.
        changed: True when facts or instances changed since it was last set to False.
        busy_since: Monotonic seconds since which a worker is at it, None while none is.
    """

    def __init__(self, number: int, handle: Any, listed: Listed, plan: Plan) -> None:
        self.number = number
        self.handle = handle
        self.listed = listed
        self.code = 0
        self.taken_us = 0
        self.main: Group | None = None
        self.slow: Group | None = None
        self.slow_read = False
        self.instances: list[tuple[int, Group]] = []
        self.mig: list[dict[str, Any]] = []
        self.facts: dict[str, str] = {}
        self.changed = True
        self.busy_since: float | None = None
        self.mig_changed = True
        self.process_bytes: tuple[list[bytes], bytes] = ([], b"")
        self._plan = plan
        self._slow_at = 0.0
        self._facts_at = 0.0
        self._capacity = PROCESSES_EXPECTED
        self._no_list: set[str] = set()
        self._utilization_stamp_us = 0

    def read(self, monotonic_seconds: Callable[[], float]) -> None:
        """Read the GPU for one tick."""
        started = monotonic_seconds()
        if self.main is None:
            self.main = Group(self.handle, self._plan.main, (self.handle, None, self._plan.age_seconds))
        self.code = self.main.read(started)
        if not self.code:
            for _, instance in self.instances:
                instance.read(started)
            self._read_rarely(started)
        self.taken_us = int((monotonic_seconds() - started) * 1e6)

    def read_processes(self) -> None:
        """Read the lists of processes, and how much of the GPU each used since the last time."""
        lists = [self._process_list(kind) for kind in PROCESS_LISTS]
        self.process_bytes = (lists, self._process_utilization())

    def close(self) -> None:
        """Free what the driver holds for the GPU."""
        groups = [group for group in (self.main, self.slow) if group is not None]
        for group in [*groups, *(group for _, group in self.instances)]:
            group.close()

    def _read_rarely(self, now: float) -> None:
        if now >= self._slow_at:
            self._slow_at = now + SLOW_SECONDS
            if self.slow is None:
                links = min(self._links(), LINKS_MAXIMUM)
                whom = (self.handle, None, self._plan.age_seconds)
                self.slow = Group(self.handle, self._slow_wanted(links), whom, links)
            self.slow.read(now)
            self.slow_read = True
            self._look_for_instances(now)
        if self.mig_changed:
            self._look_for_instances(now)
        if now >= self._facts_at:
            self._facts_at = now + FACTS_SECONDS
            found = facts.of_device(self.handle)
            self.changed = self.changed or found != self.facts
            self.facts = found

    def _slow_wanted(self, links: int) -> Wanted:
        """Return what is read rarely, with one name for each link and fan that the GPU has."""
        fans = min(self._fans(), FANS_MAXIMUM)
        names = [_of_part(name, link) for link in range(links) for name in self._plan.links]
        names += [_of_part(name, fan) for fan in range(fans) for name in self._plan.fans]
        return Wanted((*self._plan.slow.names, *names), self._plan.slow.choices)

    def _links(self) -> int:
        try:
            value = pynvml.nvmlDeviceGetFieldValues(self.handle, [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT])[0]
        except pynvml.NVMLError:
            return 0
        return 0 if value.nvmlReturn else int(value.value.uiVal)

    def _fans(self) -> int:
        try:
            return int(pynvml.nvmlDeviceGetNumFans(self.handle))
        except pynvml.NVMLError:
            return 0

    def _look_for_instances(self, now: float) -> None:
        self.mig_changed = False
        found = facts.mig_devices(self.handle)
        if found is None or [one.facts for one in found] == self.mig:
            return
        self.mig = [one.facts for one in found]
        self.changed = True
        for _, group in self.instances:
            group.close()
        handles = {one.facts["gi"]: one.handle for one in reversed(found)}
        self.instances = [
            (instance, Group(handle, Wanted(self._plan.instance), (self.handle, instance, self._plan.age_seconds)))
            for instance, handle in sorted(handles.items())
        ]
        for _, group in self.instances:
            group.read(now)

    def _process_list(self, kind: str) -> bytes:
        """Return the structures of the processes of one kind, as the driver wrote them."""
        if kind in self._no_list:
            return b""
        function = pynvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses_v3")
        code, count, array = self._filled(lambda count, array: function(self.handle, count, array), _PROCESS)
        if code in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            self._no_list.add(kind)
        return b"" if code else bytes(array)[: count * ctypes.sizeof(_PROCESS)]

    def _process_utilization(self) -> bytes:
        if "utilization" in self._no_list:
            return b""
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        since = ctypes.c_ulonglong(self._utilization_stamp_us)
        code, count, array = self._filled(lambda count, array: function(self.handle, array, count, since), _SAMPLE)
        if code in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            self._no_list.add("utilization")
        if code:
            return b""
        stamps = [array[place].timeStamp for place in range(count)]
        self._utilization_stamp_us = max([*stamps, self._utilization_stamp_us])
        return bytes(array)[: count * ctypes.sizeof(_SAMPLE)]

    def _filled(self, call: Callable[[Any, Any], int], kind: Any) -> tuple[int, int, Any]:
        """Call with an array, and once more with a larger one where the driver says that it was too small."""
        code, count, array = 0, ctypes.c_uint(0), None
        for _ in range(2):
            count = ctypes.c_uint(self._capacity)
            array = (kind * self._capacity)()
            code = int(call(ctypes.byref(count), array))
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._capacity = min(max(2 * self._capacity, count.value + 16), PROCESSES_MAXIMUM)
        return code, min(count.value, self._capacity), array


_PROCESS = pynvml.c_nvmlProcessInfo_v3_t
_SAMPLE = pynvml.c_nvmlProcessUtilizationSample_t


def _of_part(name: str, part: int) -> str:
    return f"{name}@{part}" if name.startswith("FI ") else f"{name}({part})"
