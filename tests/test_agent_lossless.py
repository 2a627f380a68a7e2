"""Whatever befalls the agent, its host or the way out: what was produced is stored, declared, refused or in flight."""

import itertools
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lossless_rig import Books, fill_an_hour, numbers_stored, open_spools, site
from secondsight.model import Priority
from secondsight.wire.frame import split
from spool_rig import totals
from up_rig import platform, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    data = tmp_path_factory.mktemp("platform") / "data"
    with platform(data, "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent") as up:
        yield up


@pytest.fixture
def place(running, tmp_path, request):
    host = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    with site(running, tmp_path / "site", host) as made:
        yield made


def test_storms_of_503_and_429_cuts_and_lost_answers(place):
    faults = itertools.cycle(["503", "pass", "429", "pass", "cut", "pass", "deaf", "502", "pass"])
    place.gate.faults = lambda: next(faults)
    place.agent.start()
    place.run_until(lambda: {"503", "429", "cut", "deaf", "502"} <= set(place.gate.posts))
    place.gate.faults = lambda: "pass"
    everything_is_stored(place)


def everything_is_stored(place):
    """Stop the agent cleanly; then nothing is left, and every answer of the target that came in time is stored once."""
    place.let_say(3)
    assert place.agent.stop() == 0, place.agent.words()
    books = Books(place)
    assert (books.in_flight, books.never_spooled) == ({}, {})
    books.balance()
    stored = numbers_stored(place)
    assert set(stored) <= set(range(1, place.target.said + 1))
    assert set(stored.values()) == {place.target.gpus}
    assert place.target.said - len(stored) <= place.given_up


def test_sigterm_amid_a_send_that_hangs(place):
    place.configure(stop_seconds=2.0)
    place.agent.start()
    place.let_say(5)
    place.gate.faults = lambda: "hang"
    seen = len(place.gate.posts)
    place.run_until(lambda: len(place.gate.posts) > seen)
    assert place.agent.stop() == 0
    assert "frames left in the spool" in place.agent.words()
    left = Books(place)
    assert left.in_flight
    left.balance()
    place.gate.release.set()
    place.gate.faults = lambda: "pass"
    place.agent.start()
    everything_is_stored(place)


@pytest.mark.crash
@pytest.mark.parametrize("batch_seconds", [pytest.param(0.0, id="at-once"), pytest.param(3.0, id="held")])
def test_kill_9_at_any_moment(place, batch_seconds):
    place.configure(batch_seconds=batch_seconds)
    chance = random.Random(29)
    place.gate.faults = lambda: chance.choice(["pass", "pass", "deaf", "cut"])
    for _ in range(4):
        place.agent.start()
        place.let_say(chance.randint(2, 9))
        place.agent.kill()
    kills = 4
    place.gate.faults = lambda: "pass"
    place.agent.start()
    place.let_say(3)
    assert place.agent.stop() == 0
    books = Books(place)
    assert books.in_flight == {}
    books.balance()
    stored = numbers_stored(place)
    assert set(stored.values()) == {place.target.gpus}
    assert place.target.said - len(stored) <= kills + place.given_up


@pytest.mark.crash
def test_a_wiped_spool_inside_one_boot(place):
    place.agent.start()
    place.let_say(5)
    place.gate.faults = lambda: "cut"
    place.let_say(5)
    place.agent.kill()
    spools = open_spools(place.spool)
    wiped = {key: (0, rows, values) for key, (_, rows, values) in totals(spools.in_flight).items()}
    before = totals(spools.spooled)
    ids = {member.spool.spool_id for member in spools.members}
    spools.close()
    assert wiped
    Books(place).balance()
    shutil.rmtree(place.spool)
    place.gate.faults = lambda: "pass"
    place.agent.start()
    place.let_say(5)
    assert place.agent.stop() == 0
    delivered = {
        key: (0, f[1] - wiped.get(key, (0, 0, 0))[1], f[2] - wiped.get(key, (0, 0, 0))[2]) for key, f in before.items()
    }
    books = Books(place, delivered)
    assert books.in_flight == {}
    books.balance()
    spools = open_spools(place.spool)
    assert not ids & {member.spool.spool_id for member in spools.members}
    spools.close()


def test_a_spool_wiped_under_the_running_agent(place):
    place.agent.start()
    place.let_say(5)
    place.gate.faults = lambda: "cut"
    place.let_say(5)
    place.spool.rename(place.folder / "gone")  # else what the agent makes meanwhile is in the way
    shutil.rmtree(place.folder / "gone")
    place.let_say(5)
    place.gate.faults = lambda: "pass"
    place.let_say(3)
    assert place.agent.stop() == 0
    assert "somebody deleted" in place.agent.words()
    books = Books(place)
    assert books.in_flight == {}

    def unexplained() -> int:
        declared = books.shed()[0].get((Priority.P0, "gpu"), (0, 0, 0))[1] // place.target.gpus
        return place.target.said - len(numbers_stored(place)) - declared - place.given_up

    wait_until(lambda: unexplained() <= 1, 60)
    assert books.shed()[0][Priority.P0, "gpu"][1] > 0


