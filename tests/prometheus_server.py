"""Run senders that are not ours: a real Prometheus, or vmagent, that scrapes over loopback and writes to a gateway."""

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
VMAGENT = shutil.which("vmagent")
BUILD = Path(__file__).parents[1] / ".build"
CURRENT = "v0.316.0"
"""The module's version of a current Prometheus, which is 3.16."""
WAIT_SECONDS = 60
STOP_SECONDS = 20

CONFIG = """
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: dcgm-exporter
    honor_labels: true
    static_configs:
      - targets: ["127.0.0.1:{exporter}"]
"""
REMOTE_WRITE = """
remote_write:
  - url: http://127.0.0.1:{gateway}/api/v1/write
    authorization:
      credentials_file: {token}
    queue_config:
      batch_send_deadline: 1s
      max_samples_per_send: 20
"""


@contextmanager
def exporter(page: Callable[[], str]) -> Iterator[int]:
    """Serve what `page` gives at every scrape, and give the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page().encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def prometheus(
    folder: Path, exporter_port: int, gateway_port: int, token: str, current: tuple[str, str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Prometheus that scrapes every second and writes on, in small requests.

    Args:
        current: Another program, and what its configuration says of scrapes and of remote write beyond the usual.
    """
    program, of_scrapes, of_writes = current or (PROMETHEUS, "", "")
    assert program is not None
    config, secret = folder / "prometheus.yml", folder / "token"
    secret.write_text(token)
    words = CONFIG + of_scrapes + REMOTE_WRITE + of_writes
    config.write_text(words.format(exporter=exporter_port, gateway=gateway_port, token=secret))
    yield from _running(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{_free_port()}",
        ],
        folder,
    )


def current_prometheus() -> str:
    """Return the path of a current Prometheus; it is built from its module once, which takes minutes.

    Raises:
        LookupError: It cannot be built here.
    """
    program, go = BUILD / f"prometheus-{CURRENT}", shutil.which("go")
    if program.exists():
        return str(program)
    if go is None:
        raise LookupError("there is no go on this machine to build a current Prometheus with")
    module = [go, "mod", "download", "-json", f"github.com/prometheus/prometheus@{CURRENT}"]
    told = subprocess.run(module, capture_output=True, text=True, check=False)
    if told.returncode:
        raise LookupError(f"the module of Prometheus cannot be had: {told.stderr[-200:]}")
    source = BUILD / "prometheus-source"
    shutil.copytree(json.loads(told.stdout)["Dir"], source, dirs_exist_ok=True, copy_function=shutil.copy)
    command = [go, "build", "-mod=mod", "-tags=remove_all_sd", "-o", str(program), "./cmd/prometheus"]
    own = {**os.environ, "GOWORK": "off"}
    built = subprocess.run(command, cwd=source, env=own, capture_output=True, text=True, check=False)
    if built.returncode:
        raise LookupError(f"Prometheus cannot be built: {built.stderr[-400:]}")
    return str(program)


@contextmanager
def prometheus_of(folder: Path, exposition: str) -> Iterator[int]:
    """Run a Prometheus that holds the samples of an OpenMetrics text and scrapes nothing; give its port.

    Where there is none, what asks for it is skipped.
    """
    if PROMETHEUS is None or PROMTOOL is None:
        pytest.skip("there is no prometheus on this machine (Debian package prometheus)")
    text, config, blocks = folder / "samples.om", folder / "empty.yml", folder / "blocks"
    text.write_text(exposition)
    config.write_text("global: {}\n")
    made = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
    subprocess.run(made, check=True, capture_output=True)
    port = _free_port()
    command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={blocks}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y"]
    for _ in _running(command, folder):
        wait_until(lambda: _is_ready(port), (folder / "sender.log").read_text)
        yield port


@contextmanager
def vmagent(folder: Path, exporter_port: int, gateway_port: int, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a vmagent that scrapes every second and writes on."""
    assert VMAGENT is not None
    config, secret = folder / "scrape.yml", folder / "token"
    secret.write_text(token)
    config.write_text(CONFIG.format(exporter=exporter_port))
    yield from _running(
        [
            VMAGENT,
            f"-promscrape.config={config}",
            f"-remoteWrite.url=http://127.0.0.1:{gateway_port}/api/v1/write",
            f"-remoteWrite.bearerTokenFile={secret}",
            f"-remoteWrite.tmpDataPath={folder / 'vmagent'}",
            f"-httpListenAddr=127.0.0.1:{_free_port()}",
        ],
        folder,
    )


def wait_until(is_so: Callable[[], bool], words: Callable[[], str] = lambda: "") -> None:
    """Wait for something that is bound to happen."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, words()
        time.sleep(0.2)


def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "sender.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_ready(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
