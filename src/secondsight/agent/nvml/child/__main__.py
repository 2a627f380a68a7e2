"""Touch the driver on behalf of the agent: read GPUs when told to over standard input, answer over standard output.

The main thread never calls the driver, so it answers in time whatever the driver does. The process ends when its input
ends, on SIGTERM, and when it must be replaced to recover; it lets calls that are under way return first, as ending in
the middle of one can harm the GPU.
"""

import json
import os
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from secondsight.agent.nvml import channel
from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.child.device import PROCESS_LISTS, Device, Plan
from secondsight.agent.nvml.child.events import Listener
from secondsight.agent.nvml.child.group import Group, Wanted
from secondsight.agent.nvml.child.pool import Pool
from secondsight.agent.nvml.child.session import Session
from secondsight.clock import Clock, SystemClock

GRACE_SECONDS = 30.0
SHUTDOWN_SECONDS = 2.0
STACK_BYTES = 1 << 20
INPUT, OUTPUT = 0, 1


class Ended(BaseException):
    """The agent is gone, or wants this process to end."""


class Child:
    """Answers the agent's messages."""

    def __init__(self, clock: Clock, output: int) -> None:
        self._clock = clock
        self._output = output
        self._write_lock = threading.Lock()
        self._layouts: dict[str, int] = {}
        self._told = b""
        self._pool = Pool(clock, report)
        self._session: Session | None = None

    def take(self, kind: int, payload: bytes) -> None:
        """Do what a message asks for."""
        if kind == channel.PLAN and self._session is None:
            self._begin(json.loads(payload))
        elif kind == channel.TICK and self._session is not None:
            self._tick(self._session, *channel.REQUEST.unpack(payload))
        elif kind == channel.PROCESSES and self._session is not None:
            self._processes(self._session, *channel.REQUEST.unpack(payload))

    def wait_for_calls(self) -> bool:
        """Wait until no worker is inside the driver, for a bounded time; return whether that is so."""
        end = self._clock.monotonic_seconds() + GRACE_SECONDS
        while self._session is not None and any(device.busy_since is not None for device in self._session.devices):
            if self._clock.monotonic_seconds() > end:
                return False
            self._clock.sleep(0.05)
        return True

    def _begin(self, asked: dict[str, Any]) -> None:
        plan = _plan(asked)
        if asked.get("library"):
            pynvml.nvmlLib = pynvml.CDLL(asked["library"])
        self._session = session = Session(plan, self._clock, report, _leave)
        threading.Thread(target=session.run, name="session", daemon=True).start()
        if plan.events:
            listener = Listener(session, self._clock, lambda event: self._send(channel.EVENT, event))
            threading.Thread(target=listener.run, name="events", daemon=True).start()

    def _tick(self, session: Session, number: int, deadline_ms: int) -> None:
        if not session.gate.acquire(blocking=False):
            self._answer(session, number, channel.STARTING, (), [])
            return
        try:
            devices = session.devices
            clock = self._clock.monotonic_seconds
            done = self._pool.run(devices, lambda device: device.read(clock), deadline_ms / 1000)
        finally:
            session.gate.release()
        session.judge(done)
        self._answer(session, number, session.code, devices, done)

    def _answer(
        self, session: Session, number: int, code: int, devices: tuple[Device, ...], done: list[Device]
    ) -> None:
        records = [record for device in done for record in self._records(device)]
        now = self._clock.monotonic_seconds()
        for device in devices:
            if device not in done:
                busy_ms = int((now - (device.busy_since or now)) * 1000)
                head = (device.number, channel.BUSY, 0, 0, max(busy_ms, 1), device.code, 0)
                records.append(channel.RECORD_HEAD.pack(*head))
        self._tell_devices(session)
        head_bytes = channel.VALUES_HEAD.pack(number, session.epoch, code, session.listed, len(records))
        self._send(channel.VALUES, head_bytes + b"".join(records))

    def _records(self, device: Device) -> Iterator[bytes]:
        if device.main is None:
            return
        yield self._record(device, channel.MAIN, 0, device.main)
        for instance, group in device.instances:
            yield self._record(device, channel.INSTANCE, instance, group)
        if device.slow_read and device.slow is not None:
            device.slow_read = False
            yield self._record(device, channel.SLOW, 0, device.slow)

    def _record(self, device: Device, what: int, instance: int, group: Group) -> bytes:
        layout = self._layouts.get(group.layout)
        if layout is None:
            layout = self._layouts[group.layout] = len(self._layouts)
            self._send(channel.LAYOUT, struct.pack("<I", layout) + group.layout.encode())
        head = channel.RECORD_HEAD.pack(device.number, what, instance, layout, 0, device.code, device.taken_us)
        return head + group.record

    def _tell_devices(self, session: Session) -> None:
        """Send the list of GPUs and their facts where they changed."""
        changed = [device for device in session.devices if device.changed]
        if not changed and not session.changed.is_set():
            return
        session.changed.clear()
        for device in changed:
            device.changed = False
        told = json.dumps({"versions": session.versions, "gpus": [_described(one) for one in session.devices]}).encode()
        if told != self._told:
            self._told = told
            self._send(channel.DEVICES, told)

    def _processes(self, session: Session, number: int, deadline_ms: int) -> None:
        done: list[Device] = []
        if session.gate.acquire(blocking=False):
            try:
                done = self._pool.run(session.devices, lambda device: device.read_processes(), deadline_ms / 1000)
            finally:
                session.gate.release()
        pieces = [struct.pack("<II", number, len(done))]
        for device in done:
            lists, utilization = device.process_bytes
            sizes = [len(piece) for piece in (*lists, utilization)]
            pieces += [struct.pack(f"<I{len(PROCESS_LISTS) + 1}I", device.number, *sizes), *lists, utilization]
        self._send(channel.PROCESS_LISTS, b"".join(pieces))

    def _send(self, kind: int, payload: bytes) -> None:
        with self._write_lock:
            channel.write_all(self._output, channel.packed(kind, payload))


