"""Find the UUID of the GPU at a PCI address, also after it has gone.

Whatever else reads GPUs knows those that answer now; the driver lists its own in /proc; its log names them too. What
was once known of an address stays known until another GPU is seen there.
"""

from collections.abc import Mapping
from pathlib import Path

from secondsight.agent.jobs.inventory import driver_gpus
from secondsight.agent.kmsg.pci import Address, parse_address
from secondsight.agent.known_gpus import KnownGpus

GPUS_MAXIMUM = 256


class GpuTable:
    """PCI addresses and UUIDs of one host."""

    def __init__(self, root: Path, shared: KnownGpus, kept: Mapping[str, str]) -> None:
        """Make a table.

        Args:
            root: Folder that holds proc.
            shared: What the agent's readers know together; asked first, and told.
            kept: What was known before the agent started, address -> UUID.
        """
        self._folder = root / "proc/driver/nvidia/gpus"
        self._shared = shared
        self._kept = dict(kept)
        self._listed = False

    @property
    def kept(self) -> dict[str, str]:
        """Return address -> UUID of every GPU that was ever seen."""
        return dict(self._kept)

    def learn(self, address: Address, uuid: str) -> None:
        """Take note that a GPU is at an address."""
        place = str(address._replace(function=0))
        if place in self._kept or len(self._kept) < GPUS_MAXIMUM:
            self._kept[place] = uuid
        self._shared.learn(uuid, address=place)

    def uuid(self, address: Address) -> str:
        """Return the UUID of the GPU at an address, or "" if nobody knows it."""
        place = str(address._replace(function=0))
        found = self._shared.uuid_of(address=place)
        if found and found != self._kept.get(place):
            self.learn(address, found)
        if place not in self._kept and not self._listed:
            self.list_again()
        return self._kept.get(place, "")

    def list_again(self) -> None:
        """Learn every GPU that the driver lists."""
        self._listed = True
        for gpu in driver_gpus(self._folder):
            address = parse_address(gpu.pci)
            if address is not None:
                self.learn(address, gpu.uuid)

    def new_look(self) -> None:
        """Allow the driver's list to be read again, which is done at most once a look."""
        self._listed = False
