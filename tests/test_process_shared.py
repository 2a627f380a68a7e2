"""Several processors share the partitions of one log and one store: the tables are those of one processor alone."""

import random
from contextlib import suppress

import pytest

from process_rig import CATALOG, T0, MemoryLog, allocation, envelope_bytes, frame_bytes, new_tenant
from secondsight.clock import ManualClock, SystemClock
from secondsight.contracts import Polled
from secondsight.errors import Retryable
from secondsight.model import EntityKind
from secondsight.process.run import Processor
from secondsight.process.world import World
from secondsight.selfmetrics import SelfMetrics
from secondsight.wire.content import Event

POWER, ENERGY, REASONS = "gpu_power_watts", "gpu_energy_joules_total", "gpu_clock_event_reasons"
PARTITIONS = 3
HOUR_MS = 3_600_000
VOLATILE = {"version", "tenant_id", "ingest_time"}


class Member:
    """A consumer whose partitions the test gives and takes, as a group does."""

    def __init__(self, log):
        self._log = log
        self._next = {}
        self._fresh = set()
        self.processor = None

    def give(self, partitions):
        self._fresh |= set(partitions)
        self._next |= {number: self._log.committed.get(number, 0) for number in partitions}

    def take(self, partitions, *, drained):
        if drained:
            self.processor.give_up(tuple(partitions))
        for number in partitions:
            del self._next[number]

    @property
    def held(self):
        return sorted(self._next)

    def poll(self, max_bytes, wait_seconds):  # noqa: ARG002 - nobody waits in a test
        records = []
        for number in self.held:
            some = self._log.partitions[number][self._next[number] :]
            records += some[:5]
            self._next[number] += len(some[:5])
        fresh, self._fresh = self._fresh & set(self._next), set()
        return Polled(tuple(records), tuple(self.held), fresh=tuple(sorted(fresh)))

    def commit(self, offsets):
        assert set(offsets) <= set(self._next)
        for number, offset in offsets.items():
            self._log.committed[number] = max(offset, self._log.committed.get(number, 0))

    def close(self):
        pass


class Shared:
    """Processors over one log and one store."""

    def __init__(self, store, count):
        self.store = store
        self.tenant = new_tenant()
        self.clock = ManualClock(T0 + 200_000)
        self.log = MemoryLog(self.clock, PARTITIONS)
        self.members = [self.make() for _ in range(count)]

    def make(self):
        member = Member(self.log)
        member.processor = Processor(member, self.log.definition_consumer, self.store, CATALOG, self.clock)
        return member

    def send(self, partition, body):
        self.log.append(envelope_bytes(body, self.clock.now_ms(), tenant=self.tenant), partition)

    def move(self, partition, to, *, drained=True):
        """Give a partition to another member; one that is not drained was lost, with whoever had it."""
        holder = next((member for member in self.members if partition in member.held), None)
        if holder is not None:
            holder.take([partition], drained=drained)
        to.give([partition])

    def settle(self):
        for _ in range(4):
            for member in self.members:
                while member.processor.step() or member.processor.has_more:
                    pass
            for member in self.members:
                member.processor.checkpoint()
            self.clock.move(31)

    def table(self, name, condition="1"):
        sql = f"SELECT * FROM {name} FINAL WHERE tenant_id = {{t:String}} AND {condition} ORDER BY ALL"
        rows = self.store.query(sql, {"t": self.tenant}).to_pylist()
        return [{column: value for column, value in row.items() if column not in VOLATILE} for row in rows]

    def tables(self):
        stays = [
            {name: row[name] for name in ("host_id", "entity", "from_time", "to_time")}
            for row in self.table("entities", "isNull(to_time)")
        ]
        named = ("gpu_1s", "1"), ("gpu_30s", "samples > 0"), ("events", "1"), ("ledger", "1")
        return [*(self.table(*each) for each in named), stays]


def host_bodies(host, seed):
    """Return frames of one host in the order in which they are sent: some late, some twice, with allocations."""
    chance = random.Random(f"{host}-{seed}")
    gpu = f"GPU-{host}"
    bodies = []
    for tick in range(0, 120, 10):
        cells = {POWER: chance.randint(1, 700_000), ENERGY: 1_000 * tick, REASONS: chance.choice([0, 4])}
        rows = {(gpu, "", 0): cells}
        bodies.append(frame_bytes(rows, [T0 + 1000 * tick], sequence=tick + 1, collector=host, host=host))
    for _ in range(2):
        bodies.insert(chance.randrange(len(bodies)), bodies.pop(chance.randrange(5)))
        bodies.insert(chance.randrange(len(bodies)), chance.choice(bodies))
    return bodies


def allocation_body(gpu, host, sequence, **fact):
    return frame_bytes(
        {}, [T0], events=[allocation(gpu, **fact)], sequence=sequence, collector=host, host=host, names=[POWER]
    )


