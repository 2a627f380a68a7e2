"""Certificates of a day, long expired or of another name, and a server on loopback that shows them."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which

import pytest

needs_openssl = pytest.mark.skipif(which("openssl") is None, reason="needs openssl to make a certificate")

_CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = {name}
basicConstraints = critical, CA:TRUE
"""


def make_certificate(folder: Path, name: str = "IP:127.0.0.1", *, end: str = "20991231000000Z") -> tuple[Path, Path]:
    """Make a certificate that signs itself, as (certificate, key); `end` is YYYYMMDDHHMMSSZ."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key, config = folder / "certificate.pem", folder / "key.pem", folder / "openssl.cnf"
    config.write_text(_CONFIG.format(folder=folder, name=name))
    (folder / "index").write_text("")
    (folder / "serial").write_text("01\n")
    ask = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=secondsight test"]
    _openssl(*ask, "-keyout", str(key), "-out", str(folder / "request.pem"))
    sign = ["ca", "-batch", "-selfsign", "-config", str(config), "-keyfile", str(key), "-notext"]
    times = ["-startdate", "20200101000000Z", "-enddate", end]
    _openssl(*sign, *times, "-in", str(folder / "request.pem"), "-out", str(certificate))
    return certificate, key


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)


@contextmanager
def tls_server(
    certificate: tuple[Path, Path], respond: Callable[[BaseHTTPRequestHandler, bytes], None]
) -> Iterator[str]:
    """Serve over TLS on a free port of loopback; `respond` gets the handler and the body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            respond(self, self.rfile.read(int(self.headers.get("content-length", 0))))

        do_POST = do_GET  # noqa: N815 # the name that http.server looks for

        def log_message(self, *_arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: object) -> None:
            """Callers that do not trust the certificate go away; that is what is tested."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
