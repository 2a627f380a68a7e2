"""Turn what an exporter or an inference engine serves over HTTP into ticks.

A target that is down, too slow, too large or without a single sample that we know has failed this tick: the reader
raises, and other readers are not affected. Of an inference engine that is down the tick still says so
(`inference_engine_up` 0). Samples whose own timestamp is older than three periods are stale.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from secondsight.agent.client.connection import Answer, Connection
from secondsight.agent.client.secret import read_secret
from secondsight.agent.counts import Counts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.scrape.attribution import Allocations
from secondsight.agent.scrape.exposition import Exposition, parse, syntax_of
from secondsight.agent.scrape.mapping import Mapped, Mapper
from secondsight.agent.scrape.target import Target
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable, SecondsightError
from secondsight.mapping.cells import FORGET_TICKS, Cell, ContentBuilder, Gathered
from secondsight.mapping.identity import Labels, Origin
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Content

logger = logging.getLogger(__name__)

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
STALE_PERIODS = 3
UNKNOWN_NAMES_LOGGED = 20
SOURCE = "scrape"


@dataclass(frozen=True, slots=True)
class ScrapePlace:
    """Where an agent scrapes from.

    Attributes:
        known: GPUs of this host as other readers name them.
        allocations: Makes what remembers the workloads of a target, by its name.
    """

    host_id: str
    rack: str = ""
    known: KnownGpus | None = None
    allocations: Callable[[str], Allocations] = lambda _target: Allocations()


class ScrapeReader:
    """Reads one target; see `contracts.Reader`."""

    costly = True

    def __init__(self, target: Target, catalog: Catalog, clock: Clock, counts: Counts, place: ScrapePlace) -> None:
        parts = urlsplit(target.url)
        self.name = target.name
        self.interval_ms = target.interval_ms
        self._target = target
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._rack = place.rack
        self._origin = Origin(
            host_id=target.host_id or place.host_id,
            target=target.name,
            port=parts.port or (443 if parts.scheme == "https" else 80),
            remote=target.remote,
            gpus=target.gpus,
            model=target.model,
            attribution=target.attribution,
            known=None if target.host_id else place.known,
        )
        self._request_target = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
        self._connection = Connection(target.url, clock, ca_file=target.ca_file)
        self._mapper = Mapper(catalog, self._origin, place.allocations(target.name) if target.attribution else None)
        self._label_cache: dict[str, Labels] = {}
        self._builders: dict[str, ContentBuilder] = {}
        self._engines: dict[str, int] = {}
        self._unknown_logged: set[str] = set()
        self._unnamed_told = False

    def read(self, tick_ms: int) -> Tick:
        """Scrape once.

        Raises:
            Retryable: The target is away, answers an error, or has nothing that we know.
            Rejected: `body_too_large`, `too_many_samples`, `bad_encoding`.
        """
        try:
            mapped = self.scrape(tick_ms)
        except SecondsightError as error:
            if not self._target.inference:
                raise
            logger.debug("engine %s is down: %s", self.name, error)
            self._counts.add(f"read_failed:{self.name}")
            mapped = Mapped()
        if self._target.inference:
            self._say_up(mapped)
        contents = self._contents(mapped.hosts, self._clock.now_ms() - tick_ms)
        earlier = ((ms, self._contents(hosts, 0)) for ms, hosts in sorted(mapped.earlier.items()))
        return Tick(contents, collector=self.name, source=SOURCE, earlier=tuple(earlier))

    def scrape(self, tick_ms: int) -> Mapped:
        """Return what the target serves now, and what of it has no place.

        Raises:
            Retryable, Rejected: As `read`.
        """
        exposition = self._parse(self._fetch())
        stale_before_ms = tick_ms - STALE_PERIODS * self.interval_ms
        mapped = self._mapper.map(exposition, tick_ms, stale_before_ms)
        self._note_unknown(mapped.unknown)
        for gathered in mapped.hosts.values():
            self._counts.add_discarded(gathered.discarded)
        if mapped.unnamed and not self._unnamed_told:
            self._unnamed_told = True
            words = "%s serves readings of GPUs that it does not name: give gpus={0=%r, ...} in its settings"
            logger.warning(words, self.name, "GPU-...")
        if not mapped.samples and not mapped.unnamed:
            raise Retryable(f"{self.name} answered without a sample that the catalogue knows")
        return mapped

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _fetch(self) -> Answer:
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", "User-Agent": "secondsight-agent"}
        if self._target.token_file is not None:
            headers["Authorization"] = f"Bearer {read_secret(self._target.token_file)}"
        answer = self._connection.request(
            "GET",
            self._request_target,
            headers,
            timeout_seconds=self._target.timeout_seconds or 0.7 * self.interval_ms / 1000,
            limit_bytes=self._target.body_limit_bytes,
        )
        if answer.status != 200:
            raise Retryable(f"{self.name} answered {answer.status}")
        return answer

    def _parse(self, answer: Answer) -> Exposition:
        text = answer.body.decode(errors="surrogateescape")
        exposition = parse(text, syntax_of(answer.headers.get("content-type", ""), text), self._label_cache)
        if len(exposition.samples) > self._target.sample_limit:
            counted = f"{len(exposition.samples)} samples, {len(answer.body)} bytes"
            raise Rejected("too_many_samples", f"{self.name}: {counted}", "raise sample_limit, or cut the exporter")
        return exposition

    def _note_unknown(self, unknown: Counter[str]) -> None:
        """Log a name that the catalogue does not have once; the counts have every one."""
        for name in unknown.keys() - self._unknown_logged:
            if len(self._unknown_logged) < UNKNOWN_NAMES_LOGGED:
                self._unknown_logged.add(name)
                logger.info("%s serves %s, which the catalogue does not have", self.name, name)

    def _say_up(self, mapped: Mapped) -> None:
        """Add `inference_engine_up` of every engine that the target is known to have."""
        gathered = mapped.of(self._origin.host_id)
        seen = {cell.entity for cell in gathered.cells if cell.metric.kind is EntityKind.INFERENCE}
        self._engines = {
            engine: unseen
            for engine in self._engines.keys() | seen
            if (unseen := self._unseen(engine, seen)) < FORGET_TICKS
        }
        metric = self._catalog.get("inference_engine_up")
        engines = self._engines or [f"{self._origin.host_id}:{self._origin.port}/{self._target.model}"]
        for engine in sorted(engines):
            gathered.cells.append(Cell(metric, engine, "", int(engine in seen), Quality.OK))

    def _unseen(self, engine: str, seen: set[str]) -> int:
        """Return for how many ticks other engines were there and this one was not: a model that was unloaded."""
        before = self._engines.get(engine, 0)
        return 0 if engine in seen else before + bool(seen)

    def _contents(self, hosts: Mapping[str, Gathered], delta_ms: int) -> tuple[Content, ...]:
        contents: list[Content] = []
        for host, gathered in hosts.items():
            builder = self._builders.setdefault(host, ContentBuilder(host, self._rack))
            contents += builder.build(gathered, delta_ms)
        return tuple(contents)
