"""Keep what the kernel log reader must know after a restart, in one small file that is replaced as a whole.

A file that is missing or damaged is the same as none: the log is then read from its start again, which gives the same
events, as far as the kernel still has the lines.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from secondsight.agent.kmsg.source import Position
from secondsight.agent.wholefile import write_whole

MAXIMUM_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest record that was read. Kernels may number several records alike, so those are counted.

    Attributes:
        repeats: Records read with exactly this sequence and time.
    """

    sequence: int
    monotonic_us: int
    repeats: int = 1


@dataclass(slots=True)
class KernelLogState:
    """What is kept.

    Attributes:
        boot_id: Boot that mark, anchor, counts and open events belong to.
        anchor_ms: Wall time of boot, see `when.BootTime`.
        positions: Path -> up to where a file was read.
        gpus: PCI address -> UUID, also of GPUs that are gone.
        switches: PCI address -> number of an NVSwitch.
        counts: (GPU, Xid, count since boot).
        reboots: (GPU, Xid, reboots since its first fault).
        healthy_ms: When an operator last said that the host is healthy.
        open: Events that may still grow, see `bursts.Bursts.state`.
    """

    boot_id: str = ""
    anchor_ms: int | None = None
    mark: Mark | None = None
    positions: dict[str, Position] = field(default_factory=dict)
    gpus: dict[str, str] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    counts: list[tuple[str, int, int]] = field(default_factory=list)
    reboots: list[tuple[str, int, int]] = field(default_factory=list)
    healthy_ms: int = 0
    open: list[dict[str, Any]] = field(default_factory=list)


def load_state(path: Path) -> KernelLogState | None:
    """Return what was kept, or None if there is nothing usable."""
    try:
        if path.stat().st_size > MAXIMUM_BYTES:
            return None
        return _state(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def save_state(path: Path, state: KernelLogState) -> None:
    """Replace what was kept; after a crash it is the old or the new, never a mix.

    Raises:
        OSError: The disk refuses; what was kept stays.
    """
    write_whole(path, json.dumps(_told(state), separators=(",", ":")).encode())


def _told(state: KernelLogState) -> dict[str, Any]:
    told = {name: getattr(state, name) for name in KernelLogState.__slots__}
    positions = {path: asdict(position) for path, position in state.positions.items()}
    return told | {"mark": None if state.mark is None else asdict(state.mark), "positions": positions}


def _state(told: dict[str, Any]) -> KernelLogState:
    mark, anchor_ms = told["mark"], told["anchor_ms"]
    return KernelLogState(
        boot_id=str(told["boot_id"]),
        anchor_ms=None if anchor_ms is None else int(anchor_ms),
        mark=None if mark is None else Mark(int(mark["sequence"]), int(mark["monotonic_us"]), int(mark["repeats"])),
        positions={
            str(p): Position(*(int(at[name]) for name in Position.__slots__)) for p, at in told["positions"].items()
        },
        gpus={str(address): str(uuid) for address, uuid in told["gpus"].items()},
        switches={str(address): str(number) for address, number in told["switches"].items()},
        counts=[(str(gpu), int(code), int(count)) for gpu, code, count in told["counts"]],
        reboots=[(str(gpu), int(code), int(count)) for gpu, code, count in told["reboots"]],
        healthy_ms=int(told["healthy_ms"]),
        open=list(told["open"]),
    )
