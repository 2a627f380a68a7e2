"""One Apache Kafka broker (KRaft) on loopback, started from its published jars."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
JARS = REPOSITORY / ".build" / "kafka" / "jars"
START_SECONDS = 90.0
CLUSTER_ID = "c2Vjb25kc2lnaHQtdGVzdHM"

SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
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
QUIET = """
status = error
appender.console.type = Console
appender.console.name = out
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


def why_not() -> str:
    """Return why no broker can be started here, or ""."""
    if shutil.which("java") is None:
        return "java is not installed"
    return "" if any(JARS.glob("kafka_2.13-*.jar")) else f"no Kafka jars: {JARS.parent} is filled by make check"


@dataclass
class Broker:
    """A broker that can be killed and started again at the same address."""

    folder: Path
    port: int
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
def broker(folder: Path) -> Iterator[Broker]:
    """Run a broker for a block."""
    port, controller = _free_port(), _free_port()
    (folder / "server.properties").write_text(SETTINGS.format(port=port, controller=controller, folder=folder))
    (folder / "log4j2.properties").write_text(QUIET)
    words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(folder / "server.properties")]
    subprocess.run([*_java(folder), *words], check=True, capture_output=True, timeout=START_SECONDS)
    running = Broker(folder, port)
    running.start()
    try:
        yield running
    finally:
        running.kill()


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
