"""Say which files of a port give which metric, and read their texts.

Data counters are in words of 4 bytes; that factor is applied here and nowhere else. Counters that are not 64 bits wide
do not wrap: they park at their greatest value, and are then saturated.
"""

import re
from typing import NamedTuple

WORD_BYTES = 4
CAP_32_BITS = 0xFFFF_FFFF


class CounterFile(NamedTuple):
    """One file of counters.

    Attributes:
        name: Below the port's folder; of several for one metric and part the first that is there counts.
        part: Label pairs.
        scale: Source value in the metric's unit.
        cap: Where the counter parks if the hardware has it narrower than 64 bits; the catalogue knows the others.
    """

    name: str
    metric: str
    part: tuple[tuple[str, str], ...] = ()
    scale: float = 1
    cap: int | None = None


_RECEIVE, _TRANSMIT = (("direction", "receive"),), (("direction", "transmit"),)

PORT_COUNTERS: tuple[CounterFile, ...] = (
    CounterFile("counters_ext/port_rcv_data_64", "fabric_port_receive_bytes_total", (), WORD_BYTES),
    CounterFile("counters/port_rcv_data", "fabric_port_receive_bytes_total", (), WORD_BYTES, CAP_32_BITS),
    CounterFile("counters_ext/port_xmit_data_64", "fabric_port_transmit_bytes_total", (), WORD_BYTES),
    CounterFile("counters/port_xmit_data", "fabric_port_transmit_bytes_total", (), WORD_BYTES, CAP_32_BITS),
    CounterFile("counters_ext/port_rcv_packets_64", "fabric_port_packets_total", _RECEIVE),
    CounterFile("counters/port_rcv_packets", "fabric_port_packets_total", _RECEIVE, 1, CAP_32_BITS),
    CounterFile("counters_ext/port_xmit_packets_64", "fabric_port_packets_total", _TRANSMIT),
    CounterFile("counters/port_xmit_packets", "fabric_port_packets_total", _TRANSMIT, 1, CAP_32_BITS),
    CounterFile("counters/port_xmit_wait", "fabric_port_transmit_wait_total"),
    CounterFile("counters/symbol_error", "fabric_port_symbol_errors_total"),
    CounterFile("counters/link_downed", "fabric_port_link_downed_total"),
    CounterFile("counters/link_error_recovery", "fabric_port_link_error_recovery_total"),
    CounterFile("counters/port_rcv_errors", "fabric_port_receive_errors_total"),
    CounterFile("counters/port_xmit_discards", "fabric_port_transmit_discards_total"),
    CounterFile("counters/local_link_integrity_errors", "fabric_port_local_link_integrity_errors_total"),
)

HARDWARE_COUNTERS: tuple[CounterFile, ...] = (
    *(
        CounterFile(f"hw_counters/{kind}", "fabric_port_congestion_packets_total", (("kind", kind),))
        for kind in ("rp_cnp_handled", "np_cnp_sent", "np_ecn_marked_roce_packets")
    ),
    *(
        CounterFile(f"hw_counters/{kind}", "fabric_port_retransmits_total", (("kind", kind),))
        for kind in ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err")
    ),
)

_STATE = re.compile(r"\s*(\d+)\s*:").match
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec(?:\s*\((\d+)X\s*([\w ]+)\))?").match


class Rate(NamedTuple):
    """What a link runs at.

    Attributes:
        gigabits: Per second.
        width: Lanes; 0 where it is not said.
        speed: Name of the signalling (NDR), "" where it is not said.
    """

    gigabits: float
    width: int
    speed: str

    def __str__(self) -> str:
        lanes = f" ({self.width}X {self.speed})" if self.width else ""
        return f"{self.gigabits:g} Gb/s{lanes}"


def state_number(text: str) -> int | None:
    """Return the number before the colon of `state` and `phys_state`, or None."""
    found = _STATE(text)
    return int(found[1]) if found else None


def rate_of(text: str) -> Rate | None:
    """Return what a `rate` file says, or None."""
    found = _RATE(text)
    return Rate(float(found[1]), int(found[2] or 0), (found[3] or "").strip()) if found else None


def file_names(listed: list[str]) -> dict[str, tuple[str, int | None]]:
    """Return counter -> (file, cap): Omni-Path writes the width of a counter behind its name, as in `SwLinkUp,32`."""
    found: dict[str, tuple[str, int | None]] = {}
    for name in listed:
        stem, comma, bits = name.partition(",")
        if not comma:
            found[stem] = (name, None)
        elif bits.isdecimal() and 0 < int(bits) < 64:
            found.setdefault(stem, (name, (1 << int(bits)) - 1))
        else:
            found.setdefault(stem, (name, None))
    return found
