"""An api whose store is away: what it says of sign-in, tokens and tenants needs none."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Self

from api_client import Client, serving
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.store.client import FlightStore

NOW_MS = 1_700_000_000_000


class Front:
    """The api, the clock that it reads, and tokens by name."""

    client: Client

    def __init__(self, config: ApiConfig, specs: Mapping[str, TokenSpec]) -> None:
        self.config = config
        self.clock = ManualClock(NOW_MS)
        self.metadata = open_metadata(config.metadata_address)
        store = FlightStore(config.store_address)
        self.services = make_services(config, store, self.metadata, load_catalog(), self.clock)
        self.issued = {name: create_token(self.metadata, spec, NOW_MS) for name, spec in specs.items()}
        self._opened = ExitStack()

    def open(self) -> Client:
        """Return the client of another browser."""
        client = Client(self.client.port)
        self._opened.callback(client.close)
        return client

    @contextmanager
    def served(self) -> Iterator[Self]:
        with serving(make_app(self.services), self.config) as self.client, self._opened:
            yield self
