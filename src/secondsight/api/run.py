"""Run an api: open what it reads from, serve until told to stop."""

import uvicorn

from secondsight.access.metadata import open_metadata
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.forward import App
from secondsight.api.services import Services, make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.gateway.connection import Connection
from secondsight.gateway.run import Server, open_listening
from secondsight.store.client import FlightStore


def serve_api(config: ApiConfig, clock: Clock) -> None:
    """Serve until SIGTERM or SIGINT; blocks. Requests that run are answered first.

    Raises:
        Rejected(bad_config): `listen` or `gateway` is no address, or a catalogue file is wrong.
        Retryable, Permanent: The metadata store cannot be opened.
        OSError: The address is taken.
    """
    listening = open_listening(config.listen)
    app = make_app(open_services(config, clock))
    Server(server_config(app, config)).run(sockets=[listening])


def open_services(config: ApiConfig, clock: Clock) -> Services:
    """Open the metadata store; the store's server may start later.

    Raises:
        Retryable, Permanent: The metadata store cannot be opened.
    """
    catalog, store = load_catalog(config.catalogue), _open_store(config, clock)
    return make_services(config, store, open_metadata(config.metadata_address), catalog, clock)


def _open_store(config: ApiConfig, clock: Clock) -> Store:
    if config.clickhouse is None:
        return FlightStore(config.store_address)
    from secondsight.store.clickhouse.store import ClickHouseStore  # only where the extra is installed

    return ClickHouseStore(config.clickhouse, config.readers, read_only=True, clock=clock)


def server_config(app: App, config: ApiConfig) -> uvicorn.Config:
    """Return how uvicorn serves the api, with bounded heads; it never logs requests, whose headers hold secrets."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=config.keep_alive_seconds,
        timeout_graceful_shutdown=config.stop_seconds,
    )
