"""Hold which GPUs are present, as the driver lists them: for readers that name a GPU by something else than its UUID.

`PresentGpus` is a table in the sense of `agent.jobs.devices.GpuTable`.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.agent.jobs.devices import Gpu, Slice


@dataclass(frozen=True, slots=True)
class Instance:
    """One GPU instance of a GPU in MIG mode, with the compute instances in it.

    Attributes:
        profile: As the driver prints it, such as `1g.18gb`; for people only.
    """

    gi: int
    compute: tuple[int, ...]
    uuids: tuple[str, ...]
    profile: str
    gpu_slices: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Present:
    """One GPU as the driver child described it.

    Attributes:
        number: The child's number for it.
        facts: What it is, by the attributes of `gpu_info`.
        instances: In the order of their numbers.
    """

    number: int
    uuid: str
    index: int
    minor: int | None
    pci_bus_id: str
    facts: Mapping[str, str]
    instances: tuple[Instance, ...] = ()

    @property
    def gpu(self) -> Gpu:
        """Return it as allocators look it up."""
        slices = tuple(
            Slice(uuid, one.gi, compute)
            for one in self.instances
            for compute, uuid in zip(one.compute, one.uuids, strict=True)
        )
        return Gpu(self.uuid, self.index, self.minor, self.pci_bus_id, slices)


class PresentGpus:
    """The GPUs that the driver lists now. Safe to use from threads; one reader sets it, whoever likes asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gpus: tuple[Gpu, ...] = ()

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs with index, minor, PCI address and MIG devices; nothing while they are not known."""
        with self._lock:
            return self._gpus

    def put(self, gpus: Sequence[Gpu]) -> None:
        """Replace what is known."""
        with self._lock:
            self._gpus = tuple(gpus)


def described(text: bytes) -> list[Present]:
    """Return the GPUs that a message of the child lists."""
    message = json.loads(text)
    versions = {str(name): str(value) for name, value in message["versions"].items()}
    return [_present(gpu, versions) for gpu in message["gpus"]]


def _present(gpu: Mapping[str, Any], versions: Mapping[str, str]) -> Present:
    facts = {
        "uuid": gpu["uuid"],
        "index": str(gpu["index"]),
        "pci_bus_id": gpu["pci_bus_id"],
        **({"minor": str(gpu["minor"])} if gpu["minor"] >= 0 else {}),
        **versions,
        **gpu["facts"],
    }
    minor = gpu["minor"] if gpu["minor"] >= 0 else None
    return Present(gpu["number"], gpu["uuid"], gpu["index"], minor, gpu["pci_bus_id"], facts, _instances(gpu["mig"]))


def _instances(mig: Sequence[Mapping[str, Any]]) -> tuple[Instance, ...]:
    by_number: dict[int, list[Mapping[str, Any]]] = {}
    for one in mig:
        by_number.setdefault(one["gi"], []).append(one)
    return tuple(
        Instance(
            number,
            tuple(one["ci"] for one in members),
            tuple(one["uuid"] for one in members),
            members[0]["profile"],
            members[0]["gpu_slices"],
            members[0]["memory_mib"],
        )
        for number, members in sorted(by_number.items())
    )
