"""Damaged bodies of the protocols of agents and events, through a gateway, its log and a processor.

A sender's fault is never answered as one of ours; nothing crashes or grows; what is sound is stored afterwards.
Damage that a checksum shows is only some of it: frames are damaged inside as well, and their checksums made right.
Bodies of foreign protocols are in `test_foreign_fuzz`, frames without a gateway in `test_wire_fuzz`.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from events_rig import Platform, platform
from gateway_fixture import FRAMES, NOW_MS, content, frame, stamp
from secondsight.errors import Rejected
from secondsight.store.chdb import ChdbStore
from secondsight.wire.content import Event
from secondsight.wire.frame import encode, read_header
from test_foreign_fuzz import mutated
from test_wire_fuzz import mutate, mutate_block, with_body, with_header

QUICK, LONG = 400, 60_000
SETTLE_EVERY = 2_000
REFUSED = (400, 409, 413, 415, 422, 424)
GPU = "GPU-00000000-0000-0000-0000-00000000000a"
EVENTS = [
    {"metric": "gpu_xid", "time": NOW_MS - 1000, "host": "h1", "gpu": GPU, "code": 79, "text": "fell off"},
    {"metric": "job_exit", "time": "2023-11-14T22:13:19Z", "job": "j1", "code": 0, "id": "e1"},
    {
        "metric": "job_gpu_allocation",
        "time": NOW_MS - 9000,
        "host": "h1",
        "gpu": GPU,
        "job": 7,
        "team": "a",
        "version": 1,
    },
]
CLOUD = {
    "specversion": "1.0",
    "id": "c1",
    "source": "/s",
    "type": "job_exit",
    "time": "2023-11-14T22:13:19Z",
    "data": {"job": "j2", "code": 1},
}

Sample = tuple[str, str, Callable[[random.Random], bytes]]
"""Path, content type, what makes a damaged body."""


def damaged_frame(chance: random.Random) -> bytes:
    """Return a body of frames: damaged as they lie, in the header, in a block, or anywhere inside."""
    host = f"host-{chance.randrange(3)}"
    made = stamp(host, chance.randrange(1, 1 << 20), ticks=2)
    facts = tuple(Event("gpu_xid", GPU, "", NOW_MS, code) for code in range(chance.randrange(3)))
    told = content(host, ticks=2)
    sound = encode(made, type(told)(told.schema, told.entities, told.scalars, events=facts), inline=True)
    head = read_header(sound)
    raw = zstandard.decompress(sound[head.body_start :])
    try:
        match chance.randrange(4):
            case 0:
                body = mutate(chance, sound)
            case 1:
                body = with_header(sound, mutate(chance, sound[: head.header_bytes]), head.header_bytes)
            case 2:
                body = with_body(head, mutate_block(chance, raw))
            case _:
                body = with_body(head, mutate(chance, raw))
    except Rejected:
        body = mutate(chance, sound)
    return body if chance.random() < 0.5 else frame(host, chance.randrange(1 << 20)) + body


def damaged_json(sound: bytes) -> Callable[[random.Random], bytes]:
    return lambda chance: mutated(sound, chance)


def damaged_event(chance: random.Random) -> bytes:
    """Return JSON of events with one field that is something else."""
    odd = [None, True, -1, 1 << 70, 1e300, "", "\x00", "x" * 9000, [], {"a": {"b": 1}}, [[]], "9999-99-99T99:99:99Z"]
    events = [dict(event) for event in EVENTS]
    event = chance.choice(events)
    event[chance.choice([*event, "endTime", "attributes", "part", "severity", "unknown"])] = chance.choice(odd)
    return json.dumps(events).encode()


SAMPLES: dict[str, Sample] = {
    "frames": ("/v1/frames", FRAMES, damaged_frame),
    "events as a list": ("/v1/events", "application/json", damaged_json(json.dumps(EVENTS).encode())),
    "events as lines": (
        "/v1/events",
        "application/x-ndjson",
        damaged_json(b"\n".join(json.dumps(e).encode() for e in EVENTS)),
    ),
    "cloud events": ("/v1/events", "application/cloudevents+json", damaged_json(json.dumps(CLOUD).encode())),
    "events with odd fields": ("/v1/events", "application/json", damaged_event),
}


def attack(site: Platform, sample: Sample, bodies: int, seed: int) -> Counter[str]:
    """Send damaged bodies, and count those of which everything was taken and those of which something was refused."""
    path, content_type, damaged = sample
    headers = {"Content-Type": content_type, "Authorization": f"Bearer {site.token}"}
    found: Counter[str] = Counter()
    connection = site.run.connect()
    for number in range(bodies):
        body = damaged(random.Random(seed * 1_000_003 + number))
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        told, status = answer.read(), answer.status
        assert status == 200 or status in REFUSED, (status, told, body.hex())
        found["refused" if status != 200 or json.loads(told)["rejected"] else "taken"] += 1
        if number % SETTLE_EVERY == SETTLE_EVERY - 1:
            site.processor.drain()
    connection.close()
    site.settle()
    return found


def check(folder: Path, store: ChdbStore, name: str, bodies: int, seed: int) -> None:
    with platform(folder, store) as site:
        try:
            found = attack(site, SAMPLES[name], bodies, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert min(found["taken"], found["refused"]) > bodies // 100
        metrics = site.run.gateway.selfmetrics
        assert metrics.value("gateway_refused_requests_total", code="internal") == 0
        broken = site.processor.metrics.value("processor_dead_letters_total", stage="dead_letter", code="bad_frame")
        assert (broken > 0) == (name == "frames"), "what a gateway makes of a body can be read"
        mark = f"host-after-{name.replace(' ', '-')}-{seed}"
        assert site.run.post(frame(mark), site.token).json["accepted"] == 1
        site.settle()
        assert site.rows("gpu_1s", "count() AS n", f"host_id = '{mark}'") == [{"n": 2}]


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_bodies_are_faults_of_their_sender(tmp_path: Path, store: ChdbStore, name: str) -> None:
    check(tmp_path, store, name, QUICK, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SAMPLES)
def test_many_damaged_bodies_are_faults_of_their_sender(tmp_path: Path, store: ChdbStore, name: str) -> None:
    check(tmp_path, store, name, LONG, random.SystemRandom().randrange(1 << 32))
