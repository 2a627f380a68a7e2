"""Turn findings into occurrences: whom they are about, how bad they are, what to do, what they are collapsed with."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from secondsight.agent.kmsg.advice import History, first_action
from secondsight.agent.kmsg.bursts import WITHOUT_XID, Hold, Occurrence
from secondsight.agent.kmsg.findings import Hit, OffBus, SXid, Xid
from secondsight.agent.kmsg.gpus import GpuTable
from secondsight.agent.kmsg.pci import Address, parse_address
from secondsight.agent.kmsg.severity import Repeats, sxid_fatality, sxid_severity, xid_entry, xid_severity
from secondsight.mapping.cells import part_text, plain_text
from secondsight.model import EntityKind

OFF_BUS_XID = 79
TEXT_CHARACTERS = 300
SWITCHES_MAXIMUM = 256

_LINK = re.compile(r"\blink (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Interpreter:
    """What is known of one host, to understand its log by.

    Attributes:
        switches: PCI address -> number of an NVSwitch, learnt from the kernel's lines.
        policy: Xid -> what an operator wants done instead of the table's action.
    """

    host_id: str
    gpus: GpuTable
    history: History
    policy: Mapping[int, str] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)

    def gpu(self, address: Address) -> tuple[str, dict[str, str]]:
        """Return the entity of the GPU at an address and what is known of it; without a UUID it is host and address."""
        uuid = self.gpus.uuid(address)
        known = {"pci_bus_id": str(address._replace(function=0))}
        return (uuid, known | {"uuid": uuid}) if uuid else (f"{self.host_id}/{known['pci_bus_id']}", known)

    def xid(self, xid: Xid) -> Occurrence:
        """Return what an Xid line says."""
        entity, known = self.gpu(xid.address)
        entry, severity = xid_entry(xid.code), xid_severity(xid)
        action = self.history.advise(entity, xid.code, first_action(xid, self.policy))
        told = known | _about_process(xid) | _about_link(xid) | _about_recovery(xid)
        told |= {
            "xid": str(xid.code),
            "severity": severity,
            "action": action,
            "mnemonic": entry.mnemonic,
            "class": entry.family,
            "investigate": entry.investigate,
            "caused_by": str(xid.caused_by or ""),
            "decided_by": "row remapping and ECC" if entry.repeats is Repeats.READ else "",
            "text": plain_text(xid.text.strip(), TEXT_CHARACTERS),
        }
        return Occurrence(
            EntityKind.GPU,
            "gpu_xid",
            entity,
            part_text([("gi", xid.gi), ("ci", xid.ci)]),
            xid.code,
            _xid_key(xid, entry.repeats, severity),
            _HOLDS.get(entry.repeats, Hold.WINDOW),
            _present(told),
            joins=entry.repeats is Repeats.FOLLOWER,
            prefers=xid.caused_by,
        )

    def off_bus(self, found: OffBus, text: str) -> Occurrence:
        """Return that a GPU is off the bus, as an Xid 79 that the driver did not report as such."""
        occurrence = self.xid(Xid(found.address, OFF_BUS_XID, text))
        occurrence.attributes["reported"] = WITHOUT_XID  # type: ignore[index] # made above, nobody has it yet
        return occurrence

    def recovered(self, xid: Xid) -> Occurrence | None:
        """Return the reset that must have been, when the driver no longer asks for one."""
        if xid.recovery is None or xid.recovery.new != 0 or xid.recovery.old == 0:
            return None
        entity, known = self.gpu(xid.address)
        told = known | {"reason": "recovery action done", "text": plain_text(xid.text.strip(), TEXT_CHARACTERS)}
        return Occurrence(EntityKind.GPU, "gpu_reset", entity, "", xid.recovery.old, (), Hold.SINGLE, told)

    def sxid(self, sxid: SXid) -> Occurrence:
        """Return what a line about an NVSwitch says."""
        address = str(sxid.address)
        if sxid.switch and (address in self.switches or len(self.switches) < SWITCHES_MAXIMUM):
            self.switches[address] = sxid.switch
        number = self.switches.get(address, "")
        device = f"nvswitch{number}" if number else address
        told = {
            "sxid": str(sxid.code),
            "severity": sxid_severity(sxid),
            "port": sxid.port,
            "pci_bus_id": address,
            "text": plain_text(sxid.text.strip(), TEXT_CHARACTERS),
        }
        return Occurrence(
            EntityKind.FABRIC_PORT,
            "nvswitch_sxid",
            f"{self.host_id}/{device}/{sxid.port or 0}",
            part_text([("severity", sxid_fatality(sxid))]),
            sxid.code,
            (),
            Hold.WINDOW,
            _present(told),
        )

    def hit(self, hit: Hit, text: str) -> Occurrence:
        """Return what a rule says of a line."""
        fields = dict(hit.fields)
        told = {name: plain_text(value, TEXT_CHARACTERS) for name, value in fields.items()}
        told |= {
            "rule": hit.rule.name,
            "severity": hit.rule.severity,
            "gpu": self._gpu_among(fields),
            "text": plain_text(text.strip(), TEXT_CHARACTERS),
        }
        key = tuple(fields.get(name, "") for name in hit.rule.key)
        return self.of_node(hit.rule.code, key, _present(told))

    def of_node(self, code: int, key: tuple[str, ...], told: Mapping[str, str]) -> Occurrence:
        """Return something about the host itself."""
        return Occurrence(EntityKind.NODE, "node_kernel_event", self.host_id, "", code, key, Hold.WINDOW, told)

    def _gpu_among(self, fields: Mapping[str, str]) -> str:
        """Return the UUID of the GPU that one of the fields is the address of, or ""."""
        for name in ("sender", "device"):
            address = parse_address(fields.get(name, "").rpartition(" ")[2])
            uuid = self.gpus.uuid(address) if address is not None else ""
            if uuid:
                return uuid
        return ""


_HOLDS = {Repeats.LATCHED: Hold.LATCHED, Repeats.STATE: Hold.SINGLE}


def _xid_key(xid: Xid, repeats: Repeats, severity: str) -> tuple[str, ...]:
    if repeats is Repeats.PROCESS:
        return (xid.pid,)
    if repeats is Repeats.LINK:
        link = _about_link(xid)
        return (link.get("subcode", ""), link.get("link", ""), severity)
    return ()


def _about_process(xid: Xid) -> dict[str, str]:
    return {"pid": xid.pid, "process": plain_text(xid.process, TEXT_CHARACTERS)}


def _about_link(xid: Xid) -> dict[str, str]:
    nvlink = xid.nvlink
    if nvlink is None:
        found = _LINK.search(xid.text)
        return {"link": found[1]} if found else {}
    told = {"unit": nvlink.unit, "link": str(nvlink.link), "domain": nvlink.domain}
    told["word"] = "Fatal" if nvlink.fatal else "Nonfatal"
    if nvlink.subcode is not None:
        told["subcode"] = str(nvlink.subcode)
    if nvlink.status is not None:
        told["status"] = f"{nvlink.status:#010x}"
    return told


def _about_recovery(xid: Xid) -> dict[str, str]:
    if xid.recovery is None:
        return {}
    names = {"recovery_action_before": str(xid.recovery.old), "recovery_action": str(xid.recovery.new)}
    return names | {"recovery_action_name": plain_text(xid.recovery.new_name, TEXT_CHARACTERS)}


def _present(told: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in told.items() if value}
