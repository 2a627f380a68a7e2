"""Know the definitions that frames name: learn them from frames, keep them, and say what they admit.

A new blob goes to the log first and to the metadata store second: a crash between the two repeats it in the log, and
never leaves a known hash that no processor can read.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Engine

from secondsight.access.definitions import get_definitions, put_definitions, stored_definitions
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import LogWriter
from secondsight.errors import Rejected
from secondsight.gateway.actives import Entities
from secondsight.gateway.admission import Refusal, refused_columns
from secondsight.model import EntityKind, Priority
from secondsight.wire.content import EntityTable, Schema
from secondsight.wire.frame import HeadView, read_definitions
from secondsight.wire.schema import Definitions, definition_hash, entity_table_blob

REMEMBERED_DEFINITIONS = 200_000
"""Some 400 bytes each: hosts of a large fleet have four entity tables, and share their schemas."""

_MASK = 2**64 - 1
_NO_ENTITIES: Entities = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Known:
    """What a gateway remembers of a definition.

    Attributes:
        is_schema: A schema, else an entity table.
        refused: Columns that the catalogue does not admit.
        host_id: Whose entities they are; "" for a schema.
        columns: How many a schema has, histograms among them.
        is_urgent: Every one of them is of priority class P0; so it is where there are none, but events and facts.
        entities: Of an entity table.
    """

    kind: EntityKind
    is_schema: bool
    refused: tuple[Refusal, ...] = ()
    host_id: str = ""
    columns: int = 0
    is_urgent: bool = False
    entities: Entities = field(default_factory=lambda: _NO_ENTITIES, compare=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """A blob with its hash and what it means."""

    name: bytes
    blob: bytes
    known: Known


class KnownDefinitions:
    """Definitions seen by this gateway, least recently used out first. Belongs to one thread, as the event loop's."""

    def __init__(self, remembered: int = REMEMBERED_DEFINITIONS) -> None:
        self._remembered = remembered
        self._known: OrderedDict[bytes, Known] = OrderedDict()

    def lacking(self, heads: Iterable[HeadView]) -> set[bytes]:
        """Return the hashes that frames name and that are not known."""
        known = self._known
        return {name for head in heads for name in (head.schema_hash, head.entities_hash) if name not in known}

    def admitted(self, head: HeadView) -> tuple[tuple[Refusal, ...], str]:
        """Return the refused columns of a frame whose definitions are known, and the host of its entities.

        Raises:
            Rejected(bad_frame): The definitions are not of the frame's kind.
            Rejected(schema_unknown): A definition is not known.
        """
        known = self._known
        schema, entities = known.get(head.schema_hash), known.get(head.entities_hash)
        if schema is None or entities is None:
            raise Rejected("schema_unknown", f"definitions of {head.collector_id} are not known", "send them inline")
        known.move_to_end(head.schema_hash)
        known.move_to_end(head.entities_hash)
        if not schema.is_schema or entities.is_schema or not schema.kind is entities.kind is head.kind:
            raise Rejected("bad_frame", f"{head.collector_id}: definitions are not those of a frame of {head.kind}")
        return schema.refused, entities.host_id

    def is_urgent(self, head: HeadView) -> bool:
        """Tell whether all that a frame may have is of priority class P0; not so while that is not known."""
        known = self._known.get(head.schema_hash)
        return known is not None and known.is_urgent

    def series(self, head: HeadView) -> tuple[Entities, int]:
        """Return the entities and the number of columns of a frame whose definitions are known."""
        return self._known[head.entities_hash].entities, self._known[head.schema_hash].columns

    def remember(self, definitions: Iterable[Definition]) -> None:
        """Know definitions from now on."""
        for definition in definitions:
            self._known[definition.name] = definition.known
        while len(self._known) > self._remembered:
            self._known.popitem(last=False)


class DefinitionStore:
    """Definitions that every gateway and processor can read. Safe to call from threads; every call blocks."""

    def __init__(self, metadata: Engine, topic: LogWriter, catalog: Catalog, clock: Clock) -> None:
        self._metadata = metadata
        self._topic = topic
        self._catalog = catalog
        self._clock = clock

    def load(self, names: Sequence[bytes]) -> dict[bytes, Definition]:
        """Return those that are stored, by hash."""
        blobs = get_definitions(self._metadata, names)
        return {name: read_definition(blob, name, self._catalog) for name, blob in blobs.items()}

    def store(self, definitions: Sequence[Definition]) -> None:
        """Make definitions durable, in the log before the metadata store.

        Raises:
            Retryable: None of them is stored for certain.
        """
        blobs = {definition.name: definition.blob for definition in definitions}
        there = stored_definitions(self._metadata, blobs)
        lacking = {name: blob for name, blob in blobs.items() if name not in there}
        self._topic.append(list(lacking.items()))
        put_definitions(self._metadata, lacking, self._clock.now_ms())


def inline_definitions(body: bytes, head: HeadView, wanted: Iterable[bytes], catalog: Catalog) -> list[Definition]:
    """Return those of a frame's two definitions that are wanted, from inside the frame.

    Raises:
        Rejected: The frame cannot be read, or a definition is not in its canonical form.
    """
    named = dict(zip((head.schema_hash, head.entities_hash), read_definitions(body, head), strict=True))
    return [read_definition(named[name], name, catalog) for name in wanted]


def read_definition(blob: bytes, name: bytes, catalog: Catalog) -> Definition:
    """Parse a blob.

    Raises:
        Rejected: It is neither a schema nor an entity table in canonical form.
    """
    definitions = Definitions()
    definitions.add(blob)
    schema, table = definitions.schema(name), definitions.entities(name)
    if schema is not None:
        return Definition(name, blob, _known_schema(schema, catalog))
    if table is None or definition_hash(entity_table_blob(table)) != name:
        raise Rejected("bad_schema", "an entity table is not written as this version writes it")
    known = Known(table.kind, is_schema=False, host_id=table.host_id, entities=_entities(table))
    return Definition(name, blob, known)


def _known_schema(schema: Schema, catalog: Catalog) -> Known:
    names = [*(column.metric for column in schema.columns), *(column.metric for column in schema.histograms)]
    return Known(
        schema.kind,
        is_schema=True,
        refused=refused_columns(schema, catalog),
        columns=len(names),
        is_urgent=all(name in catalog and catalog.get(name).priority is Priority.P0 for name in names),
    )


def _entities(table: EntityTable) -> Entities:
    hashes = {hash((one.entity, one.part)) & _MASK for one in table.entities}
    return np.array(sorted(hashes), np.uint64)
