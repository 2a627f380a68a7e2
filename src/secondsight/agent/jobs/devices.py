"""Turn the many spellings of a GPU into (UUID, part, replica), by the table of GPUs that are present.

`GPU-<uuid>`, a bare uuid, `MIG-<uuid>`, `MIG-GPU-<uuid>/<gi>/<ci>`, `0-1` (GPU and GPU instance), `nvidia0`,
`nvidia0/gi1`, `nvidia0/vgpu2`, `gpu-0` of DRA claims, all with `::N` for a replica. A number alone never identifies a
GPU: it is looked up as a device minor or an index, as its source says.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from secondsight.mapping.cells import Key, part_text
from secondsight.mapping.identity import gpu_id

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REPLICA = re.compile(r"(.+?)::([^:]*)").fullmatch
_OLD_MIG = re.compile(r"mig-(gpu-[^/]+)/(\d+)/(\d+)", re.IGNORECASE).fullmatch
_NODE = re.compile(r"(?:/dev/)?nvidia(\d+)((?:/(?:gi|ci|vgpu)\d+)*)").fullmatch
_STEP = re.compile(r"/(gi|ci|vgpu)(\d+)").findall
_INDEX_SLICE = re.compile(r"(\d+)-(\d+)").fullmatch
_CLAIM_GPU = re.compile(r"gpu-(\d{1,4})").fullmatch
_ANY_UUID = re.compile(rf"(?:(gpu|mig)-)?({_UUID})", re.IGNORECASE).search
_BUS_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE).fullmatch
NUMBER = re.compile(r"\d{1,5}").fullmatch


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG device of a GPU: a compute instance `ci` of GPU instance `gi`."""

    uuid: str
    gi: int
    ci: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that is present.

    Attributes:
        index: As NVML counts.
        minor: N of /dev/nvidiaN, or None where it is not known; it is not the index.
        pci: Bus address, as the driver writes it.
    """

    uuid: str
    index: int | None = None
    minor: int | None = None
    pci: str = ""
    slices: tuple[Slice, ...] = ()


class GpuTable(Protocol):
    """Who knows which GPUs are present. Must not block; safe to call from threads."""

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs, or nothing while they are not known."""
        ...


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a slice of one, as an allocator names it."""

    entity: str
    part: str = ""
    replica: str | None = None

    @property
    def place(self) -> Key:
        """Return the GPU or slice."""
        return self.entity, self.part


def device_of(text: str, gpus: Sequence[Gpu]) -> Device | None:
    """Return what a device id names, or None where it names no GPU that is known here."""
    name, replica = text.strip(), None
    found = _REPLICA(name)
    if found:
        name, replica = found[1], found[2]
    node = _NODE(name)
    if node:
        return _of_node(int(node[1]), dict(_STEP(node[2])), replica, gpus)
    place = _place(name, gpus)
    return None if place is None else Device(*place, replica)


def numbered(number: int, gpus: Sequence[Gpu], *, by: str = "minor") -> Gpu | None:
    """Return the GPU of a device minor or an index; a table without minors is asked for the index."""
    if by == "minor" and any(gpu.minor is not None for gpu in gpus):
        return next((gpu for gpu in gpus if gpu.minor == number), None)
    return next((gpu for gpu in gpus if gpu.index == number), None)


def claimed_device(device_name: str, cdi_names: Iterable[str], gpus: Sequence[Gpu]) -> Device | None:
    """Return what a claim of dynamic resource allocation names.

    Args:
        device_name: Name in the driver's pool, `gpu-0` for the GPU of minor 0.
        cdi_names: Names for the container runtime; some hold the UUID.
        gpus: The GPUs that are present.
    """
    for name in (device_name, *cdi_names):
        found = _ANY_UUID(name.rpartition("=")[2])
        if found and _is_known(found[1] or "", found[2], gpus):
            return device_of(f"{found[1] or 'GPU'}-{found[2]}", gpus)
    plain = _CLAIM_GPU(device_name)
    gpu = numbered(int(plain[1]), gpus) if plain else None
    return None if gpu is None else Device(gpu.uuid)


def part_of(gi: int | None, ci: int | None = None) -> str:
    """Return the part that names a GPU instance, or a compute instance of it."""
    return part_text((name, str(number)) for name, number in (("gi", gi), ("ci", ci)) if number is not None)


def _place(name: str, gpus: Sequence[Gpu]) -> Key | None:
    old = _OLD_MIG(name)
    if old:
        return gpu_id(old[1]), _slice_part(gpu_id(old[1]), int(old[2]), int(old[3]), gpus)
    pair = _INDEX_SLICE(name)
    if pair:
        gpu = numbered(int(pair[1]), gpus, by="index")
        return None if gpu is None else (gpu.uuid, part_of(int(pair[2])))
    if name.lower().startswith("mig-"):
        return _of_mig_uuid(name, gpus)
    if NUMBER(name):
        gpu = numbered(int(name), gpus, by="index")
        return None if gpu is None else (gpu.uuid, "")
    uuid = gpu_id(name)
    if not uuid.startswith("GPU-"):
        return _of_mig_uuid(name, gpus) or _of_bus_address(name, gpus)
    return _of_mig_uuid(name, gpus) or _of_gpu_uuid(uuid, gpus)


def _of_gpu_uuid(uuid: str, gpus: Sequence[Gpu]) -> Key | None:
    """Return the GPU of a UUID, of the beginning of one, or of a claim's `gpu-0`; None where several are meant."""
    if any(gpu.uuid == uuid for gpu in gpus):
        return uuid, ""
    claim = _CLAIM_GPU(uuid.lower())
    numbered_gpu = numbered(int(claim[1]), gpus) if claim else None
    if numbered_gpu is not None:
        return numbered_gpu.uuid, ""
    begun = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(uuid)]
    return None if len(begun) > 1 else (next(iter(begun), uuid), "")


