"""Run statements on one chDB connection, which is broken after its first exception."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from chdb import session as untyped_session

from secondsight.errors import Rejected
from secondsight.store.failures import StoreBusy, failure_of
from secondsight.store.spec import quoted

_SETTING_NAME = re.compile(r"\A[a-z_][a-z0-9_]*\Z")
_session: Any = untyped_session


class Connection:
    """One engine connection, which is broken after its first exception."""

    def __init__(self, opened: Any, database: str, settings: Mapping[str, Any]) -> None:
        self._session = opened
        self._standing = dict(settings)
        self._applied: dict[str, Any] = {}
        self.broken = False
        with self._breaking():
            self._session.query(f"USE {quoted(database)}")
            for name, value in sorted(settings.items()):
                self._set(name, _setting_text(value))

    def run(self, sql: str, params: Mapping[str, str], settings: Mapping[str, Any]) -> pa.Table:
        """Run one statement under `settings` and return its rows."""
        with self._breaking():
            self._apply(settings)
            answer = self._session.query(sql, "ArrowStream", params=params).bytes()
        return pa.ipc.open_stream(answer).read_all() if answer else pa.table({})

    def insert(self, sql: str, rows: pa.Table, settings: Mapping[str, Any]) -> None:
        """Run an INSERT that selects from `Python(arrow_rows)`, which the engine finds among this frame's locals."""
        arrow_rows = rows
        with self._breaking(inserting=True):
            self._apply(settings)
            self._session.query(sql)
            del arrow_rows

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _apply(self, settings: Mapping[str, Any]) -> None:
        """Set what differs from the last statement's settings, and take back what is no longer asked for."""
        for name in self._applied.keys() - settings.keys():
            self._set(name, _setting_text(self._standing[name]) if name in self._standing else "DEFAULT")
        for name, value in settings.items():
            if name not in self._applied or self._applied[name] != value:
                self._set(name, _setting_text(value))
        self._applied = dict(settings)

    def _set(self, name: str, text: str) -> None:
        self._session.query(f"SET {_setting_name(name)} = {text}")

    @contextmanager
    def _breaking(self, *, inserting: bool = False) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self.broken = True
            raise failure_of(str(error), inserting=inserting) from None
        except BaseException:
            self.broken = True
            raise


def open_session(path: Path) -> Any:
    """Open one more connection to the engine of a folder.

    Raises:
        StoreBusy: Another process has the folder, or this one has another folder.
    """
    try:
        return _session.Session(str(path))
    except RuntimeError as error:
        raise StoreBusy(_refusal(path, str(error)), retry_after_seconds=1.0) from None


def setting_statement(name: str, value: Any) -> str:
    """Return the statement that sets something for a connection.

    Raises:
        Rejected(bad_setting): No setting has such a name.
    """
    return f"SET {_setting_name(name)} = {_setting_text(value)}"


def _refusal(path: Path, text: str) -> str:
    """Say who has the folder, as far as it can be known."""
    if "already initialized with path" in text:
        return f"{path} cannot be opened: this process already has another store folder open"
    status = path / "status"
    owner = status.read_text().splitlines()[0] if status.is_file() else "unknown process"
    return f"{path} is in use by another process ({owner}), or cannot be opened: {text.splitlines()[0]}"


def _setting_name(name: str) -> str:
    if not _SETTING_NAME.match(name):
        raise Rejected("bad_setting", f"no setting is called {name!r}")
    return name


def _setting_text(value: Any) -> str:
    match value:
        case bool():
            return str(int(value))
        case int() | float():
            return repr(value)
        case _:
            escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
