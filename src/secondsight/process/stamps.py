"""Turn series and instants into attribution codes of rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secondsight.model import EntityKind
from secondsight.process.owners import Owners
from secondsight.process.series import CLUSTER, ENTITY, HOST, I32, PART, TENANT, SeriesTable

I64 = NDArray[np.int64]


class Stamps:
    """Attribution of the rows of one kind: remembers the span that each series was last found in."""

    def __init__(self, owners: Owners, kind: EntityKind, table: SeriesTable) -> None:
        self._owners = owners
        self._kind = kind
        self._table = table
        self._start_ms = np.zeros(0, np.int64)
        self._end_ms = np.zeros(0, np.int64)
        self._code = np.zeros(0, np.int32)
        self._version = np.zeros(0, np.int64)

    def of(self, series: I32, time_ms: I64) -> tuple[I32, I64]:
        """Return (attribution code, allocation version) of rows."""
        self._reserve(len(self._table))
        unknown = (time_ms < self._start_ms[series]) | (time_ms >= self._end_ms[series])
        code, version = self._code[series], self._version[series]
        for row in np.flatnonzero(unknown).tolist():
            number, instant = int(series[row]), int(time_ms[row])
            if not self._start_ms[number] <= instant < self._end_ms[number]:
                self._find(number, instant)
            code[row], version[row] = self._code[number], self._version[number]
        return code, version

    def forget(self, series: Sequence[int]) -> None:
        """Look up these series again when they are next asked for."""
        self._reserve(len(self._table))
        self._end_ms[list(series)] = 0

    def _find(self, series: int, time_ms: int) -> None:
        names = self._table.names_of(series)
        subject = (names[TENANT], names[CLUSTER], names[ENTITY], names[PART])
        span = self._owners.at(self._kind, names[HOST], subject, time_ms)
        self._start_ms[series], self._end_ms[series] = span.start_ms, span.end_ms
        self._code[series] = self._owners.things.attributions.code(span.attribution)
        self._version[series] = span.version

    def _reserve(self, size: int) -> None:
        if size > self._end_ms.size:
            more = max(size, 2 * self._end_ms.size) - self._end_ms.size
            for name in ("_start_ms", "_end_ms", "_code", "_version"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))
