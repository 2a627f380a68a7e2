"""Run a real agent on a clock that a test sets: the machine's own plus the milliseconds in a file. Run by its tests."""

import mmap
import os
import sys
import threading
from pathlib import Path

from secondsight.agent.config import AgentConfig
from secondsight.agent.run import run_agent
from secondsight.cli import _stop_event
from secondsight.clock import SystemClock
from secondsight.config import build, read_settings


class SetClock(SystemClock):
    """The machine's clock, stepped by what stands in a file: 8 bytes, signed, little-endian, milliseconds."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

    def now_ms(self) -> int:
        return super().now_ms() + int.from_bytes(self._map[:8], "little", signed=True)


def main() -> None:
    settings = build(AgentConfig, read_settings(Path(sys.argv[1]), dict(os.environ), "agent"), "agent")
    stop: threading.Event = _stop_event()
    run_agent(settings, SetClock(Path(sys.argv[2])), stop)


if __name__ == "__main__":
    main()
