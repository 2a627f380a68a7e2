"""Evaluate an expression of PromQL; what is not offered is refused by its name."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import promql_parser

from secondsight.access.scope import Scope
from secondsight.errors import Rejected
from secondsight.promql.aggregate import OFFERED, aggregated, count_values, quantile, ranked
from secondsight.promql.binary import Matching, combined
from secondsight.promql.functions import LABEL, absent, applied
from secondsight.promql.labels import Matcher, matcher
from secondsight.promql.matrix import I64, Labels, Matrix, Value, nothing, unique, without_name
from secondsight.promql.over_time import latest, newest_times, over_time, predict_linear, quantile_over_time
from secondsight.promql.read import Reader, Sources, Steps, Wanted
from secondsight.promql.samples import OF_STEPS, Function, at_each, predicted
from secondsight.promql.samples import quantile as quantile_of
from secondsight.query.times import TIME_MAXIMUM_MS

LOOKBACK_MS = 300_000
"""How old the newest value of a series may be."""
SUBQUERY_STEP_MS = 60_000
"""How far apart the steps of a subquery are that says nothing of it."""
SUBQUERY_STEPS_MAXIMUM = 11_000
TEXT_MAXIMUM = 5_000
DEPTH_MAXIMUM = 60
RANGE_MAXIMUM_MS = 366 * 86_400_000
_SIGNS = re.compile(rf"(?:[-+]\s*){{{DEPTH_MAXIMUM}}}")
"""So many signs in a row are as many nodes within each other."""
_OPERATORS = (
    (promql_parser.MatchOp.Equal, "="),
    (promql_parser.MatchOp.NotEqual, "!="),
    (promql_parser.MatchOp.Re, "=~"),
    (promql_parser.MatchOp.NotRe, "!~"),
)
_MANY = (
    (promql_parser.VectorMatchCardinality.ManyToOne, "left"),
    (promql_parser.VectorMatchCardinality.OneToMany, "right"),
)


def parsed(text: str) -> Any:
    """Return the tree of an expression.

    Raises:
        Rejected(promql_parse): It is none, or longer or deeper than anyone needs.
    """
    if len(text) > TEXT_MAXIMUM:
        raise Rejected("promql_parse", f"the expression has {len(text)} characters", f"write {TEXT_MAXIMUM} at most")
    if _depth(text) > DEPTH_MAXIMUM or _SIGNS.search(text):
        raise Rejected("promql_parse", "the expression is nested too deeply", f"nest {DEPTH_MAXIMUM} deep at most")
    try:
        return promql_parser.parse(text)
    except ValueError as error:
        raise Rejected(
            "promql_parse", f"the expression cannot be read: {error}", "check its brackets and names"
        ) from None


def named_labels(tree: Any) -> frozenset[str]:
    """Return every label that an expression names."""
    return frozenset(name for node in _nodes(tree) for name in _names_at(node))


def evaluate(text: str, steps: Steps, sources: Sources, scope: Scope) -> tuple[Value | str, tuple[str, ...]]:
    """Return the value of an expression at each step, and what is to be said of the data's worth.

    Raises:
        Rejected(promql_parse, promql_unsupported, promql_matching, promql_duplicate).
        Rejected, Retryable: As the runner.
    """
    tree = parsed(text)
    reader = Reader(sources, scope, steps, named_labels(tree))
    value = _Evaluation(reader, steps).value(tree)
    return value, tuple(reader.warnings)


def selector(text: str) -> tuple[str, tuple[Matcher, ...]]:
    """Return name and conditions of a selector.

    Raises:
        Rejected(promql_parse): It is no selector.
    """
    tree = parsed(text)
    if not isinstance(tree, promql_parser.VectorSelector):
        raise Rejected("promql_parse", "a selector is wanted, such as a name with conditions in braces")
    return tree.name or "", _matchers(tree)


class _Evaluation:
    """Evaluates nodes of one tree.

    Args:
        reader: Reads for the steps at which nodes are evaluated.
        asked: Steps of the whole expression, whose start and end `@` means within subqueries too.
    """

    def __init__(self, reader: Reader, asked: Steps) -> None:
        self._reader = reader
        self._asked = asked
        self._times_ms = reader.steps.times_ms

    def value(self, node: Any, depth: int = 0) -> Value | str:
        """Return the value of a node."""
        if depth > DEPTH_MAXIMUM:
            raise Rejected("promql_parse", "the expression is nested too deeply", f"nest {DEPTH_MAXIMUM} deep at most")
        evaluate_node = self._kinds.get(type(node))
        if evaluate_node is None:
            raise Rejected("promql_unsupported", _REFUSED.get(type(node), f"{type(node).__name__} is not offered"))
        return evaluate_node(self, node, depth + 1)

    def _number(self, node: Any, _depth: int) -> Value:
        return np.full(self._times_ms.size, float(node.val))

    def _text(self, node: Any, _depth: int) -> str:
        return str(node.val)

    def _inner(self, node: Any, depth: int) -> Value | str:
        return self.value(node.expr, depth)

    def _negative(self, node: Any, depth: int) -> Value:
        value = self._figures(node.expr, depth)
        return value.with_values(-value.values) if isinstance(value, Matrix) else -value

    def _selected(self, node: Any, _depth: int) -> Value:
        return latest(self._reader, self._wanted(node, LOOKBACK_MS))

    def _combined(self, node: Any, depth: int) -> Value:
        left, right = self._figures(node.lhs, depth), self._figures(node.rhs, depth)
        modifier = node.modifier
        as_bool = modifier is not None and bool(modifier.return_bool)
        return combined(str(node.op), left, right, _matching(modifier), as_bool=as_bool)

    def _aggregated(self, node: Any, depth: int) -> Value:
        name = str(node.op)
        if name not in OFFERED:
            raise Rejected("promql_unsupported", f"{name} is not offered", f"there are {', '.join(sorted(OFFERED))}")
        vector = self._figures(node.expr, depth)
        if not isinstance(vector, Matrix):
            raise Rejected("promql_parse", f"{name} aggregates a vector")
        names: Sequence[str] = node.modifier.labels if node.modifier else ()
        keeps = node.modifier is None or node.modifier.type == promql_parser.AggModifierType.By
        if node.param is None:
            return aggregated(name, vector, names, keeps=keeps)
        if name == "count_values":
            return count_values(self._label(node.param, depth), vector, names, keeps=keeps)
        share = self._constant(node.param, depth)
        if name == "quantile":
            return quantile(share, vector, names, keeps=keeps)
        count = 0 if math.isnan(share) else int(min(max(share, 0), len(vector.labels)))
        return ranked(count, vector, names, keeps=keeps, highest=name == "topk")

    def _called(self, node: Any, depth: int) -> Value:
        name, arguments = str(node.func.name), list(node.args)
        for place, one in enumerate(arguments):
            if _bare(one, promql_parser.MatrixSelector) is not None:
                return self._of_range(name, arguments, place, depth)
            if _bare(one, promql_parser.SubqueryExpr) is not None:
                return self._of_subquery(name, arguments, place, depth)
        if name == "timestamp":
            return self._timestamps(arguments[0], depth)
        if name == "absent":
            return absent(self._vector(arguments[0], depth), _told(arguments[0]))
        return applied(name, [self.value(one, depth) for one in arguments], self._times_ms.astype(np.float64))

    def _timestamps(self, node: Any, depth: int) -> Value:
        """Return when each sample is of: of a selector its own second, of all else the step."""
        selected = _bare(node, promql_parser.VectorSelector)
        if selected is not None:
            return newest_times(self._reader, self._wanted(selected, LOOKBACK_MS))
        vector = self._vector(node, depth)
        return unique(vector.with_values(np.broadcast_to(self._times_ms / 1000, vector.values.shape).copy()))

    def _of_range(self, name: str, arguments: Sequence[Any], place: int, depth: int) -> Value:
        node = _bare(arguments[place], promql_parser.MatrixSelector)
        wanted = self._wanted(node.vector_selector, _range_ms(node))
        if name == "absent_over_time":
            return absent(over_time(self._reader, "present_over_time", wanted), _told(node.vector_selector))
        if name == "quantile_over_time":
            return quantile_over_time(self._reader, self._constant(arguments[0], depth), wanted)
        if name == "predict_linear":
            return predict_linear(self._reader, self._constant(arguments[1], depth), wanted)
        return over_time(self._reader, name, wanted)

    def _of_subquery(self, name: str, arguments: Sequence[Any], place: int, depth: int) -> Value:
        node = _bare(arguments[place], promql_parser.SubqueryExpr)
        function = self._function_of_steps(name, arguments, depth)
        times, range_ms = self._instants(node), _range_ms(node)
        step_ms = SUBQUERY_STEP_MS if node.step is None else _ms(node.step)
        first, last = (int(times.min()) - range_ms) // step_ms + 1, int(times.max()) // step_ms
        self._reader.spend(last - first + 1, SUBQUERY_STEPS_MAXIMUM)
        if last < first:
            return nothing(times.size)
        grid = np.arange(first, last + 1, dtype=np.int64) * step_ms
        inner = _Evaluation(self._reader.at(Steps(grid, step_ms)), self._asked)._vector(node.expr, depth)
        bounds = np.searchsorted(grid, times - range_ms, side="right"), np.searchsorted(grid, times, side="right")
        figures = at_each(function, np.where(inner.there, inner.values, np.nan), grid, self._times_ms, bounds)
        labels = inner.labels if name == "last_over_time" else without_name(inner.labels)
        return unique(Matrix(labels, figures, ~np.isnan(figures))).present()

    def _function_of_steps(self, name: str, arguments: Sequence[Any], depth: int) -> Function:
        if name == "quantile_over_time":
            return quantile_of(self._constant(arguments[0], depth))
        if name == "predict_linear":
            return predicted(self._constant(arguments[1], depth))
        if name not in OF_STEPS:
            offered = ", ".join(sorted([*OF_STEPS, "predict_linear", "quantile_over_time"]))
            raise Rejected("promql_unsupported", f"{name}() of a subquery is not offered", f"there are {offered}")
        return OF_STEPS[name]

    def _wanted(self, node: Any, range_ms: int) -> Wanted:
        return Wanted(node.name or "", _matchers(node), self._instants(node), range_ms)

    def _instants(self, node: Any) -> I64:
        """Return when a selector or a subquery is to be seen, one instant for each step, of times that there are."""
        times = self._times_ms
        if node.at is not None:
            times = np.full(times.size, self._at(node.at), np.int64)
        return np.clip(times if node.offset is None else times - _ms(node.offset), 0, TIME_MAXIMUM_MS)

    def _at(self, at: Any) -> int:
        if at.type == promql_parser.AtModifierType.Start:
            return int(self._asked.times_ms[0])
        if at.type == promql_parser.AtModifierType.End:
            return int(self._asked.times_ms[-1])
        return _instant_ms(at)

    def _constant(self, node: Any, depth: int) -> float:
        value = self.value(node, depth)
        if isinstance(value, Matrix | str) or not np.all(value == value[0]):
            raise Rejected("promql_unsupported", "the parameter has to be a number that is the same at every step")
        return float(value[0])

    def _label(self, node: Any, depth: int) -> str:
        value = self.value(node, depth)
        if not isinstance(value, str) or not LABEL.fullmatch(value):
            raise Rejected("promql_parse", "count_values takes the name of a label as a text")
        return value

    def _figures(self, node: Any, depth: int) -> Value:
        value = self.value(node, depth)
        if isinstance(value, str):
            raise Rejected("promql_parse", "a text stands where a number or a vector is wanted")
        return value

    def _vector(self, node: Any, depth: int) -> Matrix:
        value = self.value(node, depth)
        if not isinstance(value, Matrix):
            raise Rejected("promql_parse", "a vector is wanted")
        return value

    _kinds: ClassVar[dict[type, Callable[["_Evaluation", Any, int], Value | str]]] = {
        promql_parser.NumberLiteral: _number,
        promql_parser.StringLiteral: _text,
        promql_parser.ParenExpr: _inner,
        promql_parser.UnaryExpr: _negative,
        promql_parser.VectorSelector: _selected,
        promql_parser.BinaryExpr: _combined,
        promql_parser.AggregateExpr: _aggregated,
        promql_parser.Call: _called,
    }


_REFUSED = {
    promql_parser.SubqueryExpr: "a subquery stands where a vector is wanted: put max_over_time() or the like around it",
    promql_parser.MatrixSelector: "a range stands where a vector is wanted: put a function such as rate() around it",
}


def _bare(node: Any, kind: type) -> Any:
    """Return a node of a kind, taken out of its parentheses; None where it is of another."""
    while isinstance(node, promql_parser.ParenExpr):
        node = node.expr
    return node if isinstance(node, kind) else None


def _instant_ms(at: Any) -> int:
    """Return the time that `@` names; of one that cannot be told the first or the last that there is."""
    try:
        return int(at.at.timestamp() * 1000)
    except (ValueError, OverflowError):
        return TIME_MAXIMUM_MS
    except BaseException as error:  # the parser panics at times before 1970
        if type(error).__name__ != "PanicException":
            raise
        return 0


def _range_ms(node: Any) -> int:
    range_ms = _ms(node.range)
    if range_ms > RANGE_MAXIMUM_MS or range_ms < 1_000:
        raise Rejected("promql_unsupported", "a range is of a second at least and of a year at most")
    return range_ms


def _matching(modifier: Any) -> Matching:
    if modifier is None:
        return Matching()
    names, is_on = (), False
    if modifier.matching is not None:
        names, is_on = (
            tuple(modifier.matching.labels),
            modifier.matching.type == promql_parser.LabelModifierType.Include,
        )
    return Matching(names, is_on, _word(_MANY, modifier.card), tuple(modifier.group_labels or ()))


def _matchers(node: Any) -> tuple[Matcher, ...]:
    if node.matchers.or_matchers:
        raise Rejected("promql_unsupported", "conditions joined by or are not offered", "write two selectors with or")
    return tuple(matcher(one.name, _word(_OPERATORS, one.op), one.value) for one in node.matchers.matchers)


def _told(node: Any) -> Labels:
    """Return the labels that a selector says by equality, and of which it says nothing else."""
    found = _bare(node, promql_parser.VectorSelector)
    if found is None:
        return {}
    matchers = _matchers(found)
    often = Counter(one.name for one in matchers)
    return {one.name: one.value for one in matchers if one.operator == "=" and one.value and often[one.name] == 1}


def _nodes(node: Any, depth: int = 0) -> Iterator[Any]:
    yield node
    if depth > DEPTH_MAXIMUM:
        return
    inner = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param", "vector_selector")]
    for one in (*inner, *(getattr(node, "args", None) or ())):
        if one is not None:
            yield from _nodes(one, depth + 1)


def _names_at(node: Any) -> list[str]:
    if isinstance(node, promql_parser.VectorSelector):
        return [one.name for one in node.matchers.matchers]
    if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
        return list(node.modifier.labels)
    if isinstance(node, promql_parser.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
        return [*node.modifier.matching.labels, *(node.modifier.group_labels or ())]
    return []


def _word(words: Sequence[tuple[Any, str]], meant: Any) -> str:
    """Return the word for one of the parser's constants, which cannot be keys."""
    return next((word for constant, word in words if constant == meant), "")


def _depth(text: str) -> int:
    """Return how deep parentheses are nested at most, those inside texts too."""
    deepest = depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
