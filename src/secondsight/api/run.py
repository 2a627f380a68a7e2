"""Run an api: open what it reads from, serve until told to stop."""

from collections.abc import Callable

import uvicorn

from secondsight.access.metadata import open_metadata
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.forward import App
from secondsight.api.services import Services, make_services
from secondsight.catalog.index import Catalog
from secondsight.catalog.living import CatalogFiles, Follower, living
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.gateway.connection import Connection
from secondsight.gateway.run import ADOPT_SECONDS, Server, calm_collector, open_listening
from secondsight.gateway.tls import Certificate
from secondsight.store.reach import reach_store

COLLECT_ALL_AFTER = 20
"""A stream that ends leaves 20 KiB of cycles, which are old by then: at ten requests a second they wait two days."""


def serve_api(config: ApiConfig, clock: Clock) -> None:
    """Serve until SIGTERM or SIGINT; blocks. Requests that run are answered first.

    Raises:
        Rejected(bad_config): `listen` or `gateway` is no address, or a catalogue file is wrong.
        Retryable, Permanent: The metadata store cannot be opened.
        OSError: The address is taken.
    """
    listening = open_listening(config.listen)
    files = CatalogFiles(config.catalogue, config.data)
    catalog = living(files.catalog)
    services = open_services(config, clock, catalog)
    app = make_app(services)
    server = ApiServer(app, config, app.leave)
    server.follow = Follower(files, catalog, clock, services.renew, ADOPT_SECONDS).step
    calm_collector(COLLECT_ALL_AFTER)
    server.run(sockets=[listening])


def open_services(config: ApiConfig, clock: Clock, catalog: Catalog | None = None) -> Services:
    """Open the metadata store; the store's server may start later.

    Raises:
        Retryable, Permanent: The metadata store cannot be opened.
    """
    catalog = catalog or load_catalog(config.catalogue)
    store = reach_store(config.store_address, config.clickhouse, clock, readers=config.readers, read_only=True)
    return make_services(config, store, open_metadata(config.metadata_address), catalog, clock)


class ApiServer(Server):
    """A server that lets live streams go when it stops, and serves TLS where it has a certificate."""

    def __init__(self, app: App, config: ApiConfig, leave: Callable[[], None]) -> None:
        certificate = server_certificate(config)
        super().__init__(server_config(app, config, certificate), certificate)
        self._leave = leave

    async def on_tick(self, counter: int) -> bool:
        """Do what is due; return whether to stop."""
        is_stopping = await super().on_tick(counter)
        if is_stopping:
            self._leave()
        return is_stopping


def server_certificate(config: ApiConfig) -> Certificate | None:
    """Return the watched files of an api that serves TLS, else None."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    return Certificate(config.tls_certificate, config.tls_key)


def server_config(app: App, config: ApiConfig, certificate: Certificate | None) -> uvicorn.Config:
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
        ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.context(),
    )
