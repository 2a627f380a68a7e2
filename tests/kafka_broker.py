"""One Apache Kafka broker (KRaft) on loopback, started from its published jars; it listens with TLS and SASL too."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest

REPOSITORY = Path(__file__).parent.parent
JARS = REPOSITORY / ".build" / "kafka" / "jars"
START_SECONDS = 90.0
CLUSTER_ID = "c2Vjb25kc2lnaHQtdGVzdHM"

SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=20000000
log.flush.interval.messages=1
"""
SECURE = """
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={plain}
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram}
"""
LOGIN = "org.apache.kafka.common.security"
USER, PLAIN_PASSWORD, SCRAM_PASSWORD = "fleet", "plain pass word", "scram pass word"
QUIET = """
status = error
appender.console.type = Console
appender.console.name = out
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


def why_not() -> str:
    """Return why no broker can be started here, or ""."""
    if which("java") is None:
        return "java is not installed"
    return "" if any(JARS.glob("kafka_2.13-*.jar")) else f"no Kafka jars: {JARS.parent} is filled by make check"


@dataclass
class Broker:
    """A broker that can be killed and started again at the same address."""

    folder: Path
    port: int
    ssl_port: int = 0
    sasl_port: int = 0
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """Return HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as out:
            self.process = subprocess.Popen(
                [*_java(self.folder), "kafka.Kafka", str(self.folder / "server.properties")], stdout=out, stderr=out
            )
        end = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError((self.folder / "broker.log").read_text()[-4000:])
            time.sleep(0.1)

    def kill(self) -> None:
        """End the broker without warning."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def broker(folder: Path, *, secure: bool = False) -> Iterator[Broker]:
    """Run a broker for a block; `secure` gives it listeners with TLS, with client certificates or SASL."""
    ports = [_free_port() for _ in range(4)]
    running = Broker(folder, ports[0], *(ports[2:] if secure else ()))
    _write_settings(running, ports[1])
    (folder / "log4j2.properties").write_text(QUIET)
    words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(folder / "server.properties")]
    words += ["--add-scram", f"SCRAM-SHA-512=[name={USER},password={SCRAM_PASSWORD}]"] if secure else []
    subprocess.run([*_java(folder), *words], check=True, capture_output=True, timeout=START_SECONDS)
    running.start()
    try:
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all tests of the session."""
    if why_not():
        pytest.skip(why_not())
    with broker(tmp_path_factory.mktemp("kafka"), secure=which("openssl") is not None) as running:
        yield running


def _write_settings(running: Broker, controller: int) -> None:
    folder, settings, listeners = running.folder, "", ""
    if running.ssl_port:
        _make_certificates(folder)
        listeners = f",SSL://127.0.0.1:{running.ssl_port},SASL_SSL://127.0.0.1:{running.sasl_port}"
        plain = f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PLAIN_PASSWORD}";'
        settings = SECURE.format(folder=folder, plain=plain, scram=f"{LOGIN}.scram.ScramLoginModule required;")
    whole = SETTINGS.format(port=running.port, controller=controller, folder=folder, listeners=listeners)
    (folder / "server.properties").write_text(whole + settings)


def _make_certificates(folder: Path) -> None:
    """Make an authority, and a key and certificate of it for the broker and for a client, as PEM files."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    _openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "9", "-subj", "/CN=ca")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9", "-extfile", "names"]
    for name in ("broker", "client"):
        _openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.crt")
    whole = [(folder / name).read_text() for name in ("broker.key", "broker.crt")]
    (folder / "broker.pem").write_text("".join(whole))


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)


def _java(folder: Path) -> list[str]:
    memory = ["-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    return ["java", *memory, logging, f"-Dkafka.logs.dir={folder}", "-cp", f"{JARS}{os.sep}*"]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
