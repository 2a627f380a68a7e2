"""Carry framed messages between the agent and its driver child over pipes.

A message is a kind, a length and a payload. Both ends are of one installation, so there is no version in it. The child
imports this too, which holds nothing but the standard library and the binding.
"""

import os
import struct

PLAN = 1
TICK = 2
PROCESSES = 3

LAYOUT = 11
DEVICES = 12
VALUES = 13
PROCESS_LISTS = 14
EVENT = 15

HEAD = struct.Struct("<IB3x")
REQUEST = struct.Struct("<II")
"""Payload of TICK and PROCESSES: number of the request, deadline in ms."""

VALUES_HEAD = struct.Struct("<IIiII")
"""Number of the request, driver epoch, session code (0 ready, -1 starting, else NVML's), GPUs listed, records."""

RECORD_HEAD = struct.Struct("<IIIIIiI")
"""Of each record: device number, what it is (below), instance, layout, ms busy, code of the GPU, microseconds taken."""

MAIN, SLOW, INSTANCE, BUSY = 0, 1, 2, 3
"""What a record is: the GPU's own each tick, what is read rarely, one GPU instance's, none as the GPU is still busy."""

STARTING = -1
BLANK = 252
NOT_ASKED = 253
NOT_READ = 254
"""Codes beside NVML's: the value says that there is none, a better source answers, and nothing was read."""

MESSAGE_BYTES_MAXIMUM = 16 << 20
READ_BYTES = 1 << 16


def packed(kind: int, payload: bytes) -> bytes:
    """Return a message as it goes over a pipe."""
    return HEAD.pack(len(payload), kind) + payload


class Inbox:
    """Puts messages together from what a pipe gives."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take what was read."""
        self._held += chunk

    def take(self) -> tuple[int, bytes] | None:
        """Return the next whole message as (kind, payload), None if there is none yet.

        Raises:
            ValueError: The stream is no stream of messages.
        """
        if len(self._held) < HEAD.size:
            return None
        length, kind = HEAD.unpack_from(self._held)
        if length > MESSAGE_BYTES_MAXIMUM:
            raise ValueError(f"a message of {length} bytes")
        end = HEAD.size + length
        if len(self._held) < end:
            return None
        payload = bytes(self._held[HEAD.size : end])
        del self._held[:end]
        return kind, payload


def write_all(descriptor: int, message: bytes) -> None:
    """Write a whole message to a pipe that blocks.

    Raises:
        BrokenPipeError: The other end is gone.
    """
    view = memoryview(message)
    while view:
        view = view[os.write(descriptor, view) :]
