"""Ask for many figures with one call: field values, and GPM metrics between two samples.

Both keep the driver's own array as it is, so that it goes to the agent without a look at each value.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from secondsight.agent.nvml.child.binding import pynvml

FIELD_BYTES = ctypes.sizeof(pynvml.c_nvmlFieldValue_t)
_RETURN_WORD = pynvml.c_nvmlFieldValue_t.nvmlReturn.offset // 4
METRIC_BYTES = ctypes.sizeof(pynvml.c_nvmlGpmMetric_t)
_METRIC_RETURN_WORD = pynvml.c_nvmlGpmMetric_t.nvmlReturn.offset // 4

_MEMBERS = dict(enumerate(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")))
"""Members of a value by the type that the driver says it has."""

Field = tuple[int, int]
"""(field id, scope)."""


class Fields:
    """Field values of one handle. Those asked for come first in the array, the others keep what they last said."""

    def __init__(self, handle: Any, fields: Sequence[Field]) -> None:
        self._handle = handle
        self._buffer = bytearray(FIELD_BYTES * len(fields))
        self._array = (pynvml.c_nvmlFieldValue_t * len(fields)).from_buffer(self._buffer) if fields else None
        self._function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        self._order = list(range(len(fields)))
        self._count = ctypes.c_int(len(fields))
        for place, (field, scope) in enumerate(fields):
            self._array[place].fieldId, self._array[place].scopeId = field, scope  # type: ignore[index] # not empty

    def choose(self, asked: Sequence[bool], codes: Sequence[int]) -> None:
        """Ask from now on only for some; the others answer with the code given for them.

        Args:
            asked: By the order in which the fields were first given.
            codes: Likewise.
        """
        entries = {field: bytes(self._entry(place)) for place, field in enumerate(self._order)}
        self._order.sort(key=lambda field: (not asked[field], field))
        self._count.value = sum(asked)
        for place, field in enumerate(self._order):
            self._entry(place)[:] = entries[field]
            if not asked[field]:
                self._array[place].nvmlReturn = codes[field]  # type: ignore[index] # not empty

    def read(self) -> int:
        """Read all that are asked for, and return the code of the call; codes of the fields are in the array."""
        return int(self._function(self._handle, self._count, self._array)) if self._count.value else 0

    def codes(self) -> list[int]:
        """Return the code of each field, by the order in which they were first given."""
        words = memoryview(self._buffer).cast("I")[_RETURN_WORD :: FIELD_BYTES // 4].tolist()
        by_field = [0] * len(words)
        for place, field in enumerate(self._order):
            by_field[field] = words[place]
        return by_field

    def numbers(self) -> list[int]:
        """Return the value of each field as an integer, by the order in which they were first given."""
        by_field = [0] * len(self._order)
        for place, field in enumerate(self._order):
            entry = self._array[place]  # type: ignore[index] # not empty
            by_field[field] = int(getattr(entry.value, _MEMBERS.get(entry.valueType, "ullVal")))
        return by_field

    @property
    def raw(self) -> bytearray:
        """Return the array as it lies in memory."""
        return self._buffer

    def _entry(self, place: int) -> memoryview:
        return memoryview(self._buffer)[place * FIELD_BYTES : (place + 1) * FIELD_BYTES]


class Gpm:
    """GPM metrics of a GPU, or of one of its GPU instances: averages between the samples of two ticks.

    A sample older than `age_seconds` is not averaged over: what lies between would be taken for one tick.
    """

    def __init__(self, handle: Any, instance: int | None, age_seconds: float, metrics: Sequence[int]) -> None:
        self._handle = handle
        self._age_seconds = age_seconds
        self._instance = instance
        self._buffer = bytearray(ctypes.sizeof(pynvml.c_nvmlGpmMetricsGet_t))
        self._request = pynvml.c_nvmlGpmMetricsGet_t.from_buffer(self._buffer)
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(metrics)
        for place, metric in enumerate(metrics):
            self._request.metrics[place].metricId = metric
        start = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        self.raw = memoryview(self._buffer)[start : start + METRIC_BYTES * len(metrics)]
        self._samples: list[Any] = []
        self._taken: float | None = None
        self.code = self._open() if metrics else int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        """Code of the last reading; 3 and 13 are for good."""

    def read(self, now_seconds: float) -> int:
        """Take a sample and compute the metrics since the one before; 21 (no data) where there is none yet."""
        if not self._samples:
            return self.code
        old, new = self._samples
        self.code = self._sample(new)
        if self.code:
            self._taken = None
            return self.code
        before, self._taken = self._taken, now_seconds
        self._samples = [new, old]
        if before is None or now_seconds - before > self._age_seconds:
            self.code = int(pynvml.NVML_ERROR_NO_DATA)
            return self.code
        self._request.sample1, self._request.sample2 = old, new
        self.code = int(pynvml._nvmlGetFunctionPointer("nvmlGpmMetricsGet")(ctypes.byref(self._request)))
        return self.code

    def codes(self) -> list[int]:
        """Return the code of each metric."""
        count = self._request.numMetrics
        if self.code:
            return [self.code] * count
        return self.raw.cast("I")[_METRIC_RETURN_WORD :: METRIC_BYTES // 4].tolist()

    def close(self) -> None:
        """Free the samples; may be called twice."""
        samples, self._samples = self._samples, []
        for sample in samples:
            pynvml._nvmlGetFunctionPointer("nvmlGpmSampleFree")(sample)

    def _open(self) -> int:
        try:
            if not pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
            self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        except pynvml.NVMLError as error:
            return int(error.value)
        return int(pynvml.NVML_ERROR_NO_DATA)

    def _sample(self, sample: Any) -> int:
        if self._instance is None:
            return int(pynvml._nvmlGetFunctionPointer("nvmlGpmSampleGet")(self._handle, sample))
        function = pynvml._nvmlGetFunctionPointer("nvmlGpmMigSampleGet")
        return int(function(self._handle, ctypes.c_uint(self._instance), sample))