def traffic(seed):
    """Return (partition, body): hosts by partition, and facts about their GPUs that come by another host's."""
    sent = [[(number, body) for body in host_bodies(f"h{number}", seed)] for number in range(PARTITIONS)]
    facts = [
        (0, allocation_body("GPU-h1", "h0", 901, start=T0 + 20_000, end=T0 + 80_000, job="one")),
        (2, allocation_body("GPU-h0", "h2", 902, start=T0 + 50_000, job="two")),
        (1, allocation_body("GPU-h1", "h1", 903, start=T0 + 90_000, job="three", team="b")),
        (0, allocation_body("GPU-h1", "h0", 904, start=T0 + 20_000, end=T0 + 60_000, version=2, job="one")),
    ]
    chance = random.Random(seed)
    mixed = []
    while any(sent):
        mixed.append(chance.choice([some for some in sent if some]).pop(0))
    for fact in facts:
        mixed.insert(chance.randrange(len(mixed)), fact)
    return mixed


def alone(store, seed):
    rig = Shared(store, 1)
    rig.members[0].give(range(PARTITIONS))
    for partition, body in traffic(seed):
        rig.send(partition, body)
    rig.settle()
    return rig.tables()


@pytest.mark.parametrize("seed", [1])
def test_partitions_that_move_about_change_nothing(store, seed):
    expected = alone(store, seed)
    assert len(expected[0]) == 36
    chance = random.Random(seed)
    rig = Shared(store, 2)
    for number in range(PARTITIONS):
        rig.move(number, rig.members[number % 2])
    for count, (partition, body) in enumerate(traffic(seed)):
        rig.send(partition, body)
        for member in rig.members:
            if chance.random() < 0.2:
                member.processor.step()
        rig.clock.move(chance.choice([0, 0, 1, 3]))
        if count % 8 == 5:
            rig.move(chance.randrange(PARTITIONS), chance.choice(rig.members), drained=chance.random() < 0.5)
        if count % 20 == 15:
            dead, heir = chance.sample(range(2), 2)
            gone = rig.members[dead].held
            rig.members[dead] = rig.make()
            rig.members[heir].give(gone)
    rig.settle()
    for found, wanted in zip(rig.tables(), expected, strict=True):
        assert [row for row in found if row not in wanted] == []
        assert found == wanted


def jobs_of(rig, gpu):
    return [row["job_id"] for row in rig.table("gpu_1s", f"entity = '{gpu}'")]


@pytest.mark.parametrize("settled", [False, True], ids=["open", "stored"])
def test_a_fact_that_comes_to_another_processor_stamps_rows_here(store, settled):
    rig = Shared(store, 2)
    rig.move(0, rig.members[0])
    rig.move(1, rig.members[1])
    for tick in range(20):
        rows = {("GPU-x", "", 0): {POWER: tick}}
        rig.send(1, frame_bytes(rows, [T0 + 1000 * tick], sequence=tick + 1, collector="h1", host="h1"))
    if settled:
        rig.settle()
    else:
        rig.members[1].processor.step()
    rig.send(0, allocation_body("GPU-x", "h0", 1, start=T0 + 5000, job="here"))
    rig.settle()
    assert jobs_of(rig, "GPU-x") == [""] * 5 + ["here"] * 15
    assert {row["job_id"]: row["samples"] for row in rig.table("gpu_30s", "samples > 0")} == {"": 5, "here": 15}
    assert {row["job_id"] for row in rig.table("gpu_1s")} == {"", "here"}


def test_a_fact_that_an_owner_did_not_live_to_learn_is_learnt_by_its_heir(store):
    rig = Shared(store, 2)
    rig.move(0, rig.members[0])
    rig.move(1, rig.members[1])
    for tick in range(20):
        rows = {("GPU-y", "", 0): {POWER: tick}}
        rig.send(1, frame_bytes(rows, [T0 + 1000 * tick], sequence=tick + 1, collector="h1", host="h1"))
    rig.settle()
    rig.send(0, allocation_body("GPU-y", "h0", 1, start=T0 + 5000, job="late"))
    rig.members[0].processor.step()
    rig.members[0].processor.checkpoint()
    dead = rig.members.pop(1)
    rig.members[0].give(dead.held)
    rig.settle()
    assert jobs_of(rig, "GPU-y") == [""] * 5 + ["late"] * 15


def test_a_gpu_that_moves_to_another_processor_s_host_is_at_one_place(store):
    rig = Shared(store, 2)
    rig.move(0, rig.members[0])
    rig.move(1, rig.members[1])
    for host, partition, second in (("h0", 0, 0), ("h1", 1, 40)):
        for tick in range(10):
            body = frame_bytes(
                {("GPU-m", "", 0): {POWER: 1}},
                [T0 + 1000 * (second + tick)],
                sequence=tick + 1,
                collector=host,
                host=host,
            )
            rig.send(partition, body)
        rig.settle()
    assert [row["host_id"] for row in rig.table("entities", "isNull(to_time)")] == ["h1"]
    assert [row["host_id"] for row in rig.table("entities", "isNotNull(to_time)")] == ["h0"]


