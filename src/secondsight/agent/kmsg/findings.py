"""Turn the text of a log line into what it says: an Xid, an SXid, a GPU off the bus, a rule's hit, or nothing.

Pure functions of text. Patterns are searched, not matched, as a line may carry any prefix and may be cut anywhere.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from secondsight.agent.kmsg.pci import PATTERN, Address, parse_address
from secondsight.agent.kmsg.rules import Rule, rule_of

_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{PATTERN})(?:,? GPU-I:(?P<gi>\d{{1,4}}))?(?:,? GPU-CI:(?P<ci>\d{{1,4}}))?\): ?"
    r"(?P<xid>\d{1,6})\b(?:, ?(?P<rest>.*))?",
    re.DOTALL,
)
_PROCESS = re.compile(r"pid=(?P<pid>\d{1,10}|'?<unknown>'?)(?:, ?name=(?P<name>[^,]*))?(?:, ?|$)")
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]*)\s+(?P<word>Nonfatal|Fatal)\s+(?P<domain>XC\d)\s+(?P<injected>i\d+)\s+Link\s+"
    r"(?P<link>-?\d+)(?:\s+\((?P<words>0x[0-9a-fA-F]+(?:\s+0x[0-9a-fA-F]+)*))?"
)
_RECOVERY = re.compile(
    r"recovery action changed from (?P<old>0x[0-9a-fA-F]+) \((?P<old_name>[^)]*)\) "
    r"to (?P<new>0x[0-9a-fA-F]+)(?: \((?P<new_name>[^)]*))?"
)
_CAUSE = re.compile(r"caused by previous Xid (\d{1,4})")
_OFF_BUS = re.compile(rf"NVRM: GPU (?:at (?:PCI:)?)?(?P<pci>{PATTERN}):? (?:GPU )?has fallen off the bus")
_OFF_BUS_FIRST = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{PATTERN})(?![0-9a-fA-F:.])")
_OFF_BUS_LAST = re.compile(r"NVRM: .*\bfallen off the bus and is not responding")
_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:(?P<pci>{PATTERN})\): (?P<sxid>\d{{5}})(?:, ?(?P<rest>.*))?",
    re.DOTALL,
)
_SXID_WORD = re.compile(r"(?P<word>Fatal|Non-fatal)(?:, ?|$)")
_SXID_LINK = re.compile(r"Link (?P<link>\d{1,4})\b")
_SXID_DETAIL = re.compile(r"Data \{|Severity \d")
_FABRIC_MANAGER = re.compile(
    r"detected NVSwitch (?P<word>fatal|non-fatal) error (?P<sxid>\d{5}) on fid \d+ on NVSwitch pci bus id "
    rf"(?P<pci>{PATTERN})(?: physical id (?P<physical>\d+))?(?: port (?P<port>\d+))?"
)
_NAMED = re.compile(
    rf"NVRM: GPU at PCI:(?P<pci>{PATTERN}): (?P<uuid>GPU-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})"
)
NVLINK5_CODES = range(144, 151)
RECOVERY_CODE = 154


@dataclass(frozen=True, slots=True)
class NvLink5:
    """What a line of the codes 144 to 150 says beyond them.

    Attributes:
        fatal: The word of the line; it decides, not the code.
        link: Number of the link; -1 means no single one.
        subcode, status: From the first two words of the dump; None where the line is cut before them.
    """

    unit: str
    fatal: bool
    domain: str
    link: int
    subcode: int | None
    status: int | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A change of what the driver asks for to get a GPU back to work; numbers are those of `gpu_recovery_action`."""

    old: int
    new: int
    new_name: str


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid line.

    Attributes:
        gi, ci: GPU and compute instance, "" for the whole GPU.
        pid: "" where the line has none or says unknown.
        caused_by: Xid that this one follows, by the driver's own word; 0 if none.
    """

    address: Address
    code: int
    text: str
    gi: str = ""
    ci: str = ""
    pid: str = ""
    process: str = ""
    nvlink: NvLink5 | None = None
    recovery: Recovery | None = None
    caused_by: int = 0


@dataclass(frozen=True, slots=True)
class OffBus:
    """A GPU is off the bus, said without an Xid."""

    address: Address


@dataclass(frozen=True, slots=True)
class OffBusFirst:
    """The first of the three lines that say so; it may also be the first line of something else."""

    address: Address


@dataclass(frozen=True, slots=True)
class OffBusLast:
    """The last of those three lines; it names no GPU."""


@dataclass(frozen=True, slots=True)
class SXid:
    """One line about an NVSwitch, from the kernel or from the fabric manager.

    Attributes:
        switch: Number of the switch as the kernel counts, "" from the fabric manager.
        fatal: The word of the line, None where it has none.
        port: Number of the link, "" where the line has none.
        detail: True for a dump that belongs to the line before.
    """

    address: Address
    code: int
    text: str
    switch: str = ""
    fatal: bool | None = None
    port: str = ""
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """The driver says which GPU is at an address."""

    address: Address
    uuid: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule knows this line; `fields` are its named groups."""

    rule: Rule
    fields: tuple[tuple[str, str], ...]


