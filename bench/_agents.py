"""Be the agents of a prepared fleet, one kept-alive connection each, in a process of its own; JSON lines say what came.

First every agent introduces itself with a batch that carries its definitions, at a rate that leaves the product its
cores. Then `paced`: every host has a phase of its own, and a batch is sent when its last tick has passed. Or
`flat_out`: batches of a past that began long enough ago are sent as fast as answers come, a bounded number at a time.
A host's next batch is sent when the last one was acknowledged. One thread, one epoll: no more of the machine is used
than system calls, 16 bytes of checksum and a few patched fields a request need.
"""

import argparse
import json
import os
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import _fleet
import _stamps

READ_SECONDS = 0.05
"""What reading a tick takes on a host."""

GROUP_SECONDS = 0.002
"""Requests that are due within so long are sent together: an epoll of its own for each would cost the product cores."""

RETRY_SECONDS = 0.5
HEAD = (
    "POST /v1/frames HTTP/1.1\r\nHost: {}:{}\r\nAccept-Encoding: identity\r\nAuthorization: Bearer {}\r\n"
    "Content-Type: application/x-secondsight-frame\r\nContent-Length: "
)
_CLOCK = partial(time.clock_gettime, time.CLOCK_PROCESS_CPUTIME_ID)


@dataclass(slots=True)
class Agent:
    """One host's connection.

    Attributes:
        due: Batches that wait for the answer to an earlier one, as (batch, when due).
        sent: (batch, first tick, when it was sent first) of what is not answered yet.
        unsent: What the socket did not take yet.
    """

    number: int
    link: socket.socket
    due: deque[tuple[int, float]] = field(default_factory=deque)
    sent: tuple[int, int, float] | None = None
    answer: bytes = b""
    unsent: bytes = b""


@dataclass(slots=True)
class Tally:
    """What was sent and how long answers took; times are epoch seconds."""

    values: int = 0
    sent_bytes: int = 0
    requests: int = 0
    retries: int = 0
    held: int = 0
    acks: list[tuple[float, float]] = field(default_factory=list)
    acked_values: list[int] = field(default_factory=list)
    late_seconds: list[float] = field(default_factory=list)


