"""What an agent is told to make up; the simulation itself is imported when it is asked for."""

from dataclasses import dataclass

from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """What an agent shall simulate beside what it reads."""

    gpus: int = 8
    board: str = "H100"
    seed: int = 1
    incidents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse boards and incidents that do not exist.

        Raises:
            Rejected: `bad_config`, `unknown_incident`.
        """
        from secondsight.agent.simulate.config import BOARD_NAMES
        from secondsight.agent.simulate.incidents import incident_named

        if self.board not in BOARD_NAMES:
            raise Rejected("bad_config", f"simulate: no board {self.board!r}", f"one of: {', '.join(BOARD_NAMES)}")
        for name in self.incidents:
            incident_named(name)
