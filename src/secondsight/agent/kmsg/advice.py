"""Say what to do about a fault of a GPU, given what was tried before.

A restart is advised for the same code of the same GPU at most so often; then the part is to be inspected, as restarts
did not help. When an operator says that a host is healthy, its faults are forgotten and the count starts anew;
restarts stay restarts, they just no longer follow a fault that is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from secondsight.agent.kmsg.findings import Xid
from secondsight.agent.kmsg.severity import xid_entry

REBOOT, RESET, INSPECT, NOTHING = "reboot", "reset_gpu", "inspect", "none"
RESTARTS_MAXIMUM = 2
RESTARTS_OF_CODE = {79: 1}
"""A GPU that leaves the bus again after a restart is a part fault."""

FAULTS_MAXIMUM = 1024
FABRIC_MANAGER_IF_ALONE = "RESTART_FABRIC_MANAGER_IF_ALONE"

_WORDS = {
    "": NOTHING,
    "IGNORE": NOTHING,
    "RESTART_BM": REBOOT,
    "RESET_GPU": RESET,
    "CHECK_MECHANICALS": INSPECT,
}
_RECOVERY = {0: NOTHING, 1: RESET, 2: REBOOT, 3: "drain_p2p", 4: "drain_and_reset", 5: "recover_imex_domain"}


def first_action(xid: Xid, policy: Mapping[int, str]) -> str:
    """Return what to do about a line by itself.

    Args:
        xid: The line.
        policy: What an operator wants done about some codes instead.
    """
    if xid.code in policy:
        return policy[xid.code]
    if xid.recovery is not None:
        return _RECOVERY.get(xid.recovery.new, "contact_support")
    if xid.nvlink is not None and not xid.nvlink.fatal:
        return NOTHING
    if xid.caused_by:
        return NOTHING
    if xid_entry(xid.code).investigate == FABRIC_MANAGER_IF_ALONE:
        return "restart_fabric_manager"
    action = xid_entry(xid.code).action
    return _WORDS.get(action, action.lower())


@dataclass(slots=True)
class History:
    """Faults of the GPUs of one host, and the reboots that followed each.

    Attributes:
        reboots: (GPU, code) -> reboots since its first fault that is remembered.
    """

    reboots: dict[tuple[str, int], int] = field(default_factory=dict)

    def rebooted(self) -> None:
        """Take note of a reboot of the host."""
        self.reboots = {fault: count + 1 for fault, count in self.reboots.items()}

    def set_healthy(self) -> None:
        """Forget the faults: an operator says that the host is well."""
        self.reboots.clear()

    def advise(self, gpu: str, code: int, action: str) -> str:
        """Take note of a fault, and return what to do: `action`, or to inspect where restarts did not help."""
        if (gpu, code) not in self.reboots and len(self.reboots) >= FAULTS_MAXIMUM:
            self.reboots.pop(next(iter(self.reboots)))
        tried = self.reboots.setdefault((gpu, code), 0)
        if action in (REBOOT, RESET) and tried >= RESTARTS_OF_CODE.get(code, RESTARTS_MAXIMUM):
            return INSPECT
        return action
