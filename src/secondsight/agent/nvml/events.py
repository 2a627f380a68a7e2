"""Turn what the driver's event sets reported into events: Xids, and everything else by its type.

Repeats within a minute are one event with a count; the first goes out at once.
"""

import json
from collections.abc import Mapping

from secondsight.agent.counts import Counts
from secondsight.agent.kmsg.bursts import Bursts, Hold, Occurrence
from secondsight.agent.nvml.devices import Present
from secondsight.mapping.cells import part_text
from secondsight.model import EntityKind
from secondsight.wire.content import Event

XID = 0x8
XID_MAXIMUM = 512


class DriverEvents:
    """Events of one host's GPUs. Counts `discarded:out_of_range` for codes that no Xid has."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._bursts = Bursts()

    def take(self, messages: list[bytes], gpus: Mapping[str, Present], now_ms: int) -> list[Event]:
        """Return the events to tell now.

        Args:
            messages: What the child sent.
            gpus: By UUID.
            now_ms: Wall time.
        """
        for message in messages:
            told = json.loads(message)
            occurrence = self._occurrence(told, gpus.get(told["uuid"]))
            if occurrence is not None:
                self._bursts.see(occurrence, told["time_ms"])
        return [event for _, event in self._bursts.due(now_ms, now_ms)]

    def _occurrence(self, told: Mapping[str, int | str], gpu: Present | None) -> Occurrence | None:
        kind, data = int(told["type"]), int(told["data"])
        if kind == XID and not 1 <= data <= XID_MAXIMUM:
            self._counts.add("discarded:out_of_range")
            return None
        attributes = {"via": "nvml"}
        if gpu is not None:
            attributes |= {"pci_bus_id": gpu.pci_bus_id, "index": str(gpu.index)}
        if kind != XID:
            attributes["data"] = str(data)
        return Occurrence(
            kind=EntityKind.GPU,
            metric="gpu_xid" if kind == XID else "gpu_driver_event",
            entity=str(told["uuid"]),
            part=part_text((name, str(told[name])) for name in ("ci", "gi") if name in told),
            code=data if kind == XID else kind,
            key=("nvml", "" if kind == XID else str(data)),
            hold=Hold.WINDOW,
            attributes=attributes,
            count=int(told["count"]),
        )
