"""Keep the driver initialised and the list of GPUs true: start, look again, start anew after a reload.

One thread does all of it, as every step may hang. A GPU keeps its `Device` as long as the driver gives it the same
handle; order and number of the others do not matter to it. The list is looked at every few seconds, and at once when a
reading says that something is wrong.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

from secondsight.agent.nvml.channel import STARTING
from secondsight.agent.nvml.child import facts
from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.child.device import Device, Listed, Plan
from secondsight.agent.turn import turn
from secondsight.clock import Clock

LOOK_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 1.0
RESTLESS_SECONDS = 60.0
"""After a change the list is looked at every second for a while, as what went may come back."""

RETRY_SECONDS = (0.0, 1.0, 4.0, 9.0, 29.0)
"""Back-off, on top of the second that lies between any two looks."""

AWAY_SECONDS = 3.0

GONE = frozenset((1, 9, 12, 18, 28))
"""Codes after which the driver must be initialised anew."""

NEEDS_PROCESS = frozenset((12, 18))
"""Codes that this process cannot recover from: it holds the library of another driver, or found none."""

ALL_FAIL_TICKS = 3


class Session:
    """The driver as this process knows it. Fields are set by the session's thread and read by others.

    Attributes:
        code: 0 while the driver is ready, STARTING, or the code that it refused with.
        epoch: Grows with each initialisation.
        devices: GPUs that can be asked.
        listed: GPUs that the driver counts.
        versions: Of driver, library and CUDA.
        changed: Set when the list or a version changed.
        gate: Held while GPUs are read, and while the driver is started anew.
        listening: Cleared by the listener while it holds nothing of the driver.
    """

    def __init__(self, plan: Plan, clock: Clock, report: Callable[[str], None], leave: Callable[[int], None]) -> None:
        self.code = STARTING
        self.epoch = 0
        self.devices: tuple[Device, ...] = ()
        self.listed = 0
        self.versions: dict[str, str] = {}
        self.changed = threading.Event()
        self.gate = threading.Lock()
        self.listening = threading.Event()
        self._plan = plan
        self._clock = clock
        self._report = report
        self._leave = leave
        self._wake = threading.Event()
        self._numbers = 0
        self._failures = 0
        self._all_failed = 0
        self._look_failed = 0
        self._restless_until = 0.0
        self._driver_list: tuple[str, ...] = ()

    def run(self) -> None:
        """Start the driver and keep it, for ever; the body of a thread. A fault of its own ends the process."""
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 # without this thread the list goes stale: another process is better
            self._report(f"the session failed: {error!r}")
            self._leave(1)

    def _keep(self) -> None:
        self._clock.sleep(self._plan.start_delay_seconds)
        self._start()
        while True:
            self._wake.wait(self._pause_seconds())
            self._wake.clear()
            if self.code != 0 or self._must_start_anew():
                self._start_anew()
            else:
                self._look_again()
            self._clock.sleep(LOOK_AGAIN_SECONDS)

    def judge(self, read: list[Device]) -> None:
        """Take note of what the GPUs of one round said."""
        codes = [device.code for device in read]
        self._all_failed = self._all_failed + 1 if codes and 999 in codes and all(codes) else 0
        if any(codes):
            self._wake.set()

    def look_again(self) -> None:
        """Look at the list soon."""
        self._wake.set()

    def find(self, handle: Any) -> Device | None:
        """Return the GPU that a handle given back by the driver stands for."""
        wanted = address_of(handle)
        return next((device for device in self.devices if address_of(device.handle) == wanted), None)

    def _pause_seconds(self) -> float:
        """Return how long to wait for the next look: not at all for a while after a change, or with back-off."""
        if self.code != 0:
            return RETRY_SECONDS[min(max(self._failures - 1, 0), len(RETRY_SECONDS) - 1)]
        return 0.0 if self._clock.monotonic_seconds() < self._restless_until else LOOK_SECONDS

    def _look_again(self) -> None:
        try:
            has_changed = self._look()
        except pynvml.NVMLError as error:
            self._look_failed = int(error.value)
            return
        self._look_failed = 0
        if has_changed:
            self.changed.set()
            self._restless_until = self._clock.monotonic_seconds() + RESTLESS_SECONDS

    def _must_start_anew(self) -> bool:
        if self._all_failed >= ALL_FAIL_TICKS:
            return True
        if self._look_failed or any(device.code in GONE for device in self.devices):
            return True
        return len(_names(self._plan.driver_list)) > len(self._driver_list)

    def _start_anew(self) -> None:
        """Initialise again once nobody is inside the driver; otherwise leave it for the next look."""
        with self.gate:
            if any(device.busy_since is not None for device in self.devices):
                return
            was_ready, self.code = self.code == 0, STARTING
            if was_ready:
                self._close()
            self._start()

    def _close(self) -> None:
        for _ in range(int(AWAY_SECONDS / 0.1)):
            if not self.listening.is_set():
                break
            self._clock.sleep(0.1)
        for device in self.devices:
            device.close()
        self.devices = ()
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            self._report(f"shutting the driver library down: {error}")

    def _start(self) -> None:
        self._driver_list = _names(self._plan.driver_list)
        self._all_failed = self._look_failed = 0
        try:
            with turn(self._plan.turn_files, self._clock, self._report):
                pynvml.nvmlInit()
                self.versions = facts.of_driver()
                self._look()
        except pynvml.NVMLError as error:
            self._refused(int(error.value))
            return
        self._failures = 0
        self.epoch += 1
        self.code = 0
        self.changed.set()
        self._report(f"driver {self.versions.get('driver', '?')} is ready with {self.listed} GPUs")

    def _refused(self, code: int) -> None:
        self._failures += 1
        if code != self.code or self._failures == 1:
            self._report(f"the driver cannot be used: {_said(code)}")
        self.code = code
        if code in NEEDS_PROCESS:
            self._leave(code)

    def _look(self) -> bool:
        """Look at the list of GPUs, and return whether it changed."""
        before = [(device.number, device.listed) for device in self.devices]
        self.listed = int(pynvml.nvmlDeviceGetCount())
        known = {address_of(device.handle): device for device in self.devices}
        found = [one for index in range(self.listed) if (one := self._device(index, known)) is not None]
        kept = {device.number for device in found}
        left = [device for device in self.devices if device.number not in kept]
        self.devices = tuple(found)
        for device in left:
            if device.busy_since is None:
                device.close()
        return before != [(device.number, device.listed) for device in found]

    def _device(self, index: int, known: dict[int, Device]) -> Device | None:
        """Return the GPU at a place of the list, None where it cannot be told which one it is."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError:
            return None
        device = known.get(address_of(handle))
        if device is not None and device.busy_since is not None:
            return device
        try:
            listed = _listed(handle, index)
        except pynvml.NVMLError:
            return device
        if device is None or device.listed.uuid != listed.uuid:
            self._numbers += 1
            device = Device(self._numbers, handle, listed, self._plan)
        device.listed = listed
        return device


def address_of(handle: Any) -> int:
    """Return the number that a handle is, to compare handles."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _listed(handle: Any, index: int) -> Listed:
    address = pynvml.nvmlDeviceGetPciInfo(handle).busId
    try:
        minor = int(pynvml.nvmlDeviceGetMinorNumber(handle))
    except pynvml.NVMLError:
        minor = -1
    text = address.decode() if isinstance(address, bytes) else str(address)
    return Listed(str(pynvml.nvmlDeviceGetUUID(handle)), text, index, minor)


def _said(code: int) -> str:
    return f"{pynvml.NVMLError(code)} (code {code})"


def _names(folder: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 # pathlib costs this process more than all of this file
    except OSError:
        return ()
