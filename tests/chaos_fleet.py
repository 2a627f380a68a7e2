"""What a seeded fleet measures, tick by tick: the product's simulator, and what it has no kind for, with misfortunes.

Hosts reboot, fall silent, lose readings, have counters that start again, change what they report, and have clocks that
step. What comes out is the truth that a platform is to hold in the end; nothing of the platform's processing is used.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from chaos_lives import Life, life_of
from secondsight.agent.simulate.cluster import GROUP_HOSTS, ClusterSpec, SimulatedCluster, gpu_uuid, host_name
from secondsight.agent.simulate.contents import HostContents
from secondsight.agent.simulate.jobs import Job, Workload, job_at
from secondsight.agent.simulate.machines import BOARDS
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import RollupSet
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Content, Event, Info, ScalarBlock

CATALOG = load_catalog()
UNKNOWN_METRIC = "gpu_of_another_release"
UNKNOWN_SECONDS = 20
SHARED = ("gpu_power", "gpu_temp", "gpu_clock")
"""Beginnings of the names of what two collectors of one host both read."""
ORIGIN = 1_790_000_010
"""Epoch second at which every story is simulated, so that a seed alone decides it; its times are shifted afterwards."""
CLOSING_SECONDS = 420
"""How long after the end of the story every collector says one last thing, which closes its windows."""
BLANKS = (
    Quality.ABSENT_NOT_SUPPORTED,
    Quality.ABSENT_NO_PERMISSION,
    Quality.ABSENT_SOURCE_BLANK,
    Quality.BAD_RANGE,
    Quality.BAD_PARSE,
    Quality.STALE,
    Quality.SATURATED,
)


class Cell(NamedTuple):
    """A stored value, None where there is none, and its quality."""

    value: int | float | None
    quality: Quality = Quality.OK


Subject = tuple[str, str]
Rows = dict[Subject, dict[str, Cell]]


@dataclass(frozen=True, slots=True)
class Histogram:
    metric: str
    unit: str
    bounds: tuple[float, ...]
    entity: str
    buckets: tuple[int, ...]
    sum: float
    start_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class Tick:
    """All that one reader of one collector says at one instant, by its host's clock."""

    collector: str
    host: str
    kind: EntityKind
    source: str
    second: int
    time_ms: int
    interval_ms: int
    boot: str
    offset_ms: int | None
    uncertainty_ms: int
    rows: Rows
    events: tuple[Event, ...] = ()
    infos: tuple[Info, ...] = ()
    histograms: tuple[Histogram, ...] = ()

    @property
    def correction_ms(self) -> int:
        if self.offset_ms is None or self.uncertainty_ms >= 200 or abs(self.offset_ms) <= 1000:
            return 0
        return -self.offset_ms

    @property
    def event_ms(self) -> int:
        return self.time_ms + self.correction_ms


@dataclass(frozen=True, slots=True)
class Story:
    """How large a fleet is and how long its story; `start` is its first epoch second, the start of a window."""

    hosts: int
    gpus: int
    seconds: int
    start: int
    seed: int

    @property
    def end(self) -> int:
        return self.start + self.seconds


@dataclass(slots=True, repr=False)
class Fleet:
    """The lives of all hosts, and the ticks that they make."""

    story: Story
    spec: ClusterSpec = field(init=False)
    lives: list[Life] = field(init=False)

    def __post_init__(self) -> None:
        story = self.story
        self.spec = ClusterSpec("chaos", story.hosts, story.gpus, BOARDS[0], _lively(story))
        chance = random.Random(f"lives {story.seed}")
        self.lives = [life_of(chance, number, story.seconds) for number in range(story.hosts)]

    def names(self) -> list[str]:
        return [host_name(self.spec, number) for number in range(self.story.hosts)]

    def ticks(self) -> Iterator[Tick]:
        """Give all ticks in order of time."""
        cluster = SimulatedCluster(self.spec, ORIGIN)
        contents = HostContents(self.spec, CATALOG)
        hosts = [_Host(self, number) for number in range(self.story.hosts)]
        for second in range(self.story.seconds):
            measured = cluster.advance(ORIGIN + second)
            made = contents.batch([measured])
            for host in hosts:
                yield from host.at(second, made[host.number], measured.jobs[host.number])
        for host in hosts:
            yield from host.closing()