def test_an_hour_of_samples_behind_a_cut_network(place):
    """The hour is spooled by the agent's own parts on a clock that is moved by hand, then a real agent takes over."""
    ticks = fill_an_hour(place, 20)
    place.gate.keeps = True
    place.agent.start()
    place.let_say(20)
    assert place.agent.stop() == 0
    books = Books(place)
    assert books.in_flight == {}
    books.balance()
    stored = numbers_stored(place)
    assert len(set(range(1, place.target.said + 1)) - set(stored)) <= place.given_up
    heads = [head for body in place.gate.bodies for head in split(body) if head.rows]
    now_ms = heads[-1].last_tick_ms
    assert any(head.live and head.last_tick_ms > now_ms - 60_000 for head in heads[:12])
    assert sum(head.live for head in heads if head.last_tick_ms < now_ms - 120_000) > 0
    assert len(stored) > ticks


def test_steps_of_the_clock_by_an_hour(place):
    stepped = place.folder / "clock"
    stepped.write_bytes(bytes(8))
    place.agent.command = [sys.executable, str(Path(__file__).with_name("lossless_agent.py"))]
    place.agent.extra = (str(stepped),)
    place.agent.start()
    place.let_say(5)
    for hours in (1, 0, -1, 0):
        with stepped.open("r+b") as file:
            file.write((hours * 3_600_000).to_bytes(8, "little", signed=True))
        place.let_say(6)
    assert place.agent.stop() == 0, place.agent.words()
    books = Books(place)
    assert (books.in_flight, books.never_spooled) == ({}, {})
    books.balance()
    parts = books.parts()
    assert parts["stored"]
    assert place.agent.process.returncode == 0


@pytest.fixture
def small(tmp_path, place):
    """A file system of a few MiB of its own, on which the agent's folder is."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = tmp_path / "small"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "secondsight-test", str(mounted)], check=True)
    try:
        place.spool = mounted / "spool"
        yield mounted
    finally:
        place.agent.end()
        subprocess.run(["umount", "-l", str(mounted)], check=True)


def test_a_folder_that_cannot_be_written_is_tried_until_it_can(place, small):
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    place.configure()
    place.agent.start()
    place.let_say(5)
    assert "cannot be opened" in place.agent.words()
    subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    place.run_until(lambda: "is back" in place.agent.words())
    place.let_say(4)
    assert place.agent.stop() == 0, place.agent.words()
    books = Books(place)
    assert books.in_flight == {}
    books.balance()

    def accounted() -> int:
        shed = books.parts()["shed"].get((Priority.P0, "gpu"), (0, 0, 0))
        return len(numbers_stored(place)) + shed[1] // place.target.gpus

    wait_until(lambda: place.target.said - accounted() <= place.given_up, 60)
    assert len(numbers_stored(place)) >= 3


def test_a_full_disk_sheds_the_least_important_and_goes_on_by_itself(place, small):
    place.target.gpus = 40
    ballast = small / "ballast"
    place.configure(spool_mib=64)
    place.gate.faults = lambda: "cut"
    place.agent.start()
    place.let_say(3)
    free = os.statvfs(small)
    ballast.write_bytes(bytes(max(free.f_bavail * free.f_frsize - (80 << 10), 0)))
    place.run_until(lambda: os.statvfs(small).f_bavail * os.statvfs(small).f_frsize < 16 << 10)
    place.let_say(12)
    ballast.unlink()
    place.gate.faults = lambda: "pass"
    place.let_say(3)
    place.run_until(lambda: "pass" in place.gate.posts)
    assert place.agent.stop() == 0, place.agent.words()
    books = Books(place)
    assert books.in_flight == {}
    books.balance()
    parts = books.parts()
    shed = {priority: sum(f[2] for (p, _), f in parts["shed"].items() if p is priority) for priority in Priority}
    produced = {
        priority: sum(f[2] for (p, _), f in parts["produced"].items() if p is priority) for priority in Priority
    }
    assert shed[Priority.P2] > 0
    assert shed[Priority.P2] / produced[Priority.P2] >= shed[Priority.P0] / produced[Priority.P0]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_a_long_life_of_random_misfortune(place, seed):
    chance = random.Random(seed)
    faults = ["pass", "503", "429", "502", "cut", "deaf"]
    place.configure(batch_seconds=chance.choice([0.0, 0.5, 1.0]), stop_seconds=3.0)
    place.agent.start()
    for _ in range(60):
        mixture = chance.choices(faults, k=4)
        place.gate.faults = lambda mixture=mixture: chance.choice(mixture)
        place.let_say(chance.randint(1, 20))
        if chance.random() < 0.3:
            place.agent.kill()
            place.agent.start()
        elif chance.random() < 0.2:
            assert place.agent.stop() == 0, place.agent.words()
            place.agent.start()
    place.gate.faults = lambda: "pass"
    place.configure(stop_seconds=30.0)
    place.let_say(10)
    assert place.agent.stop() == 0, place.agent.words()
    place.agent.start()
    place.let_say(5)
    assert place.agent.stop() == 0, place.agent.words()
    books = Books(place)
    assert books.in_flight == {}
    books.balance()
