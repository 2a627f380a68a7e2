"""Take posts that are there as a whole: recognise their heads, and run what answers them without a task of its own."""

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from secondsight.gateway.answer import NO_CONTENT, Answer

PATH = b"/v1/frames"
_LENGTH_DIGITS = 9
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
_STATUS = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head that was parsed, of whose bytes all but the length come again with every post.

    Attributes:
        before, after: Its bytes around the digits of its length.
        headers: Lower-case name -> last value.
    """

    before: bytes
    after: bytes
    headers: Mapping[bytes, bytes]

    def body_at(self, data: bytes) -> tuple[int, int] | None:
        """Return where in these bytes the body begins and how long it is; None where they begin with another head."""
        if not data.startswith(self.before):
            return None
        start = len(self.before)
        end = data.find(b"\r", start, start + _LENGTH_DIGITS + 1)
        digits = data[start:end] if end > start else b""
        if not digits.isdigit() or not data.startswith(self.after, end):
            return None
        return end + len(self.after), int(digits)


def learnt(data: bytes, headers: Mapping[bytes, bytes]) -> KnownHead | None:
    """Return the head that these bytes begin with, by which the next one is recognised; None where none can be."""
    end = data.find(b"\r\n\r\n") + 4
    found = list(_LENGTH.finditer(data, 0, end))
    if end < 4 or len(found) != 1:
        return None
    first, last = found[0].span(1)
    return KnownHead(data[:first], data[last:end], headers)


def answer_bytes(answer: Answer, received_ms: int, sent_ms: int) -> bytes:
    """Return an answer as it goes over HTTP, with the headers that `app` sends; every post of frames ends here."""
    about_body = b"content-type: %b\r\ncontent-length: %d\r\n" % (answer.content_type, len(answer.body))
    return b"%b%bx-secondsight-received-ms: %d\r\nx-secondsight-sent-ms: %d\r\n%b\r\n%b" % (
        _STATUS[answer.status],
        b"" if answer.status == NO_CONTENT else about_body,
        received_ms,
        sent_ms,
        b"".join([b"%b: %b\r\n" % pair for pair in answer.headers]),
        answer.body,
    )


class Run:
    """Runs a coroutine at once as far as it goes, and on from each future that it waits for.

    A task would wait for its turn first. What the coroutine calls must not ask for the task that runs it, as
    `asyncio.timeout` does.

    Args:
        done: Gets what it returns, or nothing at all where it raised.
    """

    __slots__ = ("_done", "_work")

    def __init__(self, work: Coroutine[Any, None, bytes], done: Callable[[bytes], None]) -> None:
        self._work = work
        self._done = done
        self._step(None)

    def _step(self, _waited: object) -> None:
        try:
            waits_for = self._work.send(None)
        except StopIteration as end:
            self._done(end.value)
        except BaseException:
            self._done(b"")
            raise
        else:
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._step)
