"""What befalls each host of a chaos run: reboots, silences, clocks that step, counters that begin again, upgrades."""

import random
from dataclasses import dataclass

from secondsight.model import EntityKind

SILENT_SECONDS = 25
STEP_MS = 45_000


@dataclass(frozen=True, slots=True)
class Silence:
    """Seconds of the story in which a host says nothing of some kinds; of all where none is named."""

    start: int
    end: int
    kinds: frozenset[EntityKind] = frozenset()
    reboots: bool = False
    is_shed: bool = False

    def holds(self, second: int, kind: EntityKind) -> bool:
        return self.start <= second < self.end and (not self.kinds or kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Step:
    """From a second on, how far a host's clock is ahead and how well the host knows."""

    start: int
    offset_ms: int | None
    uncertainty_ms: int


@dataclass(frozen=True, slots=True)
class Life:
    """What befalls one host, in seconds of the story."""

    silences: tuple[Silence, ...]
    steps: tuple[Step, ...]
    resets: frozenset[int]
    change: int
    """Second of an upgrade: what is reported before and after differs."""

    def is_silent(self, second: int, kind: EntityKind) -> bool:
        return any(silence.holds(second, kind) for silence in self.silences)

    def clock(self, second: int) -> Step:
        return next((step for step in reversed(self.steps) if step.start <= second), Step(0, 0, 5))

    def boot(self, second: int) -> int:
        return sum(silence.reboots and silence.end <= second for silence in self.silences)


def life_of(chance: random.Random, number: int, seconds: int) -> Life:
    """Each host has one great misfortune by its number, and small ones by chance."""
    silences, steps = list[Silence](), list[Step]()
    start = chance.randrange(seconds // 4, seconds // 2)
    end = start + SILENT_SECONDS + chance.randrange(10)
    match number % 6:
        case 0:
            silences.append(Silence(start, end, reboots=True))
        case 1:
            silences.append(Silence(start, end))
        case 2:
            steps += [Step(start, chance.choice((-1, 1)) * STEP_MS, 20), Step(end, 700, 5)]
        case 3:
            silences.append(Silence(start, end, frozenset({EntityKind.GPU})))
        case 4:
            steps += [Step(start, STEP_MS, 900), Step(start + 10, None, 0), Step(end, 0, 5)]
        case _:
            silences.append(Silence(start, end, frozenset({EntityKind.GPU}), is_shed=True))
    for _ in range(seconds // 600):
        start = chance.randrange(seconds - 60)
        silences.append(Silence(start, start + chance.randint(5, 50), reboots=chance.random() < 0.3))
    resets = frozenset(chance.randrange(seconds) for _ in range(1 + seconds // 300))
    return Life(tuple(silences), tuple(steps), resets, chance.randrange(seconds // 3, 2 * seconds // 3))
