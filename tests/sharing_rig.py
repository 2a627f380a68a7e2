"""Stages as processes of their own over one Kafka and one ClickHouse server: a gateway, and processors by name."""

import http.client
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from clickhouse_server import Server
from kafka_broker import Broker
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.clock import SystemClock
from up_rig import request, wait_until

PARTITIONS = 6
SESSION_SECONDS = 6
SETTINGS = """
[gateway]
data = "{data}"
listen = "127.0.0.1:{port}"
partitions = {partitions}
[gateway.kafka]
brokers = "{brokers}"
prefix = "{prefix}"
replication = 1
[processor]
data = "{data}"
[processor.kafka]
brokers = "{brokers}"
prefix = "{prefix}"
instance = "{instance}"
session_seconds = {session}
[processor.clickhouse]
url = "{url}"
database = "{database}"
"""


@dataclass
class Stages:
    """The processes; each part is `gateway` or the name of a processor."""

    data: Path
    broker: Broker
    server: Server
    name: str
    port: int = 0
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    token: str = ""

    def __post_init__(self) -> None:
        self.data.mkdir(parents=True)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        metadata = open_metadata(str(self.data / "metadata.sqlite"))
        spec = TokenSpec(Role.COLLECTOR, "t1", "sender", cluster_id="k1", region="eu", collector_pattern="*")
        self.token = create_token(metadata, spec, SystemClock().now_ms()).secret
        metadata.dispose()

    def start(self, part: str) -> None:
        settings = self.data / f"{part}.toml"
        told = {"data": self.data, "port": self.port, "instance": part, "partitions": PARTITIONS}
        told |= {"brokers": self.broker.address, "prefix": f"{self.name}.", "session": SESSION_SECONDS}
        settings.write_text(SETTINGS.format(**told, url=self.server.url, database=self.name))
        command = "gateway" if part == "gateway" else "processor"
        with (self.data / f"{part}.log").open("ab") as out:
            words = [sys.executable, "-m", "secondsight", command, "--config", str(settings)]
            self.running[part] = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        if part == "gateway":
            wait_until(self._answers, 60)

    def kill(self, part: str) -> None:
        self.running[part].kill()
        self.running.pop(part).wait()

    def stop(self, part: str) -> int:
        self.running[part].send_signal(signal.SIGTERM)
        return self.running.pop(part).wait(60)

    def pause(self, part: str) -> None:
        self.running[part].send_signal(signal.SIGSTOP)

    def go_on(self, part: str) -> None:
        self.running[part].send_signal(signal.SIGCONT)

    def end(self) -> None:
        for part in list(self.running):
            self.kill(part)

    def words(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.data.glob("*.log")))

    def post(self, body: bytes) -> None:
        """Send until it is acknowledged."""
        end = time.monotonic() + 60
        headers = {"Content-Type": "application/x-secondsight-frame"}
        while True:
            try:
                status, answer = request(self.address, "POST", "/v1/frames", self.token, body, **headers)
            except (OSError, http.client.HTTPException):
                status, answer = 0, b""
            if status == 200:
                assert b'"rejected":[]' in answer.replace(b" ", b""), answer
                return
            assert status in (0, 429, 503), (status, answer)
            assert time.monotonic() < end, self.words()
            time.sleep(0.2)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def held(self) -> dict[str, int]:
        """Return processor -> how many partitions the group has given it."""
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        (future,) = admin.describe_consumer_groups([f"{self.name}.processor"]).values()
        prefix = f"{self.name}.processor-"
        try:
            described = future.result(30)
        except (KafkaException, TimeoutError):  # the broker has just started
            return {}
        return {
            str(member.group_instance_id).removeprefix(prefix): len(member.assignment.topic_partitions)
            for member in described.members
        }

    def _answers(self) -> bool:
        assert self.running["gateway"].poll() is None, self.words()
        try:
            return request(self.address, "GET", "/healthz", "")[0] == 200
        except OSError:
            return False
