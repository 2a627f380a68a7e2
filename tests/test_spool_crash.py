"""kill -9 at every boundary of the spool: before each thing it asks of the disk, and in the middle of each write."""

import json
import os
import shutil
import signal
from functools import cache
from pathlib import Path

import pytest

from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.losses import LossReason
from secondsight.agent.spool.ranges import owed_spans, with_span
from secondsight.errors import SecondsightError
from secondsight.log.disk import Disk
from secondsight.model import Priority
from spool_rig import KINDS, Rig, added, counted, frame, lost, totals

P0, P1, P2 = Priority
BOUNDS = SpoolBounds(70_000, max_age_seconds=3600)


class DeadlyDisk(Disk):
    """Kills this process before its operation number `last`, or in the middle of its write of that number.

    Syncs cost nothing: what was written outlives the process.
    """

    def __init__(self, last: int, *, in_the_middle: bool) -> None:
        self.done = 0
        self._last = last
        self._in_the_middle = in_the_middle

    def _step(self) -> None:
        self.done += not self._in_the_middle
        if self.done == self._last and not self._in_the_middle:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path, flags):
        self._step()
        return super().open(path, flags)

    def write_at(self, fd, data, position):
        self._step()
        self.done += self._in_the_middle
        if self._in_the_middle and self.done == self._last:
            super().write_at(fd, data[: len(data) // 2], position)
            os.kill(os.getpid(), signal.SIGKILL)
        super().write_at(fd, data, position)

    def sync(self, _fd):
        self._step()

    def truncate(self, fd, size_bytes):
        self._step()
        super().truncate(fd, size_bytes)

    def unlink(self, path):
        self._step()
        super().unlink(path)

    def sync_folder(self, _folder):
        self._step()


class Life:
    """What happens to the spools, told line by line to whoever survives: what is begun, and what is done."""

    def __init__(self, folder: Path, disk: Disk, out: int) -> None:
        self.out = out
        self.number = 0
        self.rig = Rig.__new__(Rig)
        self.tell("begin", "open")
        self.rig.__init__(folder, BOUNDS, disk)

    def tell(self, *words) -> None:
        os.write(self.out, json.dumps(words).encode() + b"\n")

    def run(self) -> None:
        for turn in range(3):
            for priority, frames in ((P2, 9), (P1, 3), (P0, 2)):
                self.append(priority, frames)
            self.settle(P0, 0, 1 + 2 * turn)
            self.settle(P1, 2 + 2 * turn, 3 + 2 * turn)
            self.report()
        self.lose(P1)
        self.append(P0, 12)
        self.append(P0, 20)
        self.settle(P1, 0, 9)
        self.settle(P2, 0, 1000)
        self.report()
        self.tell("begin", "reopen")
        self.rig.reopen()
        self.append(P2, 1)
        self.report()

    def append(self, priority: Priority, frames: int) -> None:
        made = [self._frame() for _ in range(frames)]
        self.tell("append", priority, [self.number - frames + 1, self.number])
        try:
            self.rig.append(*made, priority=priority)
        except SecondsightError:
            self.tell("refused")
            return
        self.tell("done", self.rig.member(priority).spool.next_sequence - frames)

    def _frame(self) -> bytes:
        self.number += 1
        return frame_of(self.number)

    def settle(self, priority: Priority, first: int, end: int) -> None:
        spool = self.rig.member(priority).spool
        end = min(end, spool.next_sequence)
        owed = [list(span) for span in owed_spans(max(first, spool.first_owed), end, spool._cursor.ahead)]
        self.tell("settle", priority, owed)
        self.rig.spools.settle(self.rig.member(priority), first, end)
        self.tell("done")

    def lose(self, priority: Priority) -> None:
        member = self.rig.member(priority)
        record = self.rig.spools.read(member, 1, 1)[0]
        self.tell("begin", "lose")
        self.rig.spools.lose(member, record, LossReason.REFUSED)
        self.tell("done")

    def report(self) -> None:
        self.tell("begin", "report")
        entries = self.rig.spools.to_report()[1]
        told = [[entry.number, entry.loss.priority, entry.loss.kind, *_figures(entry.loss)] for entry in entries]
        self.tell("reported", told)
        self.rig.spools.reported([entry.number for entry in entries])
        self.tell("done")


def _figures(loss) -> tuple[int, int, int]:
    return loss.records, loss.rows, loss.values


@cache
def frame_of(number: int) -> bytes:
    return frame(number, 300 + number % 7, KINDS[number % 2])


class Witness:
    """What the lines say, and what the spools must say after them."""

    def __init__(self, lines: list[list]) -> None:
        self.frames: dict = {}
        self.settled: dict = {priority: set() for priority in Priority}
        self.maybe_settled: dict = {priority: set() for priority in Priority}
        self.maybe_appended: list = []
        self.reported: dict = {}
        for line, following in zip(lines, [*lines[1:], None], strict=True):
            self._take(line, following)

    def _take(self, line: list, following: list | None) -> None:
        is_done = following is not None
        match line:
            case ["append", priority, [first, last]]:
                frames = [frame_of(number) for number in range(first, last + 1)]
                if not is_done:
                    self.maybe_appended = [(Priority(priority), frames)]
                elif following[0] == "done":
                    self.frames.update({(priority, following[1] + n): one for n, one in enumerate(frames)})
            case ["settle", priority, spans]:
                numbers = {number for first, end in spans for number in range(first, end)}
                (self.settled if is_done else self.maybe_settled)[Priority(priority)].update(numbers)
            case ["reported", entries]:
                self.reported.update({number: rest for number, *rest in entries})

    def judge(self, rig: Rig) -> None:
        book = rig.spools._custody.book
        entries = {entry.number: entry.loss for entry in book._sealed}
        declared = added(
            lost(loss for loss in (*entries.values(), *book._open.values()) if loss.was_spooled),
            *({(Priority(p), kind): tuple(f)} for n, (p, kind, *f) in self.reported.items() if n not in entries),
        )
        for priority in Priority:
            self._judge_class(rig, priority, {key: f for key, f in declared.items() if key[0] == priority})

    def _judge_class(self, rig: Rig, priority: Priority, declared: dict) -> None:
        records = rig.spools.read(rig.member(priority), 10_000, 1 << 24)
        owed = {record.sequence for record in records}
        assert not owed & self.settled[priority]
        for record in records:
            known = self.frames.get((priority, record.sequence))
            new = [one for p, frames in self.maybe_appended if p == priority for one in frames]
            assert record.payload == known or record.payload in new
        settled = self.settled[priority] | (self.maybe_settled[priority] - owed)
        spooled = {key: f for key, f in totals(rig.spools.spooled).items() if key[0] == priority}
        parts = (
            counted([record.payload for record in records], priority),
            counted([self.frames[priority, number] for number in settled], priority),
            declared,
        )
        assert added(*parts) == spooled
        confirmed = counted([one for (p, _), one in self.frames.items() if p == priority], priority)
        assert all(spooled.get(key, (0,))[0] >= figures[0] for key, figures in confirmed.items())


def live_and_die(folder: Path, last: int, *, in_the_middle: bool) -> tuple[list[list], bool]:
    """Let a child live until its end or operation `last`; return its lines and whether it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            Life(folder, DeadlyDisk(last, in_the_middle=in_the_middle), writer).run()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        lines = [json.loads(line) for line in file]
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or lines[-1] == ["done"]
    return lines, os.WIFSIGNALED(status)


@pytest.mark.crash
@pytest.mark.parametrize("in_the_middle", [False, True])
def test_kill_at_every_boundary_leaves_everything_owed_settled_or_declared(tmp_path, in_the_middle):
    last, killed = 0, True
    while killed:
        last += 1
        folder = tmp_path / "spool"
        shutil.rmtree(folder, ignore_errors=True)
        lines, killed = live_and_die(folder, last, in_the_middle=in_the_middle)
        rig = Rig(folder, BOUNDS, DeadlyDisk(0, in_the_middle=False))
        Witness(lines).judge(rig)
        rig.append(frame(9999))
        assert rig.owed()[-1] == frame(9999)
        rig.spools.close()
    assert last > 50
    assert any(line[0] == "reported" and line[1] for line in lines)


def test_ranges_meet_the_cursor_and_each_other():
    assert with_span(3, ((5, 7), (9, 10)), (7, 9)) == (3, ((5, 10),))
    assert with_span(3, ((5, 7), (9, 10)), (2, 5)) == (7, ((9, 10),))
    assert list(owed_spans(0, 12, ((2, 4), (6, 7)))) == [(0, 2), (4, 6), (7, 12)]
    assert list(owed_spans(3, 6, ((2, 4), (6, 7)))) == [(4, 6)]
