"""Put questions to processes of cold reads, and kill those that take too long."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from secondsight.errors import Retryable
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_request import ColdRequest, decode_answer, encode_request, receive, send
from secondsight.store.failures import QueryLimited, StoreBusy

_TIMEOUT = 159
WORKER = (
    "from secondsight.imports import leave_out_unused; leave_out_unused(); "
    "from secondsight.lake.cold_worker import main; main()"
)
START_SECONDS = 20.0
"""What a process that was just started may take longer, for its libraries."""


class ColdPool:
    """Processes that answer cold reads; each is started when it is first needed. Safe from several threads.

    Args:
        config: Where the lake is, and what a question may cost.
        data: Folder of the platform.
    """

    def __init__(self, config: ColdConfig, data: Path) -> None:
        self._config = config
        self._arguments = json.dumps({"cold": plain(config), "data": str(data.absolute())})
        self._free: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(config.processes):
            self._free.put(None)
        self._closed = False

    def query(self, request: ColdRequest) -> Any:
        """Return the rows of a statement over the lake, as an Arrow table.

        Raises:
            Retryable: All processes are busy, the lake is away, or a process died.
            QueryLimited: It took too long, or needs too much.
            StatementFailed: The statement is wrong.
        """
        message = encode_request(request)
        with self._worker() as worker:
            return decode_answer(worker.ask(message, self._config.seconds))

    def warm(self) -> None:
        """Start a process, so that the first question need not wait for it; returns before it is ready."""
        with self._worker():
            pass

    def renew(self) -> None:
        """Have processes that are free end: those that take their place know the catalogue's files of now."""
        for _ in range(self._config.processes):
            try:
                worker = self._free.get_nowait()
            except queue.Empty:
                return
            if worker is not None:
                worker.kill()
            self._free.put(None)

    def close(self) -> None:
        """End all processes; may be called twice. Waits for questions that run."""
        if self._closed:
            return
        self._closed = True
        for _ in range(self._config.processes):
            worker = self._free.get()
            if worker is not None:
                worker.kill()

    @contextmanager
    def _worker(self) -> "Iterator[_Worker]":
        if self._closed:
            raise StoreBusy("cold reads are closed")
        try:
            worker = self._free.get(timeout=self._config.seconds)
        except queue.Empty:
            busy = f"all {self._config.processes} processes of cold reads are busy"
            raise StoreBusy(busy, retry_after_seconds=2.0) from None
        try:
            if worker is not None and not worker.is_alive:
                worker.kill()
                worker = None
            worker = worker or _Worker(self._arguments)
            yield worker
        finally:
            self._free.put(worker)


class _Worker:
    """One process."""

    def __init__(self, arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._is_new = True

    @property
    def is_alive(self) -> bool:
        """Tell whether it can be asked."""
        return self._process.poll() is None

    def ask(self, message: bytes, seconds: float) -> bytes:
        """Return the answer to a message.

        Raises:
            QueryLimited: It took too long; the process is killed.
            Retryable: The process died.
        """
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds + (START_SECONDS if self._is_new else 0), give_up)
        timer.start()
        self._is_new = False
        answer = None
        try:
            assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - pipes
            with suppress(OSError, Retryable):
                send(self._process.stdin, message)
                answer = receive(self._process.stdout)
        finally:
            timer.cancel()
        if answer is not None and not late.is_set():
            return answer
        self.kill()
        if late.is_set():
            raise QueryLimited(_TIMEOUT)
        raise StoreBusy("the process of cold reads ended; it may have needed too much memory", retry_after_seconds=1.0)

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process.wait()


def plain(settings: Any) -> Any:
    """Return settings as what JSON can hold; those that are absent are left out."""
    if is_dataclass(settings) and not isinstance(settings, type):
        found = {each.name: plain(getattr(settings, each.name)) for each in fields(settings)}
        return {name: value for name, value in found.items() if value is not None}
    if isinstance(settings, tuple):
        return [plain(each) for each in settings]
    return str(settings) if isinstance(settings, Path) else settings
