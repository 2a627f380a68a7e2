"""Ask one handle for a list of named figures and give the answers as the bytes that the driver wrote.

What the handle does not support is asked again only when the group is probed anew, and so is a figure for which a
better source answers.
"""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from secondsight.agent.nvml.channel import NOT_ASKED
from secondsight.agent.nvml.child import calls
from secondsight.agent.nvml.child.batch import Field, Fields, Gpm
from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.child.totals import LinkTotal
from secondsight.agent.nvml.fields import ALL_LINKS, LINK_TOTALS, OF_A_LINK

UNSUPPORTED = frozenset((pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, 26))
MISUSED = frozenset((2, 7, 25))
"""Codes that say that the call itself is wrong: it is not made again before the next probe."""

PROBE_SECONDS = 600.0

RECORD = struct.Struct("<ii")
"""Before the bytes of a group: code of the field batch, code of GPM."""


class Wanted(NamedTuple):
    """What a group is asked for.

    Attributes:
        names: Names as the catalogue has them; `@N` behind a field is its scope.
        choices: Positions in `names` that give the same figure, best first.
    """

    names: tuple[str, ...]
    choices: tuple[tuple[int, ...], ...] = ()


def field_of(name: str) -> Field | None:
    """Return the field id and scope of a name, None where it is no field, or a total that is a call."""
    if not name.startswith("FI ") or name in LINK_TOTALS:
        return None
    number, _, scope = name.removeprefix("FI ").partition("@")
    field = int(number)
    return field, int(scope) if scope else ALL_LINKS if field in OF_A_LINK else 0


class Group:
    """One handle and what is asked of it together.

    Args:
        handle: GPU or MIG device.
        wanted: What to ask for.
        gpm: Whom to take GPM samples of: (handle of the GPU, GPU instance or None, seconds for which a sample is good).
        links: NVLinks over which totals are made.
    """

    def __init__(self, handle: Any, wanted: Wanted, gpm: tuple[Any, int | None, float], links: int = 0) -> None:
        self._wanted = wanted
        self._links = links
        fields = [(slot, field) for slot, name in enumerate(wanted.names) if (field := field_of(name)) is not None]
        named = [(slot, parsed) for slot, name in enumerate(wanted.names) if (parsed := calls.parse(name)) is not None]
        metrics = [(slot, int(name[4:])) for slot, name in enumerate(wanted.names) if name.startswith("GPM ")]
        self._field_slots = [slot for slot, _ in fields]
        self._fields = Fields(handle, [field for _, field in fields])
        self._metric_slots = [slot for slot, _ in metrics]
        self._gpm = Gpm(*gpm, [metric for _, metric in metrics])
        self._make_calls(handle, named)
        self.layout = self._layout(fields, named, metrics)
        self._probe_at = 0.0
        self._seen: list[int] = []

    def read(self, now_seconds: float) -> int:
        """Ask for everything; return the first code that speaks of the GPU or the driver as a whole, else 0."""
        if now_seconds >= self._probe_at:
            self._probe_at = now_seconds + PROBE_SECONDS
            self._choose([True] * len(self._wanted.names), [0] * len(self._wanted.names))
        self._fields_code = self._fields.read()
        for place in self._live:
            self._codes[place] = self._calls[place]()
        gpm_code = self._gpm.read(now_seconds)
        field_codes, metric_codes = self._fields.codes(), self._gpm.codes()
        seen = [self._fields_code, gpm_code, *field_codes, *metric_codes, *self._codes]
        if seen != self._seen:
            self._seen = seen
            self._learn(field_codes, metric_codes)
        return next((code for code in seen if code in WHOLE), 0)

    @property
    def record(self) -> bytes:
        """Return what was read last."""
        head = RECORD.pack(self._fields_code, self._gpm.code)
        codes = struct.pack(f"<{len(self._codes)}i", *self._codes)
        return b"".join((head, self._fields.raw, self._gpm.raw, codes, self._arena))

    def close(self) -> None:
        """Free what the driver holds for the group."""
        self._gpm.close()

    def _make_calls(self, handle: Any, named: Sequence[tuple[int, calls.Name]]) -> None:
        offsets: dict[tuple[str, tuple[int, ...]], int] = {}
        size = 0
        for _, name in named:
            if (name.function, name.arguments) not in offsets:
                offsets[name.function, name.arguments] = size
                size += -(-calls.size_bytes(name.function) // 8) * 8
        self._arena = bytearray(size)
        self._offsets = offsets
        self._calls = [self._call(handle, *key, offset) for key, offset in offsets.items()]
        self._codes = [0] * len(self._calls)
        self._live = range(len(self._calls))
        self._fields_code = 0
        places = {key: place for place, key in enumerate(offsets)}
        self._call_of = {slot: places[name.function, name.arguments] for slot, name in named}

    def _call(self, handle: Any, function: str, arguments: tuple[int, ...], offset: int) -> Callable[[], int]:
        if function in LINK_TOTALS:
            return LinkTotal(handle, LINK_TOTALS[function], self._links, self._arena, offset)
        return calls.Call(handle, function, arguments, self._arena, offset)

    def _layout(self, fields: Any, named: Sequence[tuple[int, calls.Name]], metrics: Any) -> str:
        """Return the description by which the agent reads the record."""
        members = []
        for slot, name in named:
            offset, dtype = calls.place(name)
            members.append((slot, self._offsets[name.function, name.arguments] + offset, dtype, self._call_of[slot]))
        return json.dumps(
            {
                "names": self._wanted.names,
                "fields": [(slot, *field) for slot, field in fields],
                "gpm": metrics,
                "members": members,
                "calls": len(self._calls),
                "arena_bytes": len(self._arena),
            }
        )

    def _learn(self, field_codes: list[int], metric_codes: list[int]) -> None:
        """Stop asking for what is not supported and for what a better source gives."""
        if self._fields_code:
            return
        codes = {slot: field_codes[place] for place, slot in enumerate(self._field_slots)}
        codes |= {slot: metric_codes[place] for place, slot in enumerate(self._metric_slots)}
        codes |= {slot: self._codes[call] for slot, call in self._call_of.items()}
        by_slot = [codes.get(slot, 0) for slot in range(len(self._wanted.names))]
        for choice in self._wanted.choices:
            found = next((rank for rank, slot in enumerate(choice) if codes.get(slot) == 0), len(choice))
            for rank, slot in enumerate(choice):
                if rank > found:
                    by_slot[slot] = NOT_ASKED
                elif by_slot[slot] == NOT_ASKED:
                    by_slot[slot] = 0
        gone = UNSUPPORTED | MISUSED | {NOT_ASKED}
        self._choose([code not in gone for code in by_slot], by_slot)

    def _choose(self, asked: list[bool], codes: list[int]) -> None:
        self._fields.choose([asked[slot] for slot in self._field_slots], [codes[slot] for slot in self._field_slots])
        wanted_calls = {call for slot, call in self._call_of.items() if asked[slot]}
        self._live = sorted(wanted_calls)  # type: ignore[assignment] # a range at first
        for slot, call in self._call_of.items():
            if call not in wanted_calls and codes[slot]:
                self._codes[call] = codes[slot]


WHOLE = frozenset((1, 9, 12, 15, 16, 18, 28))
"""Codes that speak of the GPU or of the driver as a whole."""