def test_a_spare_that_gets_its_first_partition_late_goes_on_where_the_other_was(store):
    rig = Shared(store, 2)
    rig.members[1].processor.step()
    rig.move(0, rig.members[0])
    bodies = host_bodies("h0", 7)
    for body in bodies:
        rig.send(0, body)
    rig.settle()
    before = rig.tables()
    rig.move(0, rig.members[1])
    piece = frame_bytes(
        {("GPU-h0", "", 0): {"gpu_temperature_celsius": 44}}, [T0 + 30_000], sequence=500, collector="h0", host="h0"
    )
    rig.send(0, piece)
    rig.settle()
    rows = rig.table("gpu_1s", f"event_time = fromUnixTimestamp64Milli({T0 + 30_000}, 'UTC')")
    assert [(row["gpu_temperature_celsius"], row[ENERGY]) for row in rows] == [(44, 30_000)]
    after = rig.tables()
    assert len(after[0]) == len(before[0])
    assert [row["samples"] for row in after[1]] == [row["samples"] for row in before[1]]


def send_old_facts(rig):
    """Tell of two allocations that are over, one of them for longer than facts are kept."""
    told, now_ms = {"workload_id": "", "owner_team": "t", "model_id": "m"}, rig.clock.now_ms()
    old = [
        Event("job_gpu_allocation", "GPU-o", "", now_ms - start, 0, now_ms - end, 7, {**told, "job_id": job})
        for start, end, job in ((60 * HOUR_MS, 59 * HOUR_MS, "x"), (50 * HOUR_MS, 47 * HOUR_MS, "y"))
    ]
    rig.send(0, frame_bytes({}, [now_ms], events=old, sequence=1, collector="h0", host="h0", names=[POWER]))
    rig.settle()


def versions(world, tenant):
    """Return what the versions of rows grow by: of a GPU, an engine, and two jobs."""
    owners, place = world.owners, (tenant, "k1")
    looked = [(EntityKind.GPU, (*place, "GPU-o", "")), (EntityKind.INFERENCE, (*place, "h0:8000/m", ""))]
    looked += [(EntityKind.TRAINING, (*place, job, "")) for job in "xy"]
    return [owners.at(kind, "h0", subject, world.clock.now_ms()).version for kind, subject in looked]


def test_what_is_over_counts_once_however_often_partitions_come(store):
    rig = Shared(store, 2)
    rig.clock.step_wall((SystemClock().now_ms() - rig.clock.now_ms()) / 1000)
    rig.move(0, rig.members[0])
    rig.move(1, rig.members[1])
    send_old_facts(rig)
    assert versions(rig.members[0].processor.world, rig.tenant) == [14, 14, 7, 7]
    for hours in (0, 3):
        rig.clock.move(hours * 3600)
        rig.move(0, rig.members[1])
        rig.settle()
        rig.move(0, rig.members[0])
        rig.settle()
        found = [versions(member.processor.world, rig.tenant) for member in (*rig.members, rig.make())]
        assert found == [[14, 14, 7, 7]] * 3


def test_what_was_landed_long_ago_counts_once_however_often_it_is_read(store):
    rig = Shared(store, 1)
    rig.clock.step_wall((SystemClock().now_ms() - rig.clock.now_ms()) / 1000)
    rig.move(0, rig.members[0])
    send_old_facts(rig)
    rig.clock.move(3 * 86_400)
    world = World(store, CATALOG, rig.clock, SelfMetrics())
    for _ in range(2):
        assert versions(world, rig.tenant) == [14, 14, 7, 7]
        world.take_over({0})
    rig.clock.move(115 * 3600)
    world.restore_allocations()
    assert versions(world, rig.tenant) == [14, 14, 0, 7]


class LostAnswers:
    """A store whose first insert into each of some tables is done, and then fails."""

    def __init__(self, store, *tables):
        self._store = store
        self.left = set(tables)

    def insert(self, table, data):
        self._store.insert(table, data)
        if table in self.left:
            self.left.discard(table)
            raise Retryable(f"no answer about {table}")

    def query(self, *arguments):
        return self._store.query(*arguments)


def test_rows_whose_insert_may_have_been_done_are_announced_before_they_are_written_again(store):
    lossy = LostAnswers(store, "gpu_1s", "gpu_30s")
    rig = Shared(lossy, 1)
    rig.members[0].give([0])
    body = frame_bytes({("GPU-l", "", 0): {POWER: 1}}, [T0], sequence=1, collector="h0", host="h0")
    rig.send(0, body)
    rig.clock.move(60)
    for _ in range(6):
        with suppress(Retryable):
            rig.members[0].processor.step()
        rig.clock.move(31)
    rig.settle()
    assert lossy.left == set()
    times = [(row["table_name"], row["from_time"].timestamp() * 1000) for row in rig.table("rewrites")]
    assert sorted(times) == [("gpu_1s", T0), ("gpu_30s", T0)]
    assert len(rig.table("gpu_1s")) == len(rig.table("gpu_30s")) == 1
