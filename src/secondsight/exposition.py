"""Answer `GET /metrics` and `GET /healthz` of a part, on a thread of its own.

The address is written to a file beside the store's, as the port is free to choose.
"""

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from secondsight.errors import Rejected, SecondsightError

logger = logging.getLogger(__name__)

SUFFIX = ".metrics"
"""Of the file in `run/` that holds a part's address."""


class MetricsServer:
    """Serves what `render` returns until it is closed, one request after another.

    Args:
        listen: HOST:PORT; port 0 is any free one.
        path: File for the address.
        render: Gives the exposition; called in a thread of the server.

    Raises:
        Rejected: `bad_listen`; the address cannot be listened on.
    """

    def __init__(self, listen: str, path: Path, render: Callable[[], str]) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._server = HTTPServer((host or "127.0.0.1", int(port)), _handler(render))
        except (OSError, ValueError, OverflowError) as error:
            raise Rejected("bad_listen", f"metrics cannot be served on {listen!r}: {error}", "say HOST:PORT") from error
        self._path = path
        self.address = "http://{}:{}".format(*self._server.server_address[:2])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.address)
        self._thread.start()

    def close(self) -> None:
        """Stop and remove the address; may be called twice."""
        self._path.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(render: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path == "/healthz":
                self._answer(200, "ok\n")
            elif self.path == "/metrics":
                try:
                    text = render()
                except (SecondsightError, OSError, RuntimeError) as error:
                    logger.warning("metrics were not shown: %s", error)
                    self._answer(503, f"{error}\n")
                    return
                self._answer(200, text)
            else:
                self._answer(404, "there are /metrics and /healthz\n")

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            logger.debug(format, *arguments)

    return Handler
