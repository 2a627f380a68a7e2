"""Turn the simulator into frames prepared ahead for any number of hosts: the fixed data set of the ingest benchmarks.

Thirty-two hosts are simulated second by second from a fixed start and seed; every further host sends the bodies of one
of them under its own name, entity table and sequence. A body is encoded once; sending it re-stamps its header.
Metrics that the catalogue calls constant are left out: they would only make the figures look better. `HUNDRED` has GPU
rows alone, of exactly a hundred metrics.
"""

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import _site
from secondsight.agent.simulate.cluster import ClusterSpec, SimulatedCluster
from secondsight.agent.simulate.contents import HostContents
from secondsight.agent.simulate.machines import H100
from secondsight.agent.write.split import Splitter
from secondsight.catalog.load import Catalog, load_catalog
from secondsight.catalog.metric import RollupSet
from secondsight.model import EntityKind
from secondsight.wire.content import Content, Entity, EntityTable
from secondsight.wire.frame import Stamp, encode, restamp
from secondsight.wire.schema import definition_hash, entity_table_blob

TEMPLATES = 32
START_SECOND = 1_790_000_000
SEED = 20_261_129
TICKS = 5
GPUS = 8


@dataclass(frozen=True, slots=True)
class Data:
    """What every host sends.

    Attributes:
        hundred: GPU rows have the 38 metrics of `_site.py` too.
        kinds: Entity kinds of frames; all that a host has where None.
        split: Frames are divided by the priority of their metrics, as an agent divides them: one frame for each class.
        link_step: Bytes that the links' figures of `_site.py` step by.
    """

    hundred: bool = False
    kinds: frozenset[EntityKind] | None = None
    split: bool = False
    link_step: int = 1


SIMULATED = Data()
HUNDRED = Data(hundred=True, kinds=frozenset({EntityKind.GPU}))


@dataclass(frozen=True, slots=True)
class Template:
    """Frames of one simulated host: `frames[batch]` are those of its kinds for one batch of ticks."""

    contents: tuple[tuple[Content, ...], ...]
    frames: tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the generator sends.

    Attributes:
        values_per_batch: Mean number of values that one host sends per batch.
        noisy_share: Share of GPU columns whose values change in more than half of the seconds.
    """

    templates: tuple[Template, ...]
    values_per_batch: float
    bytes_per_value: float
    noisy_share: float
    split: bool = False

    def spool_id(self, host: int, frame: int) -> int:
        """Return the spool of a host's frame with a number: divided frames have a spool each."""
        return host + 1 + (frame << 32 if self.split else 0)

    def batch_values(self, host: int, batch: int) -> int:
        """Return the number of values that a host sends in one batch."""
        return sum(_values(content) for content in self.templates[host % TEMPLATES].contents[batch])


def prepare(batches: int, data: Data = SIMULATED) -> Fleet:
    """Simulate the templates for `batches` batches of 5 s and encode every frame once."""
    spec = ClusterSpec("bench", TEMPLATES, GPUS, H100, SEED)
    catalog = hundred_catalog() if data.hundred else load_catalog()
    constants = frozenset(m.name for m in catalog.scalars(EntityKind.GPU) if m.rollup is RollupSet.CONSTANT)
    cluster, maker = SimulatedCluster(spec, START_SECOND), HostContents(spec, catalog, constants)
    site = _site.Site(TEMPLATES * GPUS, data.link_step) if data.hundred else None
    splitter = Splitter(catalog) if data.split else None
    kept: list[list[tuple[Content, ...]]] = [[] for _ in range(TEMPLATES)]
    for batch in range(batches):
        seconds = [cluster.advance(START_SECOND + batch * TICKS + tick) for tick in range(TICKS)]
        if site is not None:
            seconds = [replace(second, gpu={**second.gpu, **site.next(second.gpu)}) for second in seconds]
        for host, contents in maker.batch(seconds).items():
            kept[host].append(tuple(_wanted(contents, data.kinds, splitter)))
    templates = tuple(_template(tuple(contents)) for contents in kept)
    values = sum(_values(content) for template in templates for contents in template.contents for content in contents)
    size = sum(len(frame) for template in templates for frames in template.frames for frame in frames)
    return Fleet(templates, values / (TEMPLATES * batches), size / values, _noisy_share(templates[0]), data.split)


