"""Serve an ASGI application by a real uvicorn in a thread, and talk to it over a socket."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import decompress
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from secondsight.api.config import ApiConfig
from secondsight.api.run import ApiServer


@dataclass(frozen=True)
class Answer:
    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """One keep-alive connection at a time; remembers cookies."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookies: dict[str, str] = {}
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        sent = dict(headers or {})
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        self._connection.request(method, path, body, sent)
        response = self._connection.getresponse()
        content = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        for told in [value for name, value in response.getheaders() if name.lower() == "set-cookie"]:
            name, _, value = told.split(";")[0].partition("=")
            self.cookies.pop(name, None)
            self.cookies |= {} if value.strip('"') == "" else {name: value}
        if found.get("content-encoding") == "gzip":
            content = decompress(content)
        return Answer(response.status, found, content)

    def get(
        self, path: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self.request("GET", f"{path}?{urlencode(params)}" if params else path, headers=headers)

    def post(self, path: str, body: Any) -> Answer:
        return self.request("POST", path, json.dumps(body), {"content-type": "application/json"})

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving(app: Any, config: ApiConfig) -> Iterator[Client]:
    """Serve until the block ends; fails when the server does not start or stop within 20 s."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = ApiServer(app, config, getattr(app, "leave", lambda: None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    client = Client(listening.getsockname()[1])
    try:
        until = time.monotonic() + 20
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        assert server.started
        yield client
    finally:
        client.close()
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert not thread.is_alive()
