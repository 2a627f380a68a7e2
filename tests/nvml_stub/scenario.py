"""Write scenarios of the stub: a machine is a text file, replaced in one step whenever a test changes it.

README.md beside this file gives the lines. A test states lines; what it states later wins.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "SECONDSIGHT_NVML_SCENARIO"


@dataclass(slots=True)
class Machine:
    """The GPUs that processes with this scenario see.

    Attributes:
        path: The scenario file.
        lines: What it holds; change it through the methods, which write the file.
    """

    path: Path
    lines: list[str] = field(default_factory=list)

    def __init__(self, path: Path, *lines: str) -> None:
        self.path = path
        self.lines = []
        self.append(*lines)

    def append(self, *lines: str) -> None:
        """State more, over what was stated before; every process sees it within 5 ms of its next call."""
        self.lines += [line for text in lines for line in text.splitlines()]
        self._write()

    def replace(self, *lines: str) -> None:
        """Begin anew."""
        self.lines = []
        self.append(*lines)

    def event(self, slot: int, what: str) -> None:
        """Report an event of a GPU, such as `xid 79`; every event set gets it once."""
        serial = 1 + sum(line.startswith("event ") for line in self.lines)
        self.append(f"event {serial} gpu {slot} {what}")

    @contextmanager
    def while_stated(self, *lines: str) -> Iterator[None]:
        """State lines within a block, and take them back after it."""
        before = list(self.lines)
        self.append(*lines)
        try:
            yield
        finally:
            self.replace(*before)

    def environment(self, library: Path) -> dict[str, str]:
        """Return the variables under which a new process sees this machine through the stub in `library`."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        path = f"{library}:{inherited}" if inherited else str(library)
        return {VARIABLE: str(self.path), "LD_LIBRARY_PATH": path}

    def _write(self) -> None:
        waiting = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        waiting.write_text("".join(f"{line}\n" for line in self.lines))
        waiting.replace(self.path)
