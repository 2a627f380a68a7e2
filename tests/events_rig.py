"""A gateway, a processor over its log, a store and an api in one process: what goes in shows in tables and answers."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api_client import Answer, Client
from api_client import serving as serving_api
from gateway_fixture import NOW_MS, Reply, Running, serving
from secondsight.access.identity import Role
from secondsight.access.scope import Grant
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.log.embedded import EmbeddedConsumer
from secondsight.log.topics import DEFINITIONS_TOPIC, INGEST_TOPIC, PROCESSOR_GROUP
from secondsight.process.run import Processor
from secondsight.store.chdb import ChdbStore

__all__ = ["NOW_MS", "Platform", "platform"]


class Platform:
    """The parts; `settle` has everything that was sent written. A part may be replaced, as after an upgrade."""

    def __init__(self, run: Running, store: ChdbStore, clock: ManualClock, catalogue: tuple[Path, ...] = ()) -> None:
        self.run, self.store, self.clock, self.catalogue = run, store, clock, catalogue
        self.token = run.token(name="ops")
        self.tokens = {
            role.value: run.token(role=role, name=role.value, grants=(Grant("t1"),))
            for role in (Role.OPERATOR, Role.VIEWER)
        }
        self.tokens["other"] = run.token(role=Role.OPERATOR, name="other", tenant_id="t2", grants=(Grant("t2"),))
        self.start()

    def start(self) -> None:
        """Make a processor, which reads from the last commit on."""
        root = self.run.config.data / "log"
        self.processor = Processor(
            EmbeddedConsumer(root, INGEST_TOPIC, PROCESSOR_GROUP, self.clock),
            lambda: EmbeddedConsumer(root, DEFINITIONS_TOPIC, "definitions", self.clock),
            self.store,
            load_catalog(self.catalogue),
            self.clock,
        )

    def stop(self) -> None:
        """End the processor without a word."""
        self.processor.close()

    def settle(self) -> None:
        """Let everything become due and be written."""
        for _ in range(5):
            self.processor.drain()
            self.clock.move(31)
        self.processor.drain()

    def events(self, body: Any, token: str = "", content_type: str = "application/json", **headers: str) -> Reply:
        """Post events; bytes are sent as they are."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content-Type": content_type, "Authorization": f"Bearer {token or self.token}"}
        return self.run.call("POST", "/v1/events", sent, named | {k.replace("_", "-"): v for k, v in headers.items()})

    def rows(self, table: str, columns: str = "*", where: str = "1", order: str = "ALL") -> list[dict[str, Any]]:
        """Return rows of a table."""
        found = self.store.query(f"SELECT {columns} FROM {table} FINAL WHERE {where} ORDER BY {order}")
        return list(found.to_pylist())

    @contextlib.contextmanager
    def api(self) -> Iterator["Api"]:
        """Serve the api over the same store and metadata."""
        config = ApiConfig(
            data=self.run.config.data, static=self.run.config.data, gateway=f"http://127.0.0.1:{self.run.port}"
        )
        catalog = load_catalog(self.catalogue)
        services = make_services(config, Borrowed(self.store), self.run.stores.metadata, catalog, self.clock)
        with serving_api(make_app(services), config) as client:
            yield Api(client, self.tokens)


class Borrowed:
    """A store that is closed by its owner."""

    def __init__(self, store: ChdbStore) -> None:
        self.query, self.insert = store.query, store.insert

    def close(self) -> None:
        pass


class Api:
    """Asks an api as somebody."""

    def __init__(self, client: Client, tokens: dict[str, str]) -> None:
        self.client, self.tokens = client, tokens

    def ask(self, method: str, path: str, who: str = "operator", body: Any = None, **params: Any) -> Answer:
        from urllib.parse import urlencode

        named = {key.rstrip("_"): value for key, value in params.items()}
        target = f"{path}?{urlencode(named)}" if named else path
        headers = {"authorization": f"Bearer {self.tokens[who]}", "content-type": "application/json"}
        return self.client.request(method, target, None if body is None else json.dumps(body), headers)

    def get(self, path: str, who: str = "operator", **params: Any) -> Any:
        answer = self.ask("GET", path, who, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def platform(
    folder: Path,
    store: ChdbStore,
    catalogue: tuple[Path, ...] = (),
    clock: ManualClock | None = None,
    **settings: Any,
) -> Iterator[Platform]:
    """Serve a platform whose log lies in a folder of its own."""
    clock = clock or ManualClock(NOW_MS)
    with serving(folder, clock, catalogue=catalogue, **settings) as run:
        made = Platform(run, store, clock, catalogue)
        try:
            yield made
        finally:
            made.stop()
