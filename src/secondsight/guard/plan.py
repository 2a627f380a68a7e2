"""Turn a statement of an untrusted author into a plan: text that may run, but for the clock.

The steps stand in the order in which they refuse. A plan is kept and filled in again at a later time: everything that
depends on the clock is computed anew, and its bounds are checked anew.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from secondsight.access.scope import Scope
from secondsight.guard.dialect import render
from secondsight.guard.fills import Fill, fills
from secondsight.guard.intervals import Range, Span, ranges
from secondsight.guard.joins import check_joins
from secondsight.guard.limits import Limits
from secondsight.guard.lineage import Output, follow
from secondsight.guard.names import resolve
from secondsight.guard.normal import make_finite
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.registry import Registry
from secondsight.guard.scopes import Resolved
from secondsight.guard.statement import read_statement
from secondsight.guard.verify import verify
from secondsight.guard.wrap import cap, clock_fillings, fillings, freeze_clock, marker_pattern, rename, wrap

_WRAPPER_DEPTH = 8
"""Brackets that the filters and the bound on rows add to the depth of a statement."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A statement that may run.

    Attributes:
        sql: The generated text, the only one that the engine may see.
        views: View -> how often it is read.
        columns: `view.column` of every column that is read, sorted.
        spans: Time that each read covers.
        row_cap: Most rows of the answer; the statement asks for one more, which says that there are more.
        outputs: Columns of the result with what they mean.
        digest: Hash of the generated text.
    """

    sql: str
    views: Mapping[str, int]
    columns: tuple[str, ...]
    spans: tuple[Span, ...]
    row_cap: int
    outputs: tuple[Output, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A statement that was found right, as a text with gaps for the clock.

    Attributes:
        pieces: Texts around the gaps; one more than there are gaps.
        gaps: Marker of each gap.
    """

    pieces: tuple[str, ...]
    gaps: tuple[str, ...]
    ranges: tuple[Range, ...]
    fills: tuple[Fill, ...]
    views: Mapping[str, int]
    columns: tuple[str, ...]
    outputs: tuple[Output, ...]

    def at(self, now_ms: int, registry: Registry, limits: Limits) -> Guarded:
        """Return the statement as it reads at a time.

        Raises:
            Refused: `no_time_range`, `range_too_wide` or `fill_too_wide` at that time.
        """
        for fill in self.fills:
            fill.check(now_ms, limits)
        spans = tuple(one.at(now_ms, registry, limits) for one in self.ranges)
        values = dict(clock_fillings(now_ms))
        for number, (one, span) in enumerate(zip(self.ranges, spans, strict=True)):
            values.update(fillings(number, one.view, span.from_ms, span.to_ms))
        parts = [self.pieces[0]]
        for gap, piece in zip(self.gaps, self.pieces[1:], strict=True):
            parts += (str(values[gap]), piece)
        sql = "".join(parts)
        digest = hashlib.sha256(sql.encode()).hexdigest()
        return Guarded(sql, self.views, self.columns, spans, limits.rows, self.outputs, digest)


def make_plan(text: str, scope: Scope, registry: Registry, now_ms: int, limits: Limits) -> Plan:
    """Return the plan of a statement, whose ranges must be allowed at `now_ms`.

    Raises:
        Refused: With a code of `refusal.MESSAGES`.
    """
    try:
        return _make_plan(text, scope, registry, now_ms, limits)
    except RecursionError:
        raise Refused("too_long", Rule.LIMITS) from None


def _make_plan(text: str, scope: Scope, registry: Registry, now_ms: int, limits: Limits) -> Plan:
    tree = read_statement(text, limits)
    denied = frozenset.intersection(*(box.denied_metrics for box in scope.boxes))
    resolved = resolve(tree, registry, denied, limits)
    followed = follow(resolved, registry, limits)
    check_joins(resolved)
    filled = fills(resolved)
    found = ranges(resolved)
    for one in found:
        one.at(now_ms, registry, limits)
    make_finite(list(followed.infinite))
    template = _generate(tree, resolved, scope, registry, limits)
    gaps = tuple(re.findall(marker_pattern(), template))
    return Plan(
        pieces=tuple(re.split(marker_pattern(), template)),
        gaps=gaps,
        ranges=found,
        fills=filled,
        views=dict(Counter(reference.view.name for reference in resolved.references)),
        columns=tuple(sorted({f"{one.view.name}.{name}" for one in resolved.references for name in one.used})),
        outputs=followed.outputs,
    )


def _generate(tree: exp.Expr, resolved: Resolved, scope: Scope, registry: Registry, limits: Limits) -> str:
    freeze_clock(tree)
    rename(resolved.named)
    wrappers = wrap(resolved.references, scope)
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", True)
    filters = [render(wrapper) for wrapper in wrappers]
    text = render(cap(tree, limits.rows + 1))
    verify(text, filters, registry, replace(limits, depth=limits.depth + _WRAPPER_DEPTH))
    return text
