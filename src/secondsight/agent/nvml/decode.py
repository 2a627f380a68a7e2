"""Turn the bytes that the driver wrote, of many GPUs at once, into matrices of source values and return codes.

A layout says which bytes are which name. Nothing here knows metrics or units.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.nvml.channel import BLANK, NOT_READ

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]

_FIELD = np.dtype(
    [
        ("id", "<u4"),
        ("scope", "<u4"),
        ("stamp_us", "<i8"),
        ("latency_us", "<i8"),
        ("type", "<u4"),
        ("code", "<u4"),
        ("value", "<i8"),
    ]
)
_METRIC = np.dtype([("id", "<u4"), ("code", "<u4"), ("value", "<f8"), ("texts", "<u8", (3,))])
_CODES_BYTES = 8

_DOUBLE, _UNSIGNED, _LONG, _LONG_LONG, _SIGNED_LONG_LONG, _SIGNED, _SHORT = range(7)
_LOW_32 = 0xFFFFFFFF
NOT_AVAILABLE = -1
"""What NVML gives for an unsigned 64-bit value that it does not have, as a signed one."""


@dataclass(slots=True)
class Decoded:
    """Source values of several records of one layout; columns are the layout's names.

    Attributes:
        whole: Integers; 0 where there is none.
        real: Values of GPM metrics; 0 elsewhere.
        codes: NVML's return codes, and those of `channel` beside them.
        stamps_us: When the driver took the value, epoch microseconds, 0 where it does not say.
        odd: (row, column) -> value, of those that are no signed 64-bit integers.
    """

    whole: I64
    real: F64
    codes: I32
    stamps_us: I64
    odd: dict[tuple[int, int], float] = field(default_factory=dict)


class Layout:
    """How records of one kind of GPU are read."""

    def __init__(self, text: str) -> None:
        described = json.loads(text)
        self.names: tuple[str, ...] = tuple(described["names"])
        self._slot_of = {(number, scope): slot for slot, number, scope in described["fields"]}
        self._field_count = len(described["fields"])
        self._metric_slots = np.array([slot for slot, _ in described["gpm"]], np.intp)
        self._calls = int(described["calls"])
        self._arena_bytes = int(described["arena_bytes"])
        self._members = _Members(described["members"])
        self._orders: dict[bytes, NDArray[np.intp]] = {}

    @property
    def record_bytes(self) -> int:
        """Return the size of one record."""
        batches = _FIELD.itemsize * self._field_count + _METRIC.itemsize * self._metric_slots.size
        return _CODES_BYTES + batches + 4 * self._calls + self._arena_bytes

    def decode(self, records: Sequence[bytes]) -> Decoded:
        """Return the values of records.

        Raises:
            ValueError: A record has another size than the layout says.
        """
        if any(len(record) != self.record_bytes for record in records):
            raise ValueError("a record of another layout")
        raw = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), self.record_bytes)
        shape = (len(records), len(self.names))
        codes = np.full(shape, NOT_READ, np.int32)
        decoded = Decoded(np.zeros(shape, np.int64), np.zeros(shape), codes, np.zeros(shape, np.int64))
        batch_codes = _view(raw, 0, _CODES_BYTES, np.dtype("<i4"))
        at = _CODES_BYTES
        at = self._decode_fields(raw, at, batch_codes[:, 0], decoded)
        at = self._decode_metrics(raw, at, batch_codes[:, 1], decoded)
        call_codes = _view(raw, at, 4 * self._calls, np.dtype("<i4"))
        self._members.decode(raw[:, at + 4 * self._calls :], call_codes, decoded)
        return decoded

    def _decode_fields(self, raw: NDArray[np.uint8], at: int, batch_codes: I32, decoded: Decoded) -> int:
        end = at + _FIELD.itemsize * self._field_count
        if not self._field_count:
            return end
        entries = _view(raw, at, end - at, _FIELD)
        rows = np.arange(len(raw))[:, None]
        slots = np.stack([self._order(entries["id"][row], entries["scope"][row]) for row in range(len(raw))])
        failed = batch_codes[:, None] != 0
        codes = np.where(failed, batch_codes[:, None], entries["code"].astype(np.int32))
        decoded.codes[rows, slots] = codes
        decoded.stamps_us[rows, slots] = entries["stamp_us"]
        decoded.whole[rows, slots] = _whole(entries["type"], entries["value"])
        self._take_odd(entries, codes, slots, decoded)
        return end

    def _take_odd(self, entries: NDArray[Any], codes: I32, slots: NDArray[np.intp], decoded: Decoded) -> None:
        """Take apart the values that are no signed 64-bit integer: doubles, and the upper half of the unsigned."""
        types, values = entries["type"], entries["value"]
        unsigned = (types == _LONG) | (types == _LONG_LONG)
        rows, places = np.nonzero((codes == 0) & unsigned & (values == NOT_AVAILABLE))
        codes[rows, places] = decoded.codes[rows, slots[rows, places]] = BLANK
        for row, place in np.argwhere((codes == 0) & ((types == _DOUBLE) | (unsigned & (values < 0)))).tolist():
            cell = (row, int(slots[row, place]))
            if types[row, place] == _DOUBLE:
                value = float(values[row, place : place + 1].view(np.float64)[0])
                decoded.odd[cell] = int(value) if value.is_integer() else value
            else:
                decoded.odd[cell] = int(values[row, place]) + 2**64

    def _order(self, ids: NDArray[np.uint32], scopes: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Return the slot of each field of a record; the order changes when the child asks for others."""
        key = ids.tobytes() + scopes.tobytes()
        order = self._orders.get(key)
        if order is None:
            if len(self._orders) > 256:
                self._orders.clear()
            pairs = zip(ids.tolist(), scopes.tolist(), strict=True)
            order = self._orders[key] = np.array([self._slot_of[pair] for pair in pairs], np.intp)
        return order

    def _decode_metrics(self, raw: NDArray[np.uint8], at: int, batch_codes: I32, decoded: Decoded) -> int:
        end = at + _METRIC.itemsize * self._metric_slots.size
        if self._metric_slots.size:
            entries = _view(raw, at, end - at, _METRIC)
            failed = batch_codes[:, None] != 0
            codes = np.where(failed, batch_codes[:, None], entries["code"].astype(np.int32))
            decoded.codes[:, self._metric_slots] = codes
            decoded.real[:, self._metric_slots] = np.where(codes == 0, entries["value"], 0.0)
        return end


