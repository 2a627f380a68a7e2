"""What tests of allocators share: a table of GPUs that stands still, and the means of a reader."""

from collections.abc import Iterable
from pathlib import Path

from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.jobs.devices import Gpu, Slice
from secondsight.agent.jobs.report import Means, Station
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock, ManualClock
from secondsight.contracts import Tick
from secondsight.mapping.allocation import ALLOCATION
from secondsight.wire.content import Event, Info

T0 = 1_730_000_000_000
CATALOG = load_catalog()


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012d}"


def mig_uuid(number: int) -> str:
    return f"MIG-11111111-0000-0000-0000-{number:012d}"


GPUS = (
    Gpu(uuid(1), 0, 4, "00000000:07:00.0"),
    Gpu(uuid(2), 1, 5, "00000000:0A:00.0"),
    Gpu(uuid(3), 2, 6, "00000000:47:00.0", (Slice(mig_uuid(1), 1), Slice(mig_uuid(2), 2))),
    Gpu(uuid(4), 3, 0, "00000000:4E:00.0", (Slice(mig_uuid(3), 5, 0), Slice(mig_uuid(4), 5, 1))),
)
"""Four GPUs whose minors are not their indexes; the third has two slices, the fourth one that is cut in two."""


class FixedGpus:
    def __init__(self, gpus: Iterable[Gpu] = GPUS) -> None:
        self.present = tuple(gpus)

    def gpus(self) -> tuple[Gpu, ...]:
        return self.present


def station_of(folder: Path, root: Path | None = None) -> Station:
    return Station("node-a", "rack-1", root or folder / "root", folder / "state")


def means_of(clock: Clock | None = None, gpus: Iterable[Gpu] = GPUS) -> Means:
    return Means(CATALOG, clock or ManualClock(T0), Counts(), ClockOffset(), FixedGpus(gpus))


def events_of(tick: Tick) -> list[Event]:
    return [event for content in tick.contents for event in content.events]


def infos_of(tick: Tick) -> list[Info]:
    return [info for content in tick.contents for info in content.infos]


def owned(tick: Tick) -> dict[str, tuple[str, int, int | None, int]]:
    """Return "GPU part job" -> (share, start, end, version) of the allocations that a tick reports."""
    return {
        " ".join(text for text in (event.entity, event.part, event.attributes["job_id"]) if text): (
            event.attributes.get("share", "sole"),
            event.time_ms,
            event.end_ms,
            event.version,
        )
        for event in events_of(tick)
        if event.metric == ALLOCATION
    }