def _of_mig_uuid(name: str, gpus: Sequence[Gpu]) -> Key | None:
    wanted = name.lower().removeprefix("mig-")
    for gpu in gpus:
        for each in gpu.slices:
            if each.uuid.lower().removeprefix("mig-") == wanted:
                return gpu.uuid, _slice_part(gpu.uuid, each.gi, each.ci, gpus)
    return None


def _of_bus_address(name: str, gpus: Sequence[Gpu]) -> Key | None:
    wanted = _bus_numbers(name)
    return next(((gpu.uuid, "") for gpu in gpus if wanted and _bus_numbers(gpu.pci) == wanted), None)


def _bus_numbers(text: str) -> list[int]:
    """Return domain, bus, device and function of a bus address, as spellings differ in leading zeros."""
    found = _BUS_ADDRESS(text)
    return [int(number, 16) for number in found.groups()] if found else []


def _slice_part(uuid: str, gi: int, ci: int, gpus: Sequence[Gpu]) -> str:
    """Return the part of a slice: its GPU instance, unless that is cut into several compute instances."""
    beside = {each.ci for gpu in gpus if gpu.uuid == uuid for each in gpu.slices if each.gi == gi}
    return part_of(gi, ci if len(beside | {ci}) > 1 or ci > 0 else None)


def _of_node(number: int, steps: dict[str, str], replica: str | None, gpus: Sequence[Gpu]) -> Device | None:
    gpu = numbered(number, gpus)
    if gpu is None:
        return None
    gi, ci = steps.get("gi"), steps.get("ci")
    part = part_of(None if gi is None else int(gi), None if ci is None else int(ci))
    return Device(gpu.uuid, part, steps.get("vgpu", replica))


def _is_known(prefix: str, uuid: str, gpus: Sequence[Gpu]) -> bool:
    """Tell whether a UUID inside a longer name is one of a GPU here, and not of a claim."""
    lower = uuid.lower()
    slices = {each.uuid.lower().removeprefix("mig-") for gpu in gpus for each in gpu.slices}
    return bool(prefix) or lower in slices or any(gpu.uuid.lower() == f"gpu-{lower}" for gpu in gpus)
