"""A small HTTP proxy on loopback: tunnels for HTTPS, whole addresses for HTTP, and a password if wanted."""

import base64
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Passed:
    """What went through: the address of the proxy, and where requests went."""

    url: str = ""
    targets: list[str] = field(default_factory=list)


@contextmanager
def proxy_server(credentials: str = "") -> Iterator[Passed]:
    """Serve until the end of the block; `credentials` is USER:PASSWORD that callers must show."""
    passed = Passed()
    wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}" if credentials else None

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            if self._may():
                host, _, port = self.path.rpartition(":")
                with socket.create_connection((host.strip("[]"), int(port)), 10) as far:
                    self.send_response(200)
                    self.end_headers()
                    _splice(self.connection, far)
            self.close_connection = True

        def do_GET(self) -> None:
            if not self._may():
                return
            _pass_on(self)

        do_POST = do_GET  # noqa: N815 # the name that http.server looks for

        def _may(self) -> bool:
            if wanted is not None and self.headers.get("proxy-authorization") != wanted:
                self.send_response(407)
                self.send_header("content-length", "0")
                self.end_headers()
                return False
            passed.targets.append(f"{self.command} {self.path}")
            return True

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    shown = f"{credentials}@" if credentials else ""
    passed.url = f"http://{shown}127.0.0.1:{server.server_port}"
    try:
        yield passed
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pass_on(handler: BaseHTTPRequestHandler) -> None:
    """Ask the server that the request names, and answer what it answers."""
    parts = urlsplit(handler.path)
    body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
    far = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=10)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = {name: text for name, text in handler.headers.items() if not name.lower().startswith("proxy")}
    far.request(handler.command, target, body or None, headers)
    answer = far.getresponse()
    found = answer.read()
    handler.send_response(answer.status)
    for name, text in answer.getheaders():
        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
            handler.send_header(name, text)
    handler.send_header("content-length", str(len(found)))
    handler.end_headers()
    handler.wfile.write(found)
    far.close()


def _splice(near: socket.socket, far: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    with selectors.DefaultSelector() as ready:
        ready.register(near, selectors.EVENT_READ, far)
        ready.register(far, selectors.EVENT_READ, near)
        while True:
            for key, _ in ready.select(10):
                data = key.fileobj.recv(1 << 16)
                if not data:
                    return
                key.data.sendall(data)
