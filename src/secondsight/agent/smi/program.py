"""Keep one nvidia-smi running that prints rows on and on, and collect its lines.

Never more than one process: it is started again, later and later, when the one before has ended; one that hangs is
asked to end and otherwise left alone, as killing it may freeze the GPU. Columns are those that both the program and
the catalogue know.
"""

import logging
import os
import re
import subprocess
import threading
from collections.abc import Sequence

from secondsight.agent.smi.columns import column_of
from secondsight.agent.smi.config import SmiSettings
from secondsight.agent.smi.rows import Document, Fault
from secondsight.agent.smi.table import Table
from secondsight.agent.smi.texts import Trouble
from secondsight.clock import Clock

logger = logging.getLogger(__name__)

LOOP_SHARE = 0.9
"""The program sleeps after its work, so it is told a little less than the cadence; of two rows the newer one counts."""

RESTART_MAXIMUM_SECONDS = 60.0
HELP_SECONDS = 30.0
ROWS_MAXIMUM = 20_000
ALWAYS = ("timestamp", "index", "uuid", "pci.bus_id", "name")

_NAMED = re.compile(r'"([a-zA-Z0-9_.]+)"')
_INVALID = re.compile(r'field "([^"]+)" is not a valid field', re.IGNORECASE)


class SmiProgram:
    """Runs the program in a thread of its own; `start` once, `take` again and again, `close` any number of times."""

    def __init__(self, settings: SmiSettings, columns: frozenset[str], clock: Clock) -> None:
        self._settings = settings
        self._wanted = columns
        self._clock = clock
        self._table = Table()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = clock.monotonic_seconds()
        self._starts = 0
        self._invalid: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="smi", daemon=True)

    @property
    def starts(self) -> int:
        """Return how often a process was started to print rows."""
        return self._starts

    def start(self) -> None:
        """Start; does nothing when it was started before."""
        if not self._thread.is_alive() and not self._closing.is_set():
            self._thread.start()

    def take(self) -> Document:
        """Return what was printed since the last call."""
        with self._lock:
            return self._table.drain()

    def silent_seconds(self) -> float:
        """Return for how long nothing was printed while the program ran."""
        process = self._process
        return self._clock.monotonic_seconds() - self._heard if process is not None else 0.0

    def ask_to_end(self) -> None:
        """Ask a process that hangs to end."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def close(self) -> None:
        """Ask the process to end and wait a little for it; a stuck one is left behind."""
        self._closing.set()
        self.ask_to_end()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _run(self) -> None:
        wait_seconds = self._settings.restart_seconds
        while not self._closing.is_set():
            rows = self._once()
            wait_seconds = self._settings.restart_seconds if rows else min(2 * wait_seconds, RESTART_MAXIMUM_SECONDS)
            self._closing.wait(wait_seconds)

    def _once(self) -> int:
        """Run the program until it ends; return how many rows it gave."""
        try:
            command = self._command()
            self._starts += 1
            return self._pump(command)
        except OSError as error:
            self._complain(f"{self._settings.program} cannot be started: {error.strerror or error}")
            return 0

    def _command(self) -> list[str]:
        columns = self._columns()
        loop_ms = max(int(LOOP_SHARE * self._settings.interval_ms), 100)
        query = f"--query-gpu={','.join(columns)}"
        return [str(self._settings.program), query, "--format=csv", f"--loop-ms={loop_ms}"]

    def _columns(self) -> list[str]:
        """Return the columns to ask for, in the spelling of this program."""
        known = list(dict.fromkeys(_NAMED.findall(self._help_text())))
        chosen: dict[str, str] = {name: name for name in ALWAYS}
        for name in known:
            column = column_of(name)[0]
            if column in self._wanted and name not in self._invalid:
                chosen.setdefault(column, name)
        return list(chosen.values())

    def _help_text(self) -> str:
        with self._popen([str(self._settings.program), "--help-query-gpu"]) as process:
            self._process = process
            try:
                return process.communicate(timeout=HELP_SECONDS)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                process.terminate()
                return ""
            finally:
                self._process = None

    def _popen(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ) | {"LC_ALL": "C"},
        )

    def _pump(self, command: Sequence[str]) -> int:
        rows = 0
        self._heard = self._clock.monotonic_seconds()
        with self._popen(command) as process:
            self._process = process
            if self._closing.is_set():
                process.terminate()
            for line in process.stdout or ():
                self._heard = self._clock.monotonic_seconds()
                rows += self._take_line(line.decode(errors="replace"))
            code = process.wait()
        self._process = None
        if not self._closing.is_set():
            self._complain(f"{self._settings.program} ended with {code} after {rows} rows")
        return rows

    def _take_line(self, text: str) -> int:
        invalid = _INVALID.search(text)
        if invalid is not None:
            self._invalid.add(invalid[1])
        with self._lock:
            before = len(self._table.document.rows)
            self._table.feed(text.rstrip("\r\n"), ended=text.endswith("\n"))
            new = len(self._table.document.rows) - before
            if before >= ROWS_MAXIMUM:
                del self._table.document.rows[: ROWS_MAXIMUM // 2]
            return new

    def _complain(self, text: str) -> None:
        """Leave word of why there are no rows, unless the program has said so itself."""
        with self._lock:
            if not self._table.document.faults:
                self._table.document.faults.append(Fault(0, Trouble.DRIVER_AWAY, "", text))
