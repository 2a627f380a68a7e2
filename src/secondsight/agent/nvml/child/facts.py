"""Look up what a GPU is: names, serials, versions, its place in the NVLink fabric, its MIG devices.

Facts that the driver does not give are left out.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from secondsight.agent.nvml.child.binding import pynvml

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell"
}  # fmt: skip
"""By NVML_DEVICE_ARCH_*; a newer number is given as it is."""


class MigDevice(NamedTuple):
    """A MIG device: a compute instance of a GPU instance."""

    handle: Any
    facts: dict[str, Any]


def of_driver() -> dict[str, str]:
    """Return the versions of driver, library and CUDA."""
    cuda = _tried(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    found = {
        "driver": _tried(pynvml.nvmlSystemGetDriverVersion),
        "nvml": _tried(pynvml.nvmlSystemGetNVMLVersion),
        "cuda_driver": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    }
    return {name: str(value) for name, value in found.items() if value}


def of_device(handle: Any) -> dict[str, str]:
    """Return the facts of a GPU that are not in its listing."""
    texts = {
        "name": pynvml.nvmlDeviceGetName,
        "serial": pynvml.nvmlDeviceGetSerial,
        "vbios": pynvml.nvmlDeviceGetVbiosVersion,
        "board_part": pynvml.nvmlDeviceGetBoardPartNumber,
        "inforom": pynvml.nvmlDeviceGetInforomImageVersion,
    }
    found = {name: _tried(call, handle) for name, call in texts.items()}
    architecture = _tried(pynvml.nvmlDeviceGetArchitecture, handle)
    found["architecture"] = None if architecture is None else ARCHITECTURES.get(architecture, str(architecture))
    capability = _tried(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    found["compute_capability"] = None if capability is None else ".".join(str(number) for number in capability)
    mig = _tried(pynvml.nvmlDeviceGetMigMode, handle)
    found["mig_mode"] = None if mig is None else "on" if mig[0] else "off"
    return {name: str(value) for name, value in [*found.items(), *_fabric(handle), *_platform(handle)] if value}


def mig_devices(handle: Any) -> list[MigDevice] | None:
    """Return the MIG devices of a GPU, none where MIG is off or unknown; None where the driver did not tell."""
    mode = _tried(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        return []
    most = _tried(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    if most is None:
        return None
    found = (_tried(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index) for index in range(most))
    return [MigDevice(one, facts) for one in found if one is not None and (facts := _mig_facts(one))]


def _mig_facts(handle: Any) -> dict[str, Any]:
    uuid = _tried(pynvml.nvmlDeviceGetUUID, handle)
    instance = _tried(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    if uuid is None or instance is None:
        return {}
    attributes = _tried(pynvml.nvmlDeviceGetAttributes_v2, handle)
    name = str(_tried(pynvml.nvmlDeviceGetName, handle) or "")
    return {
        "uuid": uuid,
        "gi": instance,
        "ci": _tried(pynvml.nvmlDeviceGetComputeInstanceId, handle) or 0,
        "profile": name.rpartition("MIG ")[2] if "MIG " in name else "",
        "gpu_slices": attributes.gpuInstanceSliceCount if attributes else 0,
        "compute_slices": attributes.computeInstanceSliceCount if attributes else 0,
        "memory_mib": attributes.memorySizeMB if attributes else 0,
    }


def _fabric(handle: Any) -> Iterator[tuple[str, str]]:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if _tried(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None or not info.state:
        return
    if any(info.clusterUuid):
        text = bytes(info.clusterUuid).hex()
        yield "fabric_cluster", "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        yield "fabric_clique", str(info.cliqueId)


def _platform(handle: Any) -> Iterator[tuple[str, str]]:
    info = pynvml.c_nvmlPlatformInfo_v2_t()
    if _tried(pynvml.nvmlDeviceGetPlatformInfo, handle, ctypes.byref(info)) is None:
        return
    yield "chassis_serial", info.chassisSerialNumber.decode(errors="replace")
    for name, value in (("chassis_slot", info.slotNumber), ("tray", info.trayIndex), ("module_id", info.moduleId)):
        yield name, str(value[0] if value else 0)


def _tried(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call gives, None where it fails; it gives code 0 where it fills a structure."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