class Swarm:
    """All agents of a fleet."""

    def __init__(self, fleet: _fleet.Fleet, where: tuple[str, int], token: str, hosts: int) -> None:
        self._fleet = fleet
        self._stamper = _stamps.Stamper(fleet)
        self._identities: dict[tuple[int, tuple[int, ...]], _stamps.Identity] = {}
        self._head = HEAD.format(*where, token).encode()
        self._epoll = select.epoll()
        self._agents: dict[int, Agent] = {}
        self._again: list[tuple[float, Agent]] = []
        self.tally = Tally()
        self._where = where
        self.hosts: list[Agent] = []
        self.in_flight = 0
        self._group_ends = 0.0
        for number in range(hosts):
            for batch in range(min(2, len(fleet.templates[0].frames))):
                self._identity(number, self._stamper.prepared(number, batch), batch)

    def introduce(self, hosts: int, per_second: float) -> int:
        """Connect every host, send its first batch with its definitions, and return the values when all are taken."""
        began = time.time()
        for number in range(hosts):
            self._until(began + number / per_second)
            self.hosts.append(self._open(number))
            self._first(self.hosts[-1], 0, round((time.time() - _fleet.TICKS) * 1000))
        self._settle()
        values, self.tally = self.tally.values, Tally()
        return values

    def paced(self, begin: float, end: float, batches: int) -> None:
        """Send batches in real time from `begin` on until `end`; batch 1 is the first."""
        for batch in range(1, batches):
            for agent in self.hosts:
                at = begin + (batch - 1 + agent.number / len(self.hosts)) * _fleet.TICKS
                due = at + _fleet.TICKS - 1 + READ_SECONDS
                if due > end:
                    self._settle()
                    return
                self._until(due)
                if agent.sent is None:
                    now = time.time()
                    self.tally.late_seconds.append(now - due)
                    self._send(agent, batch, round(at * 1000), now)
                else:
                    self.tally.held += 1
                    agent.due.append((batch, at))
        self._settle()

    def flat_out(self, since: float, end: float, batches: int, in_flight: int) -> None:
        """Send batches of a past that begins at `since`, at most `in_flight` at a time, until `end`."""
        for batch in range(1, batches):
            for agent in self.hosts:
                while self.in_flight >= in_flight or agent.sent is not None:
                    self._take(0.05)
                if time.time() > end:
                    self._settle()
                    return
                at = since + (batch - 1 + agent.number / len(self.hosts)) * _fleet.TICKS
                self._send(agent, batch, round(at * 1000), time.time())
        raise SystemExit(f"the {batches} prepared batches ended before the time did")

    def _open(self, number: int) -> Agent:
        link = socket.create_connection(self._where)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
        agent = Agent(number, link)
        self._agents[link.fileno()] = agent
        self._epoll.register(link.fileno(), select.EPOLLIN)
        return agent

    def _identity(self, host: int, prepared: _stamps.Prepared, batch: int) -> _stamps.Identity:
        key = (host, prepared.tables)
        found = self._identities.get(key)
        if found is None:
            found = self._identities[key] = self._stamper.identity(host, batch)
        return found

    def _send(self, agent: Agent, batch: int, at_ms: int, due: float) -> None:
        prepared = self._stamper.prepared(agent.number, batch)
        heads = self._stamper.heads(self._identity(agent.number, prepared, batch), prepared, batch, at_ms)
        agent.sent = (batch, at_ms, due)
        frames = [part for pair in zip(heads, prepared.bodies, strict=True) for part in pair]
        self._write(agent, prepared.size_bytes, frames)
        self.in_flight += 1
        self.tally.sent_bytes += prepared.size_bytes

    def _first(self, agent: Agent, batch: int, at_ms: int) -> None:
        frames = _fleet.first_frames(self._fleet, agent.number, batch, at_ms)
        if agent.sent is None:
            self.in_flight += 1
        agent.sent = (batch, at_ms, time.time())
        self._write(agent, sum(map(len, frames)), frames)

    def _write(self, agent: Agent, size: int, parts: list[bytes]) -> None:
        head = b"%b%d\r\n\r\n" % (self._head, size)
        taken = agent.link.sendmsg([head, *parts])
        if taken < len(head) + size:
            agent.unsent = b"".join((head, *parts))[taken:]
            self._epoll.modify(agent.link.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _until(self, due: float) -> None:
        """Take answers until `due`; what is due within a group's time of its first is due with it."""
        while (pause := due - time.time()) > 0:
            if due < self._group_ends:
                return
            self._take(pause)
        if due >= self._group_ends:
            self._group_ends = due + GROUP_SECONDS
            self._take(0.0)

    def _take(self, wait_seconds: float) -> None:
        """Take the answers that are there or come within some time."""
        if self._again and self._again[0][0] <= time.time():
            _, agent = self._again.pop(0)
            batch, at_ms, first_sent = agent.sent or (0, 0, 0.0)
            self.in_flight -= 1
            self._send(agent, batch, at_ms, first_sent)
        for fd, events in self._epoll.poll(min(wait_seconds, 0.05)):
            agent = self._agents[fd]
            if events & select.EPOLLOUT:
                self._push(agent)
            if events & ~select.EPOLLOUT:
                self._read(agent)

    def _push(self, agent: Agent) -> None:
        agent.unsent = agent.unsent[agent.link.send(agent.unsent) :]
        if not agent.unsent:
            self._epoll.modify(agent.link.fileno(), select.EPOLLIN)

    def _read(self, agent: Agent) -> None:
        data = agent.link.recv(65536)
        if not data:
            raise SystemExit(f"the gateway closed the connection of host {agent.number}")
        answer = agent.answer + data if agent.answer else data
        end = answer.find(b"\r\n\r\n")
        at = answer.find(b"content-length: ")
        if end < 0 or len(answer) < end + 4 + int(answer[at + 16 : answer.index(b"\r", at)]):
            agent.answer = answer
            return
        agent.answer = b""
        self._answered(agent, answer)

    def _answered(self, agent: Agent, answer: bytes) -> None:
        batch, at_ms, asked = agent.sent or (0, 0, 0.0)
        status = answer[9:12]
        if status == b"424":
            self._first(agent, batch, at_ms)
            return
        if status in (b"429", b"503"):
            self.tally.retries += 1
            self._again.append((time.time() + RETRY_SECONDS, agent))
            return
        if status != b"200" or b'"rejected":[]' not in answer:
            raise SystemExit(f"host {agent.number} was refused: {answer!r}")
        agent.sent = None
        self.in_flight -= 1
        now, values = time.time(), self._stamper.prepared(agent.number, batch).values
        self.tally.requests += 1
        self.tally.values += values
        self.tally.acks.append((now, now - asked))
        self.tally.acked_values.append(values)
        if agent.due:
            batch, at = agent.due.popleft()
            self._send(agent, batch, round(at * 1000), at + _fleet.TICKS - 1 + READ_SECONDS)

    def _settle(self) -> None:
        while self.in_flight:
            self._take(0.05)


def run(given: argparse.Namespace) -> None:
    """Introduce, wait for a line, then send until the window ends; say when it begins and what it held."""
    seconds = given.warm_up + given.seconds
    batches = int(seconds / _fleet.TICKS * (given.haste if given.flat_out else 1.0)) + 3
    kinds = _fleet.HUNDRED.kinds if given.gpu_only else None
    fleet = _fleet.prepare(batches, _fleet.Data(hundred=True, kinds=kinds, split=given.split))
    swarm = Swarm(fleet, (given.host, given.port), os.environ["BENCH_TOKEN"], given.hosts)
    _say({"introduced_values": swarm.introduce(given.hosts, given.introduce_per_second)})
    sys.stdin.readline()
    begin = time.time() + 0.5
    window = (begin + given.warm_up, begin + seconds)
    if not given.flat_out:  # the first batch is complete when its ticks have passed
        window = (window[0] + _fleet.TICKS, window[1] + _fleet.TICKS)
    _say({"sent_from": begin, "begin": window[0], "end": window[1]})
    used = _CLOCK()
    if given.flat_out:
        swarm.flat_out(begin - batches * _fleet.TICKS + seconds, window[1], batches, given.in_flight)
    else:
        swarm.paced(begin, window[1], batches + 1)
    _say(_figures(swarm.tally, fleet, window, (_CLOCK() - used) / (time.time() - begin)))


def _figures(tally: Tally, fleet: _fleet.Fleet, window: tuple[float, float], cores: float) -> dict[str, object]:
    when, took = np.array(tally.acks).T
    inside = (when >= window[0]) & (when < window[1])
    late = np.array(tally.late_seconds or [0.0]) * 1000
    return {
        "values": tally.values,
        "acked_values_per_second": float(np.array(tally.acked_values)[inside].sum() / (window[1] - window[0])),
        "requests_per_second": float(inside.sum() / (window[1] - window[0])),
        "ack_p50_ms": float(np.percentile(took[inside], 50) * 1000),
        "ack_p99_ms": float(np.percentile(took[inside], 99) * 1000),
        "retries": tally.retries,
        "held_back": tally.held,
        "late_p50_ms": float(np.percentile(late, 50)),
        "late_p99_ms": float(np.percentile(late, 99)),
        "wire_bytes_per_value": tally.sent_bytes / max(1, tally.values),
        "values_per_batch": fleet.values_per_batch,
        "noisy_share": fleet.noisy_share,
        "generator_cores": cores,
    }


def _say(told: dict[str, object]) -> None:
    print(json.dumps(told), flush=True)


def main() -> None:
    """Read arguments and run."""
    parser = argparse.ArgumentParser(prog=Path(__file__).name)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--warm-up", type=float, required=True, help="seconds before the window")
    parser.add_argument("--seconds", type=float, required=True, help="of the window")
    parser.add_argument("--introduce-per-second", type=float, default=400.0)
    parser.add_argument("--gpu-only", action="store_true", help="only rows of GPUs")
    parser.add_argument("--split", action="store_true", help="one frame for each class of metrics")
    parser.add_argument("--flat-out", action="store_true")
    parser.add_argument("--haste", type=float, default=2.0, help="flat out: at most so many times real time")
    parser.add_argument("--in-flight", type=int, default=256)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