Report = Xid | OffBus | SXid | Hit
"""What by itself is worth an event."""

Finding = Report | Named | OffBusFirst | OffBusLast


@lru_cache(maxsize=512)
def finding_of(text: str) -> Finding | None:
    """Return what a line says, or None; the newest few hundred texts are remembered, as storms repeat themselves."""
    if "NVRM: " in text:
        return _of_driver(text) or _of_rules(text)
    if "SXid" in text or "NVSwitch" in text:
        return _sxid(text) or _fabric_manager(text)
    return _of_rules(text)


def _of_driver(text: str) -> Finding | None:
    return _xid(text) or _off_bus(text) or _named(text)


def _of_rules(text: str) -> Finding | None:
    found = rule_of(text)
    return None if found is None else Hit(*found)


def _xid(text: str) -> Xid | None:
    found = _XID.search(text)
    address = parse_address(found["pci"]) if found else None
    if found is None or address is None:
        return None
    code, rest = int(found["xid"]), found["rest"] or ""
    process = _PROCESS.match(rest)
    pid = process["pid"] if process else ""
    cause = _CAUSE.search(rest)
    return Xid(
        address,
        code,
        text,
        gi=_number(found["gi"]),
        ci=_number(found["ci"]),
        pid=pid if pid.isdigit() else "",
        process=_known(process["name"] if process else None),
        nvlink=_nvlink5(rest) if code in NVLINK5_CODES else None,
        recovery=_recovery(rest) if code == RECOVERY_CODE else None,
        caused_by=int(cause[1]) if cause else 0,
    )


def _number(text: str | None) -> str:
    """Return a number without leading zeros, "" where there is none."""
    return str(int(text)) if text else ""


def _known(name: str | None) -> str:
    return "" if name is None or "<unknown>" in name else name.strip()


def _nvlink5(text: str) -> NvLink5 | None:
    found = _NVLINK5.search(text)
    if found is None:
        return None
    words = [int(word, 16) for word in (found["words"] or "").split()]
    return NvLink5(
        found["unit"],
        found["word"] == "Fatal",
        found["domain"],
        int(found["link"]),
        (words[0] >> 20) & 0x3F if words else None,
        words[1] if len(words) > 1 else None,
    )


def _recovery(text: str) -> Recovery | None:
    found = _RECOVERY.search(text)
    return None if found is None else Recovery(int(found["old"], 16), int(found["new"], 16), found["new_name"] or "")


def _off_bus(text: str) -> OffBus | OffBusFirst | OffBusLast | None:
    found = _OFF_BUS.search(text)
    first = None if found else _OFF_BUS_FIRST.search(text)
    last = None if found else _OFF_BUS_LAST.search(text)
    address = parse_address((found or first)["pci"]) if found or first else None  # type: ignore[index] # one is there
    if address is None:
        return OffBusLast() if last else None
    return OffBus(address) if found or last else OffBusFirst(address)


def _named(text: str) -> Named | None:
    found = _NAMED.search(text)
    address = parse_address(found["pci"]) if found else None
    return None if found is None or address is None else Named(address, found["uuid"])


def _sxid(text: str) -> SXid | None:
    found = _SXID.search(text)
    address = parse_address(found["pci"]) if found else None
    if found is None or address is None:
        return None
    rest = found["rest"] or ""
    word, link = _SXID_WORD.match(rest), _SXID_LINK.search(rest)
    return SXid(
        address,
        int(found["sxid"]),
        text,
        found["switch"],
        word["word"] == "Fatal" if word else None,
        link["link"] if link else "",
        _SXID_DETAIL.match(rest) is not None,
    )


def _fabric_manager(text: str) -> SXid | None:
    found = _FABRIC_MANAGER.search(text)
    address = parse_address(found["pci"]) if found else None
    if found is None or address is None:
        return None
    return SXid(address, int(found["sxid"]), text, "", found["word"] == "fatal", found["port"] or "")
