"""Say how bad an Xid or an SXid is, what to do first, and how its repeats are collapsed.

The tables are data beside this module: `xid.csv` and `sxid.csv`. A word on the line (Fatal, Nonfatal) outranks them.
"""

import csv
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources

from secondsight.agent.kmsg.findings import SXid, Xid


class Repeats(StrEnum):
    """How repeats of one code are collapsed.

    Per process, GPU or link: for a minute. Latched: until reset, reboot or recovery. A follower joins the Xid that it
    follows. Read: the code only says that row-remap or ECC figures should be looked at. State: every change is kept.
    """

    PROCESS = "P"
    GPU = "G"
    LATCHED = "L"
    LINK = "N"
    FOLLOWER = "F"
    READ = "R"
    STATE = "S"


@dataclass(frozen=True, slots=True)
class XidEntry:
    """One line of the table.

    Attributes:
        severity: info, warning, error (a job), critical (drain or reset the GPU), fatal (part or node), or `by_word`.
        family: app, warn, follow, hw-recoverable, hw-fatal, hw-power, fabric, driver-gsp, software, info, state.
        action, investigate: The vendor's codes; "" where there is none.
    """

    code: int
    mnemonic: str = ""
    severity: str = "warning"
    family: str = "warn"
    action: str = ""
    investigate: str = ""
    repeats: Repeats = Repeats.GPU


class Fatality(StrEnum):
    """What an SXid means for the switch; the part of `nvswitch_sxid`."""

    FATAL = "fatal"
    FATAL_IF_USED = "fatal_if_used"
    NONFATAL = "nonfatal"


_CLASSES = {
    "fatal": Fatality.FATAL,
    "fatal_if_port_used": Fatality.FATAL_IF_USED,
    "warning": Fatality.NONFATAL,
}
_SXID_SEVERITY = {Fatality.FATAL: "critical", Fatality.FATAL_IF_USED: "critical", Fatality.NONFATAL: "warning"}


def xid_entry(code: int) -> XidEntry:
    """Return what is known of a code; one that is not in the table is a warning."""
    return _xids().get(code) or XidEntry(code)


def xid_severity(xid: Xid) -> str:
    """Return the severity of one line: where codes go by the word, its word; an error where it was cut off."""
    severity = xid_entry(xid.code).severity
    if severity != "by_word":
        return severity
    if xid.nvlink is None:
        return "error"
    return "critical" if xid.nvlink.fatal else "warning"


def sxid_fatality(sxid: SXid) -> Fatality:
    """Return what one line means: its word, else what the table says of the code, else not fatal."""
    if sxid.fatal is not None:
        return Fatality.FATAL if sxid.fatal else Fatality.NONFATAL
    return _sxids().get(sxid.code, Fatality.NONFATAL)


def sxid_severity(sxid: SXid) -> str:
    """Return the severity of one line."""
    return _SXID_SEVERITY[sxid_fatality(sxid)]


@cache
def _xids() -> dict[int, XidEntry]:
    return {
        int(row["xid"]): XidEntry(
            int(row["xid"]),
            row["mnemonic"],
            row["severity"],
            row["class"],
            row["action"],
            row["investigate"],
            Repeats(row["burst"]),
        )
        for row in _table("xid.csv")
    }


@cache
def _sxids() -> dict[int, Fatality]:
    found: dict[int, Fatality] = {}
    for row in _table("sxid.csv"):
        for span in row["codes"].split():
            first, _, last = span.partition("-")
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), _CLASSES[row["class"]])
    return found


def _table(name: str) -> list[dict[str, str]]:
    text = resources.files("secondsight.agent.kmsg").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
