"""Find the GPUs that the PCI bus has and the driver does not list, look after look.

A function that another driver has or is meant to have (a virtual machine's), a virtual function, and a GPU whose device
file this agent was not given are none of them. One look proves nothing, as a GPU may just be coming or going.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from secondsight.agent.host.proc import gpu_functions
from secondsight.agent.jobs.inventory import TEXT_MAXIMUM, information

LOOKS = 3
"""So many looks in a row without it make a GPU missing."""
SCAN_LOOKS = 6
"""The bus is gone through once in so many looks."""
DRIVER = "nvidia"


class AbsentGpus:
    """Looks at one host.

    Args:
        root: Folder that holds sys and proc.
        dev: Folder of the device files that the driver's library opens.
    """

    def __init__(self, root: Path, dev: Path) -> None:
        self._devices = root / "sys/bus/pci/devices"
        self._files = root / "proc/driver/nvidia/gpus"
        self._dev = dev
        self._looks = 0
        self._functions: tuple[str, ...] = ()
        self._absent: dict[str, int] = {}

    def look(self, listed: Collection[str]) -> dict[str, bool]:
        """Return the addresses of GPUs that are absent, and whether that is so for long enough to be missing.

        Args:
            listed: Addresses of those that the driver lists.
        """
        if self._looks % SCAN_LOOKS == 0:
            self._functions = tuple(self._scan())
        self._looks += 1
        absent = [name for name in self._functions if name not in listed and self._is_ours(name)]
        self._absent = {name: self._absent.get(name, 0) + 1 for name in absent}
        return {name: looks >= LOOKS for name, looks in self._absent.items()}

    def _scan(self) -> Iterator[str]:
        """Give the addresses of NVIDIA's display functions, virtual ones left out."""
        try:
            names = sorted(os.listdir(self._devices))  # noqa: PTH208 # hundreds of names
        except OSError:
            return
        for name in names:
            folder = self._devices / name
            if (
                gpu_functions([(_text(folder / "vendor"), _text(folder / "class"))])
                and not (folder / "physfn").exists()
            ):
                yield name

    def _is_ours(self, name: str) -> bool:
        folder = self._devices / name
        return folder.exists() and is_drivers(folder) and self._is_given(name)

    def _is_given(self, name: str) -> bool:
        """Tell whether the device file is there, where the driver says which one it is."""
        known = information(_text(self._files / name / "information"), name, None)
        return known is None or known.minor is None or (self._dev / f"nvidia{known.minor}").exists()


def is_drivers(folder: Path) -> bool:
    """Tell whether a PCI function is NVIDIA's driver's, or nobody's."""
    meant = _text(folder / "driver_override").strip()
    if meant not in ("", "(null)", DRIVER):
        return False
    try:
        return (folder / "driver").readlink().name == DRIVER
    except OSError:
        return not (folder / "driver").exists()


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(TEXT_MAXIMUM)
    except OSError:
        return ""
