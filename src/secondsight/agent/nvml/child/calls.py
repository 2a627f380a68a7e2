"""Say how each NVML call that the catalogue may name is made, and where in memory its answers lie.

A name reads `function(ARGUMENT,...).member`; `FI n` and `GPM n` are asked in batches and are not in here. A call is a
function with fixed arguments and one C structure for all that it gives back, so one call feeds every member.
"""

import ctypes
from ctypes import c_int, c_uint, c_ulonglong
from typing import Any, NamedTuple

from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.fields import LINK_TOTALS

ARGUMENTS = {
    "GRAPHICS": pynvml.NVML_CLOCK_GRAPHICS,
    "SM": pynvml.NVML_CLOCK_SM,
    "MEM": pynvml.NVML_CLOCK_MEM,
    "VIDEO": pynvml.NVML_CLOCK_VIDEO,
    "CURRENT": pynvml.NVML_CLOCK_ID_CURRENT,
    "APP_CLOCK_TARGET": pynvml.NVML_CLOCK_ID_APP_CLOCK_TARGET,
    "APP_CLOCK_DEFAULT": pynvml.NVML_CLOCK_ID_APP_CLOCK_DEFAULT,
    "CUSTOMER_BOOST_MAX": pynvml.NVML_CLOCK_ID_CUSTOMER_BOOST_MAX,
    "GPU": pynvml.NVML_TEMPERATURE_GPU,
    "SHUTDOWN": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "SLOWDOWN": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "MEM_MAX": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
    "GPU_MAX": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
}
"""Words of the catalogue for members of NVML's enumerations; a number stands for itself."""

DTYPES = {4: "u4", 8: "u8", 1: "u1"}


class One(ctypes.Structure):
    """A single unsigned answer."""

    _fields_ = (("value", c_uint),)


class Wide(ctypes.Structure):
    """A single 64-bit answer."""

    _fields_ = (("value", c_ulonglong),)


class WithPeriod(ctypes.Structure):
    """A figure and the period it was taken over, in microseconds; two pointers."""

    _fields_ = (("value", c_uint), ("period_us", c_uint))


class Mode(ctypes.Structure):
    """A mode now and after the next reset; two pointers."""

    _fields_ = (("current", c_uint), ("pending", c_uint))


class Shape(NamedTuple):
    """How a function gives its answers back.

    Attributes:
        struct: Structure that holds them.
        apart: True if each member is passed by a pointer of its own.
        version: Value for the member `version` before the call, 0 for none.
        older: The version to try where the driver does not know that one, 0 for none.
        key: Member that takes the argument instead of the call, "" for none.
    """

    struct: Any
    apart: bool = False
    version: int = 0
    older: int = 0
    key: str = ""


