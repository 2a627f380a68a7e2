"""Serve texts over real HTTP as exporters do, each so many times, and run a real agent that scrapes them."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
STOP_SECONDS = 30


@dataclass
class Exporter:
    """Bodies by path: each path gives its bodies one after the other, then 503 for ever.

    Attributes:
        bodies: Path -> (content type, bodies).
        given: Path -> bodies given so far.
    """

    bodies: dict[str, tuple[str, Sequence[bytes]]]
    given: Counter[str] = field(default_factory=Counter)
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_done(self) -> bool:
        """Tell whether every body was given."""
        return all(self.given[path] == len(bodies) for path, (_, bodies) in self.bodies.items())

    def next(self, path: str) -> tuple[str, bytes] | None:
        """Return what a path gives now."""
        kind, bodies = self.bodies[path]
        with self._lock:
            if self.given[path] == len(bodies):
                return None
            self.given[path] += 1
            return kind, bodies[self.given[path] - 1]


@contextmanager
def serving(bodies: dict[str, tuple[str, Sequence[bytes]]]) -> Iterator[Exporter]:
    """Serve on a free port of loopback."""
    exporter = Exporter(bodies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = exporter.next(self.path)
            kind, body = found or (TEXT, b"")
            self.send_response(200 if found else 503)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    exporter.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield exporter
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def agent(config: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `secondsight agent` on a settings file; its words go to a file beside it."""
    with config.with_suffix(".log").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "secondsight", "agent", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(os.environ),
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def agent_toml(settings: dict[str, object], targets: Sequence[dict[str, object]]) -> str:
    """Return the settings of an agent as TOML; values are numbers, booleans and plain texts."""
    lines = ["[agent]", *(f"{name} = {_value(value)}" for name, value in settings.items())]
    for target in targets:
        lines += ["", "[[agent.scrape]]", *(f"{name} = {_value(value)}" for name, value in target.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f'"{value}"'
