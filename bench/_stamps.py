"""Put a host's name, numbers and times into prepared frames by their bytes, for a generator that sends thousands.

Where the fields of a header lie is written here once more, apart from `secondsight.wire.header`: `Stamper` proves at
its start that it makes the same bytes as `restamp`.
"""

from dataclasses import dataclass
from struct import Struct

import google_crc32c

import _fleet
from secondsight.wire.header import read_view

_SIZE = slice(6, 8)
_CRC = slice(20, 24)
_NUMBERS = Struct("<QQQ")
_NUMBERS_AT = 44
_ENTITIES = slice(100, 116)
_FIRST = Struct("<q")
_FIRST_AT = 128
_LENGTH = Struct("<H")
_SOURCE = b"simulate"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The frames of one template and batch: heads to be stamped, bodies as they are sent.

    Attributes:
        tables: Numbers that are equal where frames name the same entity tables in the same order.
    """

    heads: tuple[bytes, ...]
    bodies: tuple[bytes, ...]
    values: int
    size_bytes: int
    tables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """What is a host's own in every head."""

    spool_ids: tuple[int, ...]
    ids: bytes
    entities: tuple[bytes, ...]


class Stamper:
    """Makes the heads of any host and batch.

    Raises:
        SystemExit: What it makes is not what `restamp` makes.
    """

    def __init__(self, fleet: _fleet.Fleet) -> None:
        self._fleet = fleet
        self._ids_at = 136 + 4 * (_fleet.TICKS - 1)
        self._prepared = [
            [self._prepare(template, batch) for batch in range(len(template.frames))] for template in fleet.templates
        ]
        for batch in range(min(2, len(self._prepared[0]))):
            for host in (0, _fleet.TEMPLATES + 1):
                self._prove(host, batch, 1_790_000_123_457)

    def prepared(self, host: int, batch: int) -> Prepared:
        """Return the frames that a host sends in a batch."""
        return self._prepared[host % _fleet.TEMPLATES][batch]

    def identity(self, host: int, batch: int) -> Identity:
        """Return what is a host's own in the frames of a batch."""
        name = _fleet.host_name(host).encode()
        ids = b"".join(_LENGTH.pack(len(text)) + text for text in (name, name, _SOURCE))
        contents = self._fleet.templates[host % _fleet.TEMPLATES].contents[batch]
        hashes = tuple(_fleet.entities_hash(host, content.entities) for content in contents)
        return Identity(tuple(self._fleet.spool_id(host, frame) for frame in range(len(contents))), ids, hashes)

    def heads(self, identity: Identity, prepared: Prepared, batch: int, at_ms: int) -> list[bytes]:
        """Return the heads of a batch whose first tick is at `at_ms`."""
        first, made = batch * _fleet.TICKS, []
        own = zip(prepared.heads, identity.entities, identity.spool_ids, strict=True)
        for head, entities, spool_id in own:
            new = bytearray(head)
            _NUMBERS.pack_into(new, _NUMBERS_AT, spool_id, first, first + _fleet.TICKS - 1)
            new[_ENTITIES] = entities
            _FIRST.pack_into(new, _FIRST_AT, at_ms)
            new[self._ids_at :] = identity.ids
            new[_CRC] = google_crc32c.value(bytes(new)).to_bytes(4, "little")
            made.append(bytes(new))
        return made

    def _prepare(self, template: _fleet.Template, batch: int) -> Prepared:
        heads, bodies, values = [], [], 0
        ids = bytes(6 + 2 * len(_fleet.host_name(0)) + len(_SOURCE))
        for frame in template.frames[batch]:
            view = read_view(frame)
            head = bytearray(frame[: self._ids_at] + ids)
            head[_SIZE] = _LENGTH.pack(len(head))
            head[_CRC] = bytes(4)
            heads.append(bytes(head))
            bodies.append(frame[view.body_start : view.end])
            values += view.values
        tables = tuple(id(content.entities) for content in template.contents[batch])
        return Prepared(tuple(heads), tuple(bodies), values, sum(map(len, heads + bodies)), tables)

    def _prove(self, host: int, batch: int, at_ms: int) -> None:
        prepared, identity = self.prepared(host, batch), self.identity(host, batch)
        heads = self.heads(identity, prepared, batch, at_ms)
        made = [head + body for head, body in zip(heads, prepared.bodies, strict=True)]
        if made != _fleet.host_frames(self._fleet, host, batch, at_ms):
            raise SystemExit("the generator does not know the layout of headers: bench/_stamps.py is out of date")
