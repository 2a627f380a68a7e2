"""Say how much of the newest minutes an api keeps in memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Settings of the live window.

    Attributes:
        mib: Memory that it may take; the oldest minutes go first. Where it holds less than five minutes of everything,
            only metrics of class P0 are kept until there is room again. 0 keeps none, and every answer is read from the
            store.
        minutes: How far back it reaches at most.
    """

    mib: int = 1024
    minutes: float = 20.0
