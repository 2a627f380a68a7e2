"""Listen to the driver's events in a thread of its own and send each to the agent as it comes.

Only types that a GPU reports as supported are registered. Repeats of one event within a second become one message with
a count, and a storm is looked at a bounded number of times a second; the driver drops what its own queue cannot hold.
"""

import json
from collections.abc import Callable
from typing import Any

from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.child.device import Device
from secondsight.agent.nvml.child.session import Session
from secondsight.clock import Clock

WANTED = (
    pynvml.nvmlEventTypeSingleBitEccError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeClock
    | pynvml.nvmlEventTypePowerSourceChange
    | pynvml.nvmlEventMigConfigChange
    | pynvml.nvmlEventTypeSingleBitEccErrorStorm
    | pynvml.nvmlEventTypeDramRetirementEvent
    | pynvml.nvmlEventTypeDramRetirementFailure
    | pynvml.nvmlEventTypeNonFatalPoisonError
    | pynvml.nvmlEventTypeFatalPoisonError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
"""All but changes of the P-state, which come with every load and are read each tick."""

WAIT_MS = 2000
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
LOOKS_PER_SECOND_MAXIMUM = 200
ANY_INSTANCE = 0xFFFFFFFF

Key = tuple[str, int, int, int, int]
"""(UUID, event type, data, GPU instance, compute instance)."""


class Listener:
    """Turns events into messages; `run` is the body of a thread."""

    def __init__(self, session: Session, clock: Clock, send: Callable[[bytes], None]) -> None:
        self._session = session
        self._clock = clock
        self._send = send
        self._repeats: dict[Key, int] = {}
        self._second = 0.0
        self._looks = 0

    def run(self) -> None:
        """Listen for ever, registering anew when the driver or the list of GPUs changed."""
        failures = 0
        while True:
            if self._session.code == 0 and self._session.devices:
                self._session.listening.set()
                failures = 0 if self._listen() else failures + 1
                self._session.listening.clear()
            self._clock.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])

    def _listen(self) -> bool:
        """Listen to the GPUs of now until they change; return False where the driver refused."""
        epoch, devices = self._session.epoch, self._session.devices
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return False
        try:
            registered = [_register(device, events) for device in devices]
            if not any(registered):
                return False
            while self._session.code == 0 and self._session.epoch == epoch and self._session.devices == devices:
                if not self._wait(events):
                    return False
            return True
        finally:
            pynvml._nvmlGetFunctionPointer("nvmlEventSetFree")(events)

    def _wait(self, events: Any) -> bool:
        """Wait for one event; return False where the driver refused."""
        try:
            data = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except pynvml.NVMLError as error:
            self._flush()
            return bool(error.value == pynvml.NVML_ERROR_TIMEOUT)
        device = self._session.find(data.device)
        if device is not None:
            self._take(device, data)
        self._pace()
        return True

    def _take(self, device: Device, data: Any) -> None:
        if data.eventType == pynvml.nvmlEventMigConfigChange:
            device.mig_changed = True
        if data.eventType in (pynvml.nvmlEventTypeGpuUnavailableError, pynvml.nvmlEventTypeXidCriticalError):
            self._session.look_again()
        key = (
            device.listed.uuid,
            int(data.eventType),
            int(data.eventData),
            int(data.gpuInstanceId),
            int(data.computeInstanceId),
        )
        if key in self._repeats:
            self._repeats[key] += 1
        else:
            self._repeats[key] = 0
            self._tell(key, 1)

    def _pace(self) -> None:
        """Tell of the repeats once a second, and wait for the next second where there were too many events."""
        now = self._clock.monotonic_seconds()
        if now - self._second >= 1:
            self._flush()
            self._second, self._looks = now, 0
        self._looks += 1
        if self._looks >= LOOKS_PER_SECOND_MAXIMUM:
            self._clock.sleep(self._second + 1 - now)

    def _flush(self) -> None:
        repeats, self._repeats = self._repeats, {}
        for key, count in repeats.items():
            if count:
                self._tell(key, count)

    def _tell(self, key: Key, count: int) -> None:
        uuid, kind, data, instance, compute = key
        event: dict[str, Any] = {
            "uuid": uuid,
            "type": kind,
            "data": data,
            "count": count,
            "time_ms": self._clock.now_ms(),
        }
        if instance != ANY_INSTANCE:
            event["gi"] = instance
        if compute != ANY_INSTANCE:
            event["ci"] = compute
        self._send(json.dumps(event).encode())


def _register(device: Device, events: Any) -> bool:
    try:
        supported = int(pynvml.nvmlDeviceGetSupportedEventTypes(device.handle))
        if supported & WANTED:
            pynvml.nvmlDeviceRegisterEvents(device.handle, supported & WANTED, events)
    except pynvml.NVMLError:
        return False
    return bool(supported & WANTED)
