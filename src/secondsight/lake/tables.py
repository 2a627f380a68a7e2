"""Open the lake: its catalogue, as settings say, and its tables, made and widened where they lack something."""

import logging
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, TableAlreadyExistsError
from pyiceberg.table import Table
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from secondsight.errors import Rejected, Retryable
from secondsight.lake.config import CatalogConfig
from secondsight.lake.files import LakeFileIO
from secondsight.lake.layout import LakeTable
from secondsight.lake.schema import iceberg_type, missing_columns, new_schema, partition_spec

logger = logging.getLogger(__name__)

AWAY = (OSError, RESTError, RequestException, SQLAlchemyError)
"""What clients raise when a catalogue or an object store is away or has trouble."""
FORMAT_VERSION = "2"
ADD_TRIES = 5


class Lake:
    """An open lake. For one thread; each opens its own."""

    def __init__(self, catalog: Catalog, namespace: str) -> None:
        self._catalog = catalog
        self._namespace = namespace

    @property
    def catalog(self) -> Catalog:
        """Return the catalogue."""
        return self._catalog

    def table(self, name: str) -> Table | None:
        """Return a table as it is now, None where nothing was ever written of it.

        Raises:
            Retryable: The catalogue or its files are away.
        """
        try:
            return self._catalog.load_table((self._namespace, name))
        except NoSuchTableError:
            return None
        except AWAY as error:
            raise away(error) from error

    def made_table(self, wanted: LakeTable) -> Table:
        """Return a table that has every column of a hot table; made, or widened by optional fields, where it has not.

        Raises:
            Retryable: The catalogue is away.
        """
        try:
            for _ in range(ADD_TRIES):
                found = self.table(wanted.name) or self._create(wanted)
                if not missing_columns(wanted, found.schema()):
                    return found
                self._widen(found, wanted)
        except AWAY as error:
            raise away(error) from error
        raise Retryable(f"columns of {wanted.name} cannot be added in the lake, others change it all the time")

    def close(self) -> None:
        """Close connections; may be called twice."""
        engine = getattr(self._catalog, "engine", None)
        if engine is not None:
            engine.dispose()

    def _create(self, wanted: LakeTable) -> Table:
        schema = new_schema(wanted)
        self._catalog.create_namespace_if_not_exists(self._namespace)
        try:
            return self._catalog.create_table(
                (self._namespace, wanted.name),
                schema,
                partition_spec=partition_spec(wanted, schema),
                properties=_properties(wanted),
            )
        except TableAlreadyExistsError:
            return self._catalog.load_table((self._namespace, wanted.name))

    def _widen(self, table: Table, wanted: LakeTable) -> None:
        missing = missing_columns(wanted, table.schema())
        try:
            with table.update_schema() as update:
                for column in missing:
                    ids = iter(range(1, 1_000))  # placeholders: the table gives its own
                    update.add_column(column.name, iceberg_type(column.hot_type, ids), doc=column.hot_type)
        except (CommitFailedException, ValueError) as error:
            logger.info("columns of %s are looked up again before they are added: %s", wanted.name, error)
            return
        logger.info("%s has new columns in the lake: %s", wanted.name, ", ".join(column.name for column in missing))


def open_lake(config: CatalogConfig, data: Path) -> Lake:
    """Open the lake that settings name.

    Args:
        config: Where it is.
        data: Folder of the platform, for what settings leave open.

    Raises:
        Rejected: `bad_config`: a file of the settings cannot be read.
        Retryable: The catalogue is away.
    """
    properties = _client_properties(config, data.absolute())
    try:
        return Lake(_catalog(config, properties), config.namespace)
    except AWAY as error:
        raise away(error) from error


def _catalog(config: CatalogConfig, properties: dict[str, Any]) -> Catalog:
    if config.kind == "rest":
        from secondsight.lake.rest import BoundedRestCatalog  # only where one is spoken with

        return BoundedRestCatalog(config.name, **properties)
    return load_catalog(config.name, **properties)


def away(error: Exception) -> Retryable:
    """Return what an error of a client means: try again later."""
    return Retryable(f"the lake cannot be reached: {type(error).__name__}: {error}", retry_after_seconds=5.0)


def _properties(wanted: LakeTable) -> dict[str, str]:
    """Return the properties of a new table: statistics of keys alone, and no retries or deletions behind our back."""
    keys = {*wanted.key, "tenant_id", "cluster_id", wanted.time_column}
    return {
        "format-version": FORMAT_VERSION,
        "write.metadata.metrics.default": "none",
        **{f"write.metadata.metrics.column.{name}": "full" for name in sorted(keys)},
        "write.metadata.previous-versions-max": "10",
        "commit.retry.num-retries": "0",
    }


def _client_properties(config: CatalogConfig, data: Path) -> dict[str, Any]:
    """Return the properties of the catalogue's client."""
    folder = data / "lake"
    if config.kind == "sql" and not config.uri:
        folder.mkdir(parents=True, exist_ok=True)
    properties: dict[str, Any] = {
        **({"type": "sql"} if config.kind == "sql" else {}),
        "uri": config.uri or f"sqlite:///{folder / 'catalog.sqlite'}",
        "warehouse": config.warehouse or (f"file://{folder / 'warehouse'}" if config.kind == "sql" else ""),
        "py-io-impl": f"{LakeFileIO.__module__}.{LakeFileIO.__qualname__}",
        "s3.endpoint": config.s3_endpoint,
        "s3.region": config.s3_region,
        "s3.access-key-id": _secret(config.s3_access_key_file),
        "s3.secret-access-key": _secret(config.s3_secret_key_file),
        "s3.connect-timeout": f"{config.connect_seconds:g}",
        "s3.request-timeout": f"{config.request_seconds:g}",
        "credential": _secret(config.credential_file),
        "token": _secret(config.token_file),
        "oauth2-server-uri": config.token_uri or (f"{config.uri.rstrip('/')}/v1/oauth/tokens" if config.uri else ""),
    }
    return {name: value for name, value in properties.items() if value}


def _secret(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Rejected("bad_config", f"{path} cannot be read: {error.strerror}", "see lake.catalog") from error
