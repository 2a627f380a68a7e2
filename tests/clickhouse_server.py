"""A ClickHouse server on loopback: the engine of chdb-core listening in a process of its own, and TLS before it."""

import functools
import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tls_fixture import make_certificate, tls_server

START_SECONDS = 60.0
SETTINGS = "<clickhouse><http_port>{port}</http_port><listen_host>127.0.0.1</listen_host></clickhouse>"
SERVE = """
import sys
from chdb import _chdb
_chdb.query("SYSTEM START LISTEN HTTP; SELECT count() FROM system.numbers WHERE NOT ignore(sleepEachRow(1)) "
            "SETTINGS max_block_size=1, function_sleep_max_microseconds_per_block=0", "TabSeparated", path=sys.argv[1])
"""


@dataclass
class Server:
    """A server that can be stopped, killed and started again at the same address."""

    folder: Path
    port: int
    settings: str = SETTINGS
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        (self.folder / "clickhouse-local.xml").write_text(self.settings.format(port=self.port))
        with (self.folder / "server.log").open("ab") as out:
            words = [sys.executable, "-c", SERVE, str(self.folder / "data")]
            self.process = subprocess.Popen(words, cwd=self.folder, stdout=out, stderr=out)
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError((self.folder / "server.log").read_text()[-4000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Have the server say nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@contextmanager
def server(folder: Path, settings: str = SETTINGS) -> Iterator[Server]:
    """Run a server for a block."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        running = Server(folder, found.getsockname()[1], settings)
    running.start()
    try:
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests of the session."""
    with server(tmp_path_factory.mktemp("clickhouse")) as running:
        yield running


@dataclass
class Front:
    """TLS before a server, with a user whose password is wanted."""

    url: str
    ca_file: Path
    user: str = "fleet"
    password: str = "pass word\\with'signs"


@contextmanager
def front(running: Server, folder: Path) -> Iterator[Front]:
    """Serve a server over TLS to one user."""
    certificate = make_certificate(folder / "front")
    made = Front("", certificate[0])
    with tls_server(certificate, functools.partial(_pass_on, running, made)) as url:
        made.url = url
        yield made


def _pass_on(running: Server, front: Front, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    told = (handler.headers.get("X-ClickHouse-User"), handler.headers.get("X-ClickHouse-Key"))
    if told != (front.user, front.password):
        text = b"Code: 516. DB::Exception: Authentication failed (AUTHENTICATION_FAILED)"
        return _answer(handler, 403, text, "516")
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    kept = {name: value for name, value in handler.headers.items() if name in ("Content-Type", "Content-Length")}
    connection.request("POST", handler.path, body, kept)
    answer = connection.getresponse()
    _answer(handler, answer.status, answer.read(), answer.getheader("X-ClickHouse-Exception-Code", ""))
    connection.close()
    return None


def _answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, code: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    if code:
        handler.send_header("X-ClickHouse-Exception-Code", code)
    handler.end_headers()
    handler.wfile.write(body)


class BrokenAnswers:
    """A server before a server that takes every request, passes it on, and breaks the connection instead of answering.

    The first `count` requests meet that; all others are answered.
    """

    def __init__(self, running: Server, count: int) -> None:
        self.left = count
        self._running = running
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, socket.create_connection(("127.0.0.1", self._running.port)) as inner:
                self._carry(connection, inner)

    def _carry(self, connection: socket.socket, inner: socket.socket) -> None:
        connection.settimeout(0.2)
        inner.settimeout(5)
        try:
            while data := connection.recv(1 << 16):
                inner.sendall(data)
        except TimeoutError:
            pass
        answer = inner.recv(1 << 16)
        if self.left:
            self.left -= 1
            return
        connection.sendall(answer)
