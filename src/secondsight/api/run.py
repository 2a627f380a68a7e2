"""Run an api: open what it reads from, serve until told to stop."""

import uvicorn

from secondsight.access.metadata import open_metadata
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.forward import App
from secondsight.api.services import Services, make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.gateway.connection import Connection
from secondsight.gateway.run import Server, open_listening
from secondsight.store.reach import reach_store


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
    catalog = load_catalog(config.catalogue)
    store = reach_store(config.store_address, config.clickhouse, clock, readers=config.readers, read_only=True)
    return make_services(config, store, open_metadata(config.metadata_address), catalog, clock)


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