def _lively(story: Story) -> int:
    """Return the first seed from the story's on with which an engine serves, and a job begins while another goes on."""
    for seed in itertools.count(story.seed * 1000):
        seconds = (ORIGIN, ORIGIN + story.seconds // 2, ORIGIN + story.seconds - 1)
        groups = range((story.hosts + 1) // GROUP_HOSTS)
        jobs = [[job_at(seed, group, second) for second in seconds] for group in groups]
        serves = any(job is not None and job.workload is Workload.INFERENCE for some in jobs for job in some)
        if serves and any(some[0] != some[-1] for some in jobs):
            return seed
    raise AssertionError


class _Host:
    """Turns what the simulator measured of one host into ticks."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.number = number
        self._fleet = fleet
        self._life = fleet.lives[number]
        self._name = host_name(fleet.spec, number)
        self._chance = random.Random(f"host {fleet.story.seed} {number}")
        self._bases: dict[tuple[Subject, str], int] = {}
        self._boot = 0
        self._ports = [0, 0]
        self._waits = 4_294_967_000
        self._steps = 0
        self._later: list[Event] = []
        self._omitted = {
            before: frozenset(
                metric.name
                for kind in EntityKind
                for metric in CATALOG.scalars(kind)
                if self._chance.random() < 0.06 and metric.name != "agent_up"
            )
            for before in (True, False)
        }

    def at(self, second: int, contents: tuple[Content, ...], job: Job | None) -> Iterator[Tick]:
        shift_ms = 1000 * (self._fleet.story.start - ORIGIN)
        measured = {content.schema.kind: _read(content, shift_ms) for content in contents}
        self._later += measured.pop(EntityKind.PROCESS_JOB, _NOTHING).events
        boot = self._life.boot(second)
        if boot != self._boot or second in self._life.resets:
            for made in measured.values():
                self._begin_again(made.rows, only_gpus=boot == self._boot)
            self._boot = boot
        for kind, made in measured.items():
            if not self._life.is_silent(second, kind):
                yield from self._simulated(second, kind, made)
        yield from self._facts(second)
        yield from self._others(second, job)

    def _simulated(self, second: int, kind: EntityKind, made: "_Made") -> Iterator[Tick]:
        own = {EntityKind.GPU: self._xids, EntityKind.PLATFORM: self._declared}
        events = made.events + (own[kind](second) if kind in own else ())
        told = self._told(second, made.rows)
        yield self._tick(second, kind, told, events=events, infos=made.infos, histograms=made.histograms)
        if kind is EntityKind.GPU and self.number % 2:
            yield self._second_opinion(second, told)

    def closing(self) -> Iterator[Tick]:
        second = self._fleet.story.seconds + CLOSING_SECONDS
        for collector in (self._name, f"{self._name}/scrape"):
            rows: Rows = {(self._name, ""): {"agent_up": Cell(1)}}
            yield self._tick(second, EntityKind.PLATFORM, rows, collector=collector)

    def _tick(self, second: int, kind: EntityKind, rows: Rows, **more: Any) -> Tick:
        clock = self._life.clock(second)
        fields: dict[str, Any] = {
            "collector": self._name,
            "source": "simulate",
            "interval_ms": 1000,
            "offset_ms": clock.offset_ms,
            "uncertainty_ms": clock.uncertainty_ms,
            "time_ms": (self._fleet.story.start + second) * 1000 + (clock.offset_ms or 0),
        }
        boot = f"{self._fleet.story.seed % 0xFFFFFFFF:08x}-0000-4000-8000-{self.number:06x}{self._boot:06x}"
        fields |= more
        return Tick(host=self._name, kind=kind, second=second, boot=boot, rows=rows, **fields)

    def _begin_again(self, rows: Rows, *, only_gpus: bool) -> None:
        """Have counters go on from here as if they had begun at zero a little before."""
        for subject, cells in rows.items():
            for name, cell in cells.items():
                is_gpu = CATALOG.get(name).kind is EntityKind.GPU
                counts = CATALOG.get(name).rollup is RollupSet.INCREASE and isinstance(cell.value, int)
                if counts and (is_gpu or not only_gpus):
                    self._bases[subject, name] = max(cell.value - self._chance.randrange(3), 0)

    def _told(self, second: int, rows: Rows) -> Rows:
        """Return what the host reports of what is: some cells are blank, some estimated, some not reported yet."""
        omitted, chance = self._omitted[second < self._life.change], self._chance
        told: Rows = {}
        for subject, cells in rows.items():
            mine = told[subject] = {}
            for name, cell in cells.items():
                if name in omitted:
                    continue
                base = self._bases.get((subject, name), 0)
                value = cell.value - base if base and cell.value is not None else cell.value
                mine[name] = Cell(value) if chance.random() > 0.004 else _blemished(value, chance)
            if not mine:
                del told[subject]
        return told

    def _second_opinion(self, second: int, told: Rows) -> Tick:
        """Return what another collector of the same host read of the same GPUs, with two metrics of its own value."""
        rows: Rows = {}
        for number, (subject, cells) in enumerate(told.items()):
            some = {
                name: cell for name, cell in cells.items() if name.startswith(("gpu_power", "gpu_temp", "gpu_clock"))
            }
            if some:
                rows[subject] = {
                    name: Cell(cell.value + number if cell.value else cell.value, cell.quality)
                    for name, cell in some.items()
                }
        is_new = self._life.change <= second < self._life.change + UNKNOWN_SECONDS
        if is_new:
            for cells in rows.values():
                cells[UNKNOWN_METRIC] = Cell(second)
        return self._tick(second, EntityKind.GPU, rows, collector=f"{self._name}/scrape", source="scrape")

    def _xids(self, second: int) -> tuple[Event, ...]:
        if self._chance.random() > 0.03:
            return ()
        clock = self._life.clock(second)
        at_ms = (self._fleet.story.start + second) * 1000 + (clock.offset_ms or 0)
        gpu = gpu_uuid(self._fleet.spec, self.number, self._chance.randrange(self._fleet.story.gpus))
        code = self._chance.choice((31, 63, 79))
        return (Event("gpu_xid", gpu, "", at_ms - 7, code, attributes={"text": f"xid {second}"}),)

    def _declared(self, second: int) -> tuple[Event, ...]:
        """Return what the agent says, after a silence, of samples that it will never send."""
        made = []
        for silence in self._life.silences:
            if silence.is_shed and silence.end == second:
                start_ms = (self._fleet.story.start + silence.start) * 1000
                told = {"kind": "gpu", "class": "P0", "reason": "spool_full", "rows": "50", "values": "3000", "id": "1"}
                told |= {"collector": self._name, "host": self._name}
                end_ms = start_ms + (silence.end - silence.start) * 1000
                made.append(Event("agent_shed", self._name, "", start_ms, 2, end_ms, 1, told))
        return tuple(made)

    def _facts(self, second: int) -> Iterator[Tick]:
        """Tell who has the GPUs, by a scheduler's clock, which is right; what was decided in silence is told after."""
        if not self._later or self._life.is_silent(second, EntityKind.PLATFORM):
            return
        at_ms = (self._fleet.story.start + second) * 1000
        events, self._later = tuple(self._later), []
        more = {"source": "slurm", "offset_ms": 0, "uncertainty_ms": 5, "time_ms": at_ms}
        yield self._tick(second, EntityKind.PROCESS_JOB, {}, events=events, **more)

    def _others(self, second: int, job: Job | None) -> Iterator[Tick]:
        life = self._life
        if second % 5 == 0:
            rows = self._fabric()
            if not life.is_silent(second, EntityKind.FABRIC_PORT):
                yield self._tick(second, EntityKind.FABRIC_PORT, self._told(second, rows), interval_ms=5000)
        if job is None:
            return
        if self.number % 2 == 0:
            rows = self._training(job)
            if not life.is_silent(second, EntityKind.TRAINING):
                yield self._tick(second, EntityKind.TRAINING, self._told(second, rows), source="training")
        if second % 10 == 0 and not life.is_silent(second, EntityKind.PROCESS_JOB):
            rows = self._processes(job, second)
            yield self._tick(second, EntityKind.PROCESS_JOB, self._told(second, rows), interval_ms=10_000)

    def _fabric(self) -> Rows:
        rows: Rows = {}
        self._waits = min(self._waits + self._chance.randrange(6), 4_294_967_295)
        for port in range(2):
            self._ports[port] += self._chance.randrange(10**9)
            rows[f"{self._name}/mlx5_{port}", ""] = {
                "fabric_port_state": Cell(self._chance.choice((4, 4, 4, 4, 1))),
                "fabric_port_rate_bits_per_second": Cell(4000),
                "fabric_port_receive_bytes_total": Cell(self._ports[port]),
                "fabric_port_transmit_wait_total": Cell(self._waits),
                "fabric_port_symbol_errors_total": Cell(min(self._ports[port] // 10**8, 65535)),
            }
        return rows

    def _training(self, job: Job) -> Rows:
        self._steps += self._chance.randrange(3)
        cells = {
            "training_step": Cell(self._steps),
            "training_steps_total": Cell(self._steps),
            "training_tokens_total": Cell(self._steps * 4096),
            "training_loss": Cell(self._chance.randrange(1, 4096) / 256),
            "training_learning_rate": Cell(1 / 1024),
            "training_rank_step_lag_seconds": Cell(self._chance.randrange(-5000, 9000)),
        }
        return {(f"{job.job_id}/0", ""): cells}

    def _processes(self, job: Job, second: int) -> Rows:
        rows: Rows = {
            (job.job_id, ""): {
                "job_state": Cell(1),
                "job_gpu_seconds_total": Cell(second * 1000),
                "job_restarts_total": Cell(second // 100),
            }
        }
        for index in range(self._fleet.story.gpus):
            part = f"gpu={gpu_uuid(self._fleet.spec, self.number, index)}"
            memory = self._chance.randrange(10**9)
            rows[f"{self._name}/{4000 + index}", part] = {"process_gpu_memory_bytes": Cell(memory)}
        return rows


def _blemished(value: int | float | None, chance: random.Random) -> Cell:
    if value is not None and chance.random() < 0.4:
        return Cell(value, Quality.ESTIMATE)
    return Cell(None, chance.choice(BLANKS))


class _Made(NamedTuple):
    """What the simulator made of one kind."""

    rows: Rows
    events: tuple[Event, ...]
    infos: tuple[Info, ...]
    histograms: tuple[Histogram, ...]


_NOTHING = _Made({}, (), (), ())


def _read(content: Content, shift_ms: int) -> _Made:
    """Take a content of one tick apart, its times so much later."""
    rows: Rows = {}
    block, entities = content.scalars, content.entities.entities
    if block is not None:
        for number, index in enumerate(block.entity_index.tolist()):
            rows[entities[index].entity, entities[index].part] = _cells(content, block, number)
    events = tuple(
        replace(
            event, time_ms=event.time_ms + shift_ms, end_ms=None if event.end_ms is None else event.end_ms + shift_ms
        )
        for event in content.events
    )
    infos = tuple(replace(info, time_ms=info.time_ms + shift_ms) for info in content.infos)
    histograms = tuple(
        Histogram(
            content.schema.histograms[item.column].metric,
            content.schema.histograms[item.column].unit,
            content.schema.histograms[item.column].bounds,
            entities[int(item.entity_index[0])].entity,
            tuple(item.buckets[0].tolist()),
            float(item.sums[0]),
            int(item.start_times_ms[0]) + shift_ms,
        )
        for item in content.histograms
    )
    return _Made({subject: cells for subject, cells in rows.items() if cells}, events, infos, histograms)


def _cells(content: Content, block: ScalarBlock, row: int) -> dict[str, Cell]:
    cells = {}
    for group in block.groups:
        present = np.ones(group.values.shape, np.bool_) if group.present is None else group.present
        for column in np.flatnonzero(present[:, row]).tolist():
            name = content.schema.columns[group.first_column + column].metric
            cells[name] = Cell(group.values[column, row].item())
    return cells


def values_of(rows: Mapping[Subject, Mapping[str, Cell]]) -> int:
    """Return how many cells have a value."""
    return sum(cell.value is not None for cells in rows.values() for cell in cells.values())
