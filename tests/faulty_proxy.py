"""An HTTP proxy in front of one server that loses, refuses or delays requests as a test says."""

import http.client
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("refuse", "reset", "lose", "hang")
"""503 without asking; a closed connection without asking; asked, but no answer; no answer at all for a while."""


class FaultyProxy:
    """Passes requests on to a port of this machine. Close it.

    Attributes:
        fault: Returns which fault a request meets, given its method and path; "" for none.
    """

    def __init__(self, port: int, hang_seconds: float) -> None:
        self.fault: Callable[[str, str], str] = lambda _method, _path: ""
        self.met: list[str] = []
        of_own = {"proxy": self, "target": port, "hang_seconds": hang_seconds}
        handler = type("Handler", (_Handler,), of_own)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop passing requests on."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyProxy
    target: int
    hang_seconds: float
    protocol_version = "HTTP/1.1"

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if self._has_length() else self._chunks()
        fault = self.proxy.fault(self.command, self.path)
        if fault:
            self.proxy.met.append(fault)
        if fault == "hang":
            time.sleep(self.hang_seconds)
        if fault in ("hang", "reset"):
            self.close_connection = True
            return
        if fault == "refuse":
            self._answer(503, [("Retry-After", "0")], b"slow down")
            return
        status, headers, answer = self._ask(body)
        if fault == "lose":
            self.close_connection = True
            return
        self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815 - the library's names

    def _has_length(self) -> bool:
        return "chunked" not in self.headers.get("Transfer-Encoding", "")

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
        connection.request(self.command, self.path, body or None, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), text

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = lengths[0] if self.command == "HEAD" and lengths else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def log_message(self, _format: str, *_: Any) -> None:
        """Say nothing: faults are what the test is about."""