class _Members:
    """Members of structures, by the type in which they lie in the arena."""

    def __init__(self, members: Sequence[tuple[int, int, str, int]]) -> None:
        self._calls = np.array([call for *_, call in members], np.intp)
        self._slots = np.array([slot for slot, *_ in members], np.intp)
        self._by_type: list[tuple[np.dtype[Any], NDArray[np.intp], NDArray[np.intp]]] = []
        for name in sorted({dtype for _, _, dtype, _ in members}):
            dtype = np.dtype(f"<{name}")
            chosen = [(slot, offset // dtype.itemsize) for slot, offset, kind, _ in members if kind == name]
            slots, places = (np.array(column, np.intp) for column in zip(*chosen, strict=True))
            self._by_type.append((dtype, slots, places))

    def decode(self, arena: NDArray[np.uint8], codes: I32, decoded: Decoded) -> None:
        """Put the members into a matrix."""
        if not self._slots.size:
            return
        decoded.codes[:, self._slots] = codes[:, self._calls]
        arena = np.ascontiguousarray(arena)
        for dtype, slots, places in self._by_type:
            values = arena.view(dtype)[:, places]
            decoded.whole[:, slots] = values.astype(np.int64)
            if dtype == np.uint64:
                for row, place in np.argwhere(values >= np.uint64(2**63)).tolist():
                    self._take_odd(row, int(slots[place]), int(values[row, place]), decoded)

    @staticmethod
    def _take_odd(row: int, slot: int, value: int, decoded: Decoded) -> None:
        if value != NOT_AVAILABLE + 2**64:
            decoded.odd[row, slot] = value
        elif decoded.codes[row, slot] == 0:
            decoded.codes[row, slot] = BLANK


def _view(raw: NDArray[np.uint8], at: int, size: int, dtype: "np.dtype[Any]") -> NDArray[Any]:
    """Return the bytes of each row from a place on, as items of a type."""
    return np.ascontiguousarray(raw[:, at : at + size]).view(dtype)


def _whole(types: NDArray[np.uint32], values: I64) -> I64:
    """Return values as signed integers, by the type that the driver says each has."""
    low = values & _LOW_32
    signed = (low ^ 0x80000000) - 0x80000000
    small = np.where(types == _SHORT, values & 0xFFFF, np.where(types == _SIGNED, signed, low))
    wide = (types == _LONG) | (types == _LONG_LONG) | (types == _SIGNED_LONG_LONG)
    return np.where(types == _DOUBLE, 0, np.where(wide, values, small))