def report(text: str) -> None:
    """Say something to the agent's log."""
    print(f"nvml child: {text}", file=sys.stderr, flush=True)  # noqa: T201 # standard error is this process's log


def main() -> None:
    """Run until the input ends."""
    threading.stack_size(STACK_BYTES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    child = Child(SystemClock(), OUTPUT)
    inbox = channel.Inbox()
    try:
        while chunk := os.read(INPUT, channel.READ_BYTES):
            inbox.feed(chunk)
            while (message := inbox.take()) is not None:
                child.take(*message)
    except (Ended, BrokenPipeError):
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child.wait_for_calls():
        closing = threading.Thread(target=_shut_down, daemon=True)
        closing.start()
        closing.join(SHUTDOWN_SECONDS)
    os._exit(0)


def _plan(asked: dict[str, Any]) -> Plan:
    def wanted(key: str) -> Wanted:
        return Wanted(tuple(asked[key]["names"]), tuple(tuple(choice) for choice in asked[key]["choices"]))

    return Plan(
        main=wanted("main"),
        slow=wanted("slow"),
        links=tuple(asked["links"]),
        fans=tuple(asked["fans"]),
        instance=tuple(asked["instance"]),
        processes=asked["processes"],
        events=asked["events"],
        age_seconds=asked["age_seconds"],
        driver_list=asked["driver_list"],
        start_delay_seconds=asked["start_delay_seconds"],
        turn_files=tuple(asked["turn_files"]),
    )


def _described(device: Device) -> dict[str, Any]:
    listed = device.listed
    return {
        "number": device.number,
        "uuid": listed.uuid,
        "index": listed.gpu_index,
        "minor": listed.minor,
        "pci_bus_id": listed.pci_bus_id,
        "facts": device.facts,
        "mig": device.mig,
    }


def _shut_down() -> None:
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return


def _leave(code: int) -> None:
    """End the process as it can only recover in a new one."""
    os._exit(100 + code)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise Ended


if __name__ == "__main__":
    main()
