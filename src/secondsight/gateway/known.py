"""Know the definitions that frames name: learn them from frames, keep them, and say what they admit.

A new blob goes to the log first and to the metadata store second: a crash between the two repeats it in the log, and
never leaves a known hash that no processor can read.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from sqlalchemy import Engine

from secondsight.access.definitions import get_definitions, put_definitions
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import LogWriter
from secondsight.errors import Rejected
from secondsight.gateway.admission import Refusal, refused_columns
from secondsight.model import EntityKind
from secondsight.wire.content import Header
from secondsight.wire.frame import FrameHead, decode
from secondsight.wire.schema import Definitions, named_entities

REMEMBERED_DEFINITIONS = 200_000


@dataclass(frozen=True, slots=True)
class Known:
    """What a gateway remembers of a definition.

    Attributes:
        is_schema: A schema, else an entity table.
        refused: Columns that the catalogue does not admit.
    """

    kind: EntityKind
    is_schema: bool
    refused: tuple[Refusal, ...] = ()


class KnownDefinitions:
    """Definitions seen by this gateway, least recently used out first. Safe to call from threads."""

    def __init__(self, metadata: Engine, topic: LogWriter, catalog: Catalog, clock: Clock) -> None:
        self._metadata = metadata
        self._topic = topic
        self._catalog = catalog
        self._clock = clock
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._lock = Lock()

    def lacking(self, headers: Iterable[Header]) -> set[bytes]:
        """Return the hashes that are not in memory; never blocks on anything slow."""
        with self._lock:
            return {
                name
                for header in headers
                for name in (header.schema_hash, header.entities_hash)
                if name not in self._known
            }

    def refused(self, header: Header) -> tuple[Refusal, ...]:
        """Return the refused columns of a frame whose definitions are known.

        Raises:
            Rejected(bad_frame): The definitions are not of the frame's kind.
            Rejected(schema_unknown): A definition is not known.
        """
        schema, entities = self._find(header.schema_hash), self._find(header.entities_hash)
        if schema is None or entities is None:
            raise Rejected("schema_unknown", f"definitions of {header.collector_id} are not known", "send them inline")
        if not schema.is_schema or entities.is_schema or {schema.kind, entities.kind} != {header.kind}:
            raise Rejected("bad_frame", f"{header.collector_id}: definitions are not those of a frame of {header.kind}")
        return schema.refused

    def load(self, names: Iterable[bytes]) -> None:
        """Take definitions that the metadata store has into memory; blocks."""
        for name, blob in get_definitions(self._metadata, names).items():
            self._remember(name, blob)

    def store(self, blobs: Sequence[tuple[bytes, bytes]]) -> None:
        """Make (hash, blob) pairs durable in the log and the store, then known; blocks.

        Raises:
            Rejected(definition_hash_wrong), Retryable: None of them is known.
        """
        distinct = dict(blobs)
        self._topic.append(list(distinct.items()))
        put_definitions(self._metadata, distinct, self._clock.now_ms())
        for name, blob in distinct.items():
            self._remember(name, blob)

    def _find(self, name: bytes) -> Known | None:
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                self._known.move_to_end(name)
            return known

    def _remember(self, name: bytes, blob: bytes) -> None:
        known = _read(blob, self._catalog)
        with self._lock:
            self._known[name] = known
            while len(self._known) > REMEMBERED_DEFINITIONS:
                self._known.popitem(last=False)


def inline_definitions(body: bytes, head: FrameHead) -> dict[bytes, bytes]:
    """Return hash -> blob of what a frame carries with it, after reading the whole frame; slow.

    Raises:
        Rejected: The frame cannot be read, or a definition is not in its canonical form.
    """
    definitions = Definitions()
    header = decode(body, definitions, head.start).header
    schema, table = definitions.known_schema(header.schema_hash), definitions.entities(header.entities_hash)
    entities = named_entities(table) if table is not None else None
    if schema is None or entities is None or entities.hash != header.entities_hash:
        raise Rejected("bad_schema", "an entity table is not written as this version writes it")
    return {schema.hash: schema.blob, entities.hash: entities.blob}


def _read(blob: bytes, catalog: Catalog) -> Known:
    definitions = Definitions()
    name = definitions.add(blob)
    schema, table = definitions.schema(name), definitions.entities(name)
    if schema is not None:
        return Known(schema.kind, is_schema=True, refused=refused_columns(schema, catalog))
    if table is None:
        raise Rejected("bad_schema", "neither a schema nor an entity table")
    return Known(table.kind, is_schema=False)