@cache
def hundred_catalog() -> Catalog:
    """Return the catalogue with the metrics of `_site.py`."""
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        return load_catalog((_site.write_catalogue(Path(folder)),))


def host_frames(fleet: Fleet, host: int, batch: int, at_ms: int) -> list[bytes]:
    """Return the frames that host number `host` sends for a batch whose first tick is at `at_ms`."""
    template = fleet.templates[host % TEMPLATES]
    name = host_name(host)
    shift = at_ms - (START_SECOND + batch * TICKS) * 1000
    sequence = batch * TICKS
    return [
        restamp(
            frame,
            tick_shift_ms=shift,
            collector_id=name,
            host_id=name,
            spool_id=fleet.spool_id(host, number),
            first_sequence=sequence,
            last_sequence=sequence + TICKS - 1,
            entities_hash=entities_hash(host, content.entities),
        )
        for number, (frame, content) in enumerate(zip(template.frames[batch], template.contents[batch], strict=True))
    ]


def first_frames(fleet: Fleet, host: int, batch: int, at_ms: int) -> list[bytes]:
    """Return the same frames with their definitions inside, for a host's first request."""
    name, sequence = host_name(host), batch * TICKS
    times = np.arange(TICKS, dtype=np.int64) * 1000 + at_ms
    contents = fleet.templates[host % TEMPLATES].contents[batch]
    return [
        encode(
            Stamp(
                name,
                name,
                "simulate",
                fleet.spool_id(host, number),
                sequence,
                sequence + TICKS - 1,
                times,
                1000,
            ),
            Content(c.schema, own_table(host, c.entities), c.scalars, c.histograms, c.events, c.infos),
            inline=True,
        )
        for number, c in enumerate(contents)
    ]


def host_name(host: int) -> str:
    """Return the name of host number `host`."""
    return f"bench-{host:05d}"


def own_table(host: int, table: EntityTable) -> EntityTable:
    """Return a template's entity table under the names of host number `host`."""
    name, known = host_name(host), {}
    for entity in table.entities:
        if table.kind is EntityKind.GPU:
            known[entity.entity] = gpu_id(host, int(dict(entity.attributes)["index"]))
        else:
            known[entity.entity] = entity.entity.replace(table.host_id, name)
    entities = tuple(Entity(known[e.entity], e.part, e.attributes) for e in table.entities)
    return EntityTable(table.kind, name, f"r{host // 4:04d}", entities)


def gpu_id(host: int, index: int) -> str:
    """Return the UUID of a GPU of host number `host`."""
    digest = hashlib.blake2b(f"{host}/{index}".encode(), digest_size=16).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


_hashes: dict[tuple[int, int], bytes] = {}


def entities_hash(host: int, table: EntityTable) -> bytes:
    """Return the hash of a template's entity table under the names of host number `host`."""
    key = (host, id(table))
    if key not in _hashes:
        _hashes[key] = definition_hash(entity_table_blob(own_table(host, table)))
    return _hashes[key]


def _wanted(
    contents: Iterable[Content], kinds: frozenset[EntityKind] | None, splitter: Splitter | None
) -> Iterable[Content]:
    for content in contents:
        if kinds is None or content.schema.kind in kinds:
            yield from (content,) if splitter is None else splitter.split(content).values()


def _template(contents: tuple[tuple[Content, ...], ...]) -> Template:
    times = np.arange(TICKS, dtype=np.int64) * 1000
    frames = tuple(
        tuple(
            encode(Stamp("t", "t", "simulate", 1, 0, 4, times + (START_SECOND + batch * TICKS) * 1000, 1000), content)
            for content in of_batch
        )
        for batch, of_batch in enumerate(contents)
    )
    return Template(contents, frames)


def _values(content: Content) -> int:
    if content.scalars is None:
        return 0
    groups = content.scalars.groups
    return sum(int(group.present.sum()) if group.present is not None else group.values.size for group in groups)


def _noisy_share(template: Template) -> float:
    noisy = total = 0
    for contents in template.contents[:4]:
        gpus = (content.scalars for content in contents if content.schema.kind is EntityKind.GPU)
        for group in (group for scalars in gpus if scalars for group in scalars.groups):
            values = group.values.reshape(group.values.shape[0], TICKS, GPUS)
            moves = (np.diff(values.astype(np.float64), axis=1) != 0).mean(axis=(1, 2))
            noisy, total = noisy + int((moves > 0.5).sum()), total + len(moves)
    return noisy / total
