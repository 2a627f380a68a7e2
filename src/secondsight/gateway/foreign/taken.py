"""Say what became of the points of a foreign request."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from secondsight.gateway.foreign.points import Refused
from secondsight.wire.schema import KnownEntities, KnownSchema


class Made(NamedTuple):
    """A frame with the definitions that it names."""

    frame: bytes
    schema: KnownSchema
    entities: KnownEntities


@dataclass(slots=True)
class Taken:
    """What became of a request.

    Attributes:
        frames: What is to be stored.
        said: Those of the frames that tell of changes, and would not be made again.
        samples, histograms: Points that are in the frames, or said that a series ended.
        refused: Why the others are not, of which metrics, and how many.
        details: Code -> what a person should read about it.
        spans_ms: Code -> oldest and newest time of what was refused.
        exemplars: How many there were; none is kept.
        skewed: Samples from ahead of the gateway's clock, and kept.
        overflowed: New series of which a label was replaced, as it has too many values.
    """

    frames: list[Made] = field(default_factory=list)
    said: list[Made] = field(default_factory=list)
    samples: int = 0
    histograms: int = 0
    refused: Counter[Refused] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)
    spans_ms: dict[str, tuple[int, int]] = field(default_factory=dict)
    exemplars: int = 0
    skewed: int = 0
    overflowed: int = 0

    def refuse(self, refused: Refused, count: int, detail: str = "", span_ms: tuple[int, int] | None = None) -> None:
        """Count points that are not taken."""
        self.refused[refused] += count
        if detail:
            self.details.setdefault(refused.code, detail)
        if span_ms is not None:
            before = self.spans_ms.get(refused.code, span_ms)
            self.spans_ms[refused.code] = min(before[0], span_ms[0]), max(before[1], span_ms[1])
