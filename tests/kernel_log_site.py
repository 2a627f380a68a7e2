"""A host with a kernel log, read look by look, for tests."""

import shutil
from pathlib import Path
from typing import Any

from secondsight.agent.bootfile import BootFile
from secondsight.agent.counts import Counts
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.kmsg.heard import HeardXids
from secondsight.agent.kmsg.reader import HEALTHY_FILE, KernelLogReader, LogHost
from secondsight.agent.kmsg.untold import UntoldXids
from secondsight.agent.known_gpus import KnownGpus
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.wire.content import Event
from tick_cells import cells_of

BOOT_MS = 1_700_000_000_000
ACCOUNTED = ("known", "ignored", "detail", "reported", "collapsed", "flood")
PLAIN = ("investigate", "mnemonic", "class", "source", "monotonic_us", "uuid", "xid", "sxid", "rule")
"""Attributes that follow from others, left out of expected results."""


class Site:
    """A root folder with a log, a clock that stands still, and a reader that can be restarted."""

    def __init__(self, root: Path, *, up_seconds: float = 10_000, **settings: Any) -> None:
        self.root = root
        self.log = root / "dev/kmsg"
        self.manager_log = root / "var/log/fabricmanager.log"
        for path in (self.log, self.manager_log):
            path.parent.mkdir(parents=True)
        self.clock = ManualClock(BOOT_MS)
        self.clock.move(up_seconds)
        self.counts, self.heard = Counts(), HeardXids()
        self.boot = 1
        self.settings = settings
        self.events: dict[tuple[Any, ...], Event] = {}
        self.versions: list[Event] = []
        self.cells: dict[str, Any] = {}
        self.reader = self._reader()

    def _reader(self) -> KernelLogReader:
        boot_id = f"boot-{self.boot}" if self.boot else ""
        state_file = self.root / "spool/kernel-log/state.json"
        self.untold = UntoldXids(BootFile(state_file.with_name("untold-xids.json"), boot_id, self.counts))
        host = LogHost("host-1", "r1", self.root, boot_id, state_file, KnownGpus("host-1"), self.heard, self.untold)
        return KernelLogReader(KernelLogConfig(**self.settings), host, load_catalog(), self.clock, self.counts)

    def gpu(self, address: str, uuid: str) -> None:
        """Let the driver list a GPU."""
        folder = self.root / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t {address}\n"
        )

    def write(self, *lines: str) -> None:
        with self.log.open("a") as out:
            out.writelines(line + "\n" for line in lines)

    def look(self) -> Tick:
        self.clock.move(1)
        tick = self.reader.read(self.clock.now_ms())
        self.cells = {}
        for content in tick.contents:
            self.cells |= cells_of(content, with_entity=True)
            for event in content.events:
                self.versions.append(event)
                key = (event.metric, event.entity, event.part, event.time_ms, event.code, event.attributes.get("text"))
                if key not in self.events or self.events[key].version < event.version:
                    self.events[key] = event
        return tick

    def restart(self, *, clean: bool = True) -> None:
        """Start the reader anew, after a clean end or a kill."""
        if clean:
            self.reader.close()
        else:
            self.die()
        self.reader = self._reader()

    def die(self) -> None:
        """Let go of the logs as the end of the process does: nothing is kept."""
        for feed in self.reader._feeds:
            feed.records.source.close()

    def reboot(self) -> None:
        """Boot the host: an empty log, a new boot id, a clock that counts from 0."""
        self.reader.close()
        wall_ms = self.clock.now_ms() + 60_000
        self.clock = ManualClock(wall_ms)
        self.log.unlink(missing_ok=True)
        self.boot += 1
        self.reader = self._reader()

    def say_healthy(self) -> None:
        path = self.root / "spool/kernel-log" / HEALTHY_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch()

    def wipe(self) -> None:
        shutil.rmtree(self.root / "spool", ignore_errors=True)

    @property
    def tally(self) -> dict[str, int]:
        return {name: count for name, count in self.counts.labelled("kernel_log").items() if count}

    @property
    def is_balanced(self) -> bool:
        tally = self.counts.labelled("kernel_log")
        return tally.get("read", 0) == sum(tally.get(name, 0) for name in ACCOUNTED)

    def said(self) -> list[dict[str, Any]]:
        """Return the events as they stand, in order of time, without what follows from the rest."""
        found = sorted(self.events.values(), key=_in_order)
        return [told(event) for event in found]


def _in_order(event: Event) -> tuple[Any, ...]:
    return (event.time_ms, event.metric, event.entity, event.code, event.part, event.attributes.get("text", ""))


def told(event: Event) -> dict[str, Any]:
    attributes = {name: value for name, value in event.attributes.items() if name not in PLAIN}
    return {
        "event": f"{event.metric} {event.code}",
        "entity": f"{event.entity} {event.part}".strip(),
        "ms": event.time_ms - BOOT_MS,
        **({"end_ms": event.end_ms - BOOT_MS} if event.end_ms is not None else {}),
        **attributes,
    }
