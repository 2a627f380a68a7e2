"""Carry one statement of somebody outside to the engine, and what came of it back.

A question runs on a connection of its own that is closed afterwards: limits are set first, then filters of the tables
below the views, and `readonly` last, so that no word of the statement can change any of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from secondsight.errors import Rejected
from secondsight.store.params import literal

MARKER_LETTERS = frozenset("0123456789abcdef")
_ROWS_READ, _BYTES_READ = b"rows_read", b"bytes_read"


@dataclass(frozen=True, slots=True)
class Question:
    """One statement.

    Attributes:
        marker: By which it is killed; hexadecimal.
        deadline_seconds: When it is killed, whatever the engine's own limits do.
        limits: Settings of the engine.
        filters: Table below the views, with its database -> predicate that its rows must fulfil.
        shared: Several collectors report some of the GPUs asked about.
        scope: What a server's row policies are told of the caller: `tenants`, and `clusters` where not all are seen.
        quota: Under which name a server counts what is asked.
    """

    sql: str
    marker: str
    deadline_seconds: float
    limits: Mapping[str, Any] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False
    scope: Mapping[str, Sequence[str]] = field(default_factory=dict)
    quota: str = ""

    def __post_init__(self) -> None:
        """Refuse a marker that could stand for more than itself."""
        if not self.marker or not set(self.marker) <= MARKER_LETTERS:
            raise Rejected("bad_request", "a question wants a marker of hexadecimal letters")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a question gave: an Arrow table, and what it cost to read."""

    rows: Any
    rows_read: int
    bytes_read: int


@runtime_checkable
class Asked(Protocol):
    """A store that runs questions: the owner of an embedded one, whoever reaches it, or a server."""

    def ask(self, question: Question) -> Reply:
        """Run a question on a connection of its own; blocks until it has ended, or nobody waits for it any more."""
        ...


class Unasked:
    """Stands for a store that runs no questions."""

    def ask(self, _question: Question) -> Reply:
        """Refuse.

        Raises:
            Rejected(sql_not_offered).
        """
        raise Rejected("sql_not_offered", "this platform answers no SQL", "ask an administrator to set it up")


def asked_of(store: object) -> Asked:
    """Return a store as one that runs questions."""
    return store if isinstance(store, Asked) else Unasked()


def filter_setting(filters: Mapping[str, str]) -> str:
    """Return the value of `additional_table_filters`."""
    return f"{{{', '.join(f'{literal(name)}: {literal(text)}' for name, text in filters.items())}}}"


def encode_question(question: Question) -> bytes:
    """Return the bytes that carry a question to the store's owner."""
    return json.dumps({"question": asdict(question)}).encode()


def decode_question(body: bytes) -> Question | None:
    """Read a question; None where the bytes are something else.

    Raises:
        Rejected(bad_request): It is a broken one.
    """
    if not body.startswith(b'{"question"'):
        return None
    try:
        return Question(**json.loads(body)["question"])
    except (ValueError, KeyError, TypeError):
        raise Rejected("bad_request", "not a question to a store") from None


def with_cost(reply: Reply) -> Any:
    """Return the rows of a reply with their cost beside them."""
    cost = {_ROWS_READ: str(reply.rows_read).encode(), _BYTES_READ: str(reply.bytes_read).encode()}
    return reply.rows.replace_schema_metadata(cost)


def reply_of(rows: Any) -> Reply:
    """Return the reply that rows with their cost stand for."""
    told = rows.schema.metadata or {}
    plain = rows.replace_schema_metadata(None)
    return Reply(plain, int(told.get(_ROWS_READ, 0)), int(told.get(_BYTES_READ, 0)))
