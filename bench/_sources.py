"""Stand-ins for what a GPU host may run beside its driver: a dcgm-exporter and a kubelet with one pod a GPU."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import _tests  # noqa: F401 # lets the next line find the tests' own server
import kubelet_server
from secondsight.catalog.load import load_catalog
from secondsight.model import EntityKind


@contextmanager
def dcgm_exporter(gpus: int) -> Iterator[str]:
    """Serve every metric of GPUs that has a DCGM name, with new values at each scrape; give the address."""
    names = list(_dcgm_names())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = _exposition(names, gpus)
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _dcgm_names() -> Iterator[str]:
    """Give the first DCGM name of every metric of whole GPUs that has one."""
    for metric in load_catalog().scalars(EntityKind.GPU):
        names = [source.name for source in metric.sources if source.system == "dcgm" and not source.part]
        if names and not metric.labels:
            yield names[0]


def _exposition(names: list[str], gpus: int) -> bytes:
    lines = []
    for name in names:
        lines.append(f"# TYPE {name} gauge")
        for gpu in range(gpus):
            labels = f'gpu="{gpu}",UUID="GPU-bench-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H200",Hostname="bench"'
            lines.append(f"{name}{{{labels}}} {random.randint(0, 1)}")
    return ("\n".join(lines) + "\n").encode()


@contextmanager
def kubelet(folder: Path, gpus: int) -> Iterator[Path]:
    """Serve pod-resources with one pod a GPU; give the socket."""
    serving = kubelet_server.Kubelet()
    serving.pods = [
        kubelet_server.pod(f"train-{gpu}", kubelet_server.container("main", f"GPU-bench-{gpu}")) for gpu in range(gpus)
    ]
    socket = folder / "kubelet.sock"
    with kubelet_server.serving(serving, socket):
        yield socket
