"""Settings of the reader of InfiniBand and RoCE ports."""

from dataclasses import dataclass

from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class FabricConfig:
    """Settings of the reader of InfiniBand and RoCE ports.

    Attributes:
        enabled: Read the ports in /sys/class/infiniband; costs nothing where there are none.
        ports_maximum: Most ports to read; virtual functions can be many.
    """

    enabled: bool = True
    ports_maximum: int = 64

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if not 1 <= self.ports_maximum <= 1024:
            raise Rejected("bad_config", "agent.fabric: ports_maximum is 1 to 1024")