def _shapes() -> dict[str, Shape]:
    one = (
        *("ClockInfo", "MaxClockInfo", "MaxCustomerBoostClock", "ApplicationsClock", "DefaultApplicationsClock"),
        *("Clock", "PerformanceState", "Temperature", "TemperatureThreshold", "FanSpeed", "FanSpeed_v2", "NumFans"),
        *("PowerUsage", "EnforcedPowerLimit", "PowerManagementLimit", "PowerManagementDefaultLimit"),
        *("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth"),
        *("GpuMaxPcieLinkGeneration", "PcieReplayCounter", "NvLinkState", "PersistenceMode", "ComputeMode"),
    )
    wide = ("TotalEnergyConsumption", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    shapes = {f"nvmlDeviceGet{name}": Shape(One) for name in one}
    shapes |= {f"nvmlDeviceGet{name}": Shape(Wide) for name in wide}
    periods = ("Encoder", "Decoder", "Jpg", "Ofa")
    shapes |= {f"nvmlDeviceGet{name}Utilization": Shape(WithPeriod, apart=True) for name in periods}
    shapes |= {f"nvmlDeviceGet{name}Mode": Shape(Mode, apart=True) for name in ("Mig", "Ecc")}
    return shapes | {
        "nvmlDeviceGetUtilizationRates": Shape(pynvml.c_nvmlUtilization_t),
        "nvmlDeviceGetMemoryInfo_v2": Shape(pynvml.c_nvmlMemory_v2_t, version=pynvml.nvmlMemory_v2),
        "nvmlDeviceGetBAR1MemoryInfo": Shape(pynvml.c_nvmlBAR1Memory_t),
        "nvmlDeviceGetTemperatureV": Shape(
            pynvml.c_nvmlTemperature_v1_t, version=pynvml.nvmlTemperature_v1, key="sensorType"
        ),
        "nvmlDeviceGetMarginTemperature": Shape(
            pynvml.c_nvmlMarginTemperature_v1_t, version=pynvml.nvmlMarginTemperature_v1
        ),
        "nvmlDeviceGetSramEccErrorStatus": Shape(
            pynvml.c_nvmlEccSramErrorStatus_v1_t, version=pynvml.nvmlEccSramErrorStatus_v1
        ),
        "nvmlDeviceGetRowRemapperHistogram": Shape(pynvml.c_nvmlRowRemapperHistogramValues),
        **{name: Shape(Wide) for name in LINK_TOTALS},
        "nvmlDeviceGetGpuFabricInfoV": Shape(
            pynvml.c_nvmlGpuFabricInfo_v3_t, version=pynvml.nvmlGpuFabricInfo_v3, older=pynvml.nvmlGpuFabricInfo_v2
        ),
    }


SHAPES = _shapes()

SINGLE_MEMBERS = ("value", "temperature", "marginTemperature")
"""What a name without a member means, the first that the structure has."""


class Name(NamedTuple):
    """The parts of a name."""

    function: str
    arguments: tuple[int, ...]
    member: str


def parse(text: str) -> Name | None:
    """Return the parts of a call's name, None where no such call is known."""
    head, _, member = text.partition(".")
    function, _, inside = head.partition("(")
    shape = SHAPES.get(function)
    if shape is None:
        return None
    words = [word for word in inside.removesuffix(")").split(",") if word]
    arguments = [int(word) if word.isdigit() else ARGUMENTS.get(word, -1) for word in words]
    members = [name for name, *_ in shape.struct._fields_]
    wanted = member or next((name for name in SINGLE_MEMBERS if name in members), "")
    if wanted not in members or -1 in arguments:
        return None
    return Name(function, tuple(arguments), wanted)


def place(name: Name) -> tuple[int, str]:
    """Return where in its structure a member lies, and its type as numpy spells it."""
    struct = SHAPES[name.function].struct
    kind = {field[0]: field[1] for field in struct._fields_}[name.member]
    member = getattr(struct, name.member)
    return member.offset, "i4" if kind is c_int else DTYPES[member.size]


def size_bytes(function: str) -> int:
    """Return the size of a function's structure."""
    return ctypes.sizeof(SHAPES[function].struct)


class Call:
    """One call, ready to be made: the function, the handle, the arguments and where the answers go."""

    def __init__(self, handle: Any, function: str, arguments: tuple[int, ...], arena: Any, offset: int) -> None:
        shape = SHAPES[function]
        self.function = function
        self.answer = shape.struct.from_buffer(arena, offset)
        self._versions = tuple(version for version in (shape.version, shape.older) if version)
        if shape.version:
            self.answer.version = shape.version
        if shape.key:
            setattr(self.answer, shape.key, arguments[0])
            arguments = ()
        if shape.apart:
            members = [getattr(shape.struct, field[0]).offset for field in shape.struct._fields_]
            pointers = [ctypes.byref(self.answer, member) for member in members]
        else:
            pointers = [ctypes.byref(self.answer)]
        self._arguments = (handle, *(c_uint(value) for value in arguments), *pointers)
        try:
            self._function = pynvml._nvmlGetFunctionPointer(function)
        except pynvml.NVMLError:
            self._function = None

    def __call__(self) -> int:
        """Make the call and return its code; 13 where the library lacks the function."""
        if self._function is None:
            return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        code = int(self._function(*self._arguments))
        if code in _UNKNOWN_VERSION and len(self._versions) > 1:
            self._versions = self._versions[1:]
            self.answer.version = self._versions[0]
            code = int(self._function(*self._arguments))
        return code


_UNKNOWN_VERSION = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
