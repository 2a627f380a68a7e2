"""Hold what the records of one poll hold, between decoding and the windows."""

from collections import defaultdict
from dataclasses import dataclass, field

from secondsight.model import EntityKind
from secondsight.process.deadletter import Position
from secondsight.process.enrich import Fact
from secondsight.process.ledger import Told
from secondsight.process.pieces import Piece, Pile
from secondsight.process.sequences import FrameKey
from secondsight.process.spans import SpanKey
from secondsight.process.stacks import Likeness, Member
from secondsight.process.watermark import Progress
from secondsight.wire.header import HeadView


@dataclass(slots=True)
class Batch:
    """What a batch of records holds, decoded.

    Attributes:
        pieces: Kind, window start, schema hash -> (piece, position of its record).
        stacks: Frames that are read together.
        piles: Kind, window start, pile, position of the record of each member.
        observed: (progress, head, newest event time, admission, log time).
        facts: Allocation facts with the position of their record.
        told: What its frames tell the ledger.
    """

    pieces: dict[tuple[EntityKind, int, bytes], list[tuple[Piece, Position]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    stacks: dict[Likeness, list[Member]] = field(default_factory=lambda: defaultdict(list))
    piles: list[tuple[EntityKind, int, Pile, list[Position]]] = field(default_factory=list)
    observed: list[tuple[Progress, HeadView, int, int, int]] = field(default_factory=list)
    facts: list[tuple[Fact, Position]] = field(default_factory=list)
    keys: list[FrameKey] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def spans(self) -> set[SpanKey]:
        """Return the spans that it adds to."""
        alone = {
            (kind, start_ms, piece.collector)
            for (kind, start_ms, _), items in self.pieces.items()
            for piece, _ in items
        }
        piled = {(kind, start_ms, collector) for kind, start_ms, pile, _ in self.piles for collector in pile.collectors}
        return alone | piled
