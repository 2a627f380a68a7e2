"""Turn files of nvidia-smi output into ticks of the past: what was read, of which instant, and what was left out.

Files are read together: one that names UUIDs helps another that knows GPUs by index alone. Rows of one sampling round
become one tick, at the time of its first row. What has no instant is shown and cannot be sent.
"""

import codecs
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import groupby, pairwise
from statistics import median

from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.smi.forms import read_any
from secondsight.agent.smi.instants import LocalTimes
from secondsight.agent.smi.mapping import SmiMapped, SmiMapper
from secondsight.agent.smi.rows import Document, Fault, Refusal, Row, Subject
from secondsight.agent.smi.texts import Trouble
from secondsight.catalog.load import Catalog
from secondsight.errors import Rejected

DEFAULT_INTERVAL_MS = 1000
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (codecs.BOM_UTF8, "utf-8-sig"))


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How files are read.

    Attributes:
        host_id: Host that they are of.
        zone: Zone of their local times; None refuses those.
        start_ms: Instant of the first round of files without times; None leaves them without.
        interval_ms: Cadence; 0 takes it from the times.
        gpus: Index -> UUID, for files that name GPUs by index alone.
    """

    host_id: str
    zone: tzinfo | None = None
    start_ms: int | None = None
    interval_ms: int = 0
    gpus: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ImportedFile:
    """One file as read.

    Attributes:
        ticks: (epoch ms, what was read), in the order of the file; None where no instant is known.
        interval_ms: Cadence of its rounds.
    """

    name: str
    document: Document
    ticks: list[tuple[int | None, SmiMapped]] = field(default_factory=list)
    interval_ms: int = DEFAULT_INTERVAL_MS

    @property
    def refused(self) -> Counter[str]:
        """Return how many lines were refused, by code."""
        return Counter(refusal.code for refusal in self.document.refusals)

    @property
    def troubles(self) -> list[tuple[Trouble, str, int]]:
        """Return (trouble, entity, times) of everything that the file says is wrong."""
        counted: Counter[tuple[Trouble, str]] = Counter()
        for _, mapped in self.ticks:
            counted.update(mapped.troubles)
        return [(*told, times) for told, times in sorted(counted.items())]


def decode(body: bytes) -> str:
    """Return the text of a file, by its byte order mark; bytes that are no text become replacement marks."""
    encoding = next((name for mark, name in _MARKS if body.startswith(mark)), "utf-8")
    return body.decode(encoding, errors="replace")


def import_texts(texts: Sequence[tuple[str, str]], options: ImportOptions, catalog: Catalog) -> list[ImportedFile]:
    """Return what named texts hold."""
    known = KnownGpus(options.host_id)
    for index, uuid in options.gpus.items():
        known.learn(uuid, index)
    mapper = SmiMapper(catalog, options.host_id, known)
    files = [ImportedFile(name, read_any(text)) for name, text in texts]
    for file in files:
        for row in file.document.rows:
            mapper.entity_of(row)
    for file in files:
        _take(file, mapper, options)
    return files


def _take(file: ImportedFile, mapper: SmiMapper, options: ImportOptions) -> None:
    rounds = [(number, list(rows)) for number, rows in groupby(file.document.rows, key=lambda row: row.round)]
    interval_ms = options.interval_ms or DEFAULT_INTERVAL_MS
    times = _times(rounds, file.document, options, interval_ms)
    file.interval_ms = options.interval_ms or _cadence_ms([ms for ms in times.values() if ms is not None])
    for number, rows in rounds:
        if number in times:
            _take_tick(file, mapper, times[number], rows)
    gpus = {mapper.entity_of(row) for row in file.document.rows if row.subject is Subject.GPU} - {""}
    for number, faults in groupby(file.document.faults, key=lambda fault: fault.round):
        _take_faults(file, mapper, times.get(number), (list(faults), gpus))


def _take_tick(file: ImportedFile, mapper: SmiMapper, time_ms: int | None, rows: list[Row]) -> None:
    mapped = mapper.map(rows, time_ms or 0)
    file.ticks.append((time_ms, mapped))


def _take_faults(
    file: ImportedFile, mapper: SmiMapper, time_ms: int | None, told: tuple[list[Fault], Iterable[str]]
) -> None:
    """Add what lines in place of rows say; the tick of their round, if there is one, was read before them."""
    said = mapper.told(*told)
    at = next((mapped for ms, mapped in file.ticks if ms == time_ms), None)
    if at is None:
        file.ticks.append((time_ms, said))
        return
    have = {(cell.metric.name, cell.entity, cell.part) for cell in said.gathered.cells}
    kept = [cell for cell in at.gathered.cells if (cell.metric.name, cell.entity, cell.part) not in have]
    at.gathered.cells = kept + said.gathered.cells
    at.troubles.update(said.troubles)


def _times(
    rounds: Sequence[tuple[int, list[Row]]], document: Document, options: ImportOptions, interval_ms: int
) -> dict[int, int | None]:
    """Return the instant of each round; a round whose time cannot be told is refused and left out."""
    clock = LocalTimes(options.zone)
    times: dict[int, int | None] = {}
    for number, rows in rounds:
        written = next((row for row in rows if row.local_time), None)
        if written is None:
            times[number] = None if options.start_ms is None else options.start_ms + number * interval_ms
            continue
        try:
            times[number] = clock.resolve(written.local_time) // 1000
        except Rejected as error:
            times[number] = None
            document.refusals.append(Refusal(written.line, error.code, error.message))
    return times


def _cadence_ms(times_ms: Sequence[int]) -> int:
    steps = [after - before for before, after in pairwise(times_ms) if after > before]
    return max(round(median(steps)), 1) if steps else DEFAULT_INTERVAL_MS
