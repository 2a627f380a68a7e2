"""Turn the lines of `findings.toml` into rules: what of a metric is a finding, how bad it is, and what to do.

A finding either lasts (a state or gauge that holds), or counts (a counter that grew or fell in a window of 30 s).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondsight.catalog.index import Catalog
from secondsight.catalog.line import Table, refused
from secondsight.catalog.metric import Metric, MetricType, RollupSet
from secondsight.model import EntityKind

_FILE = Path(__file__).parent / "findings.toml"
SEVERITIES = ("info", "warning", "error", "critical", "fatal")
GAUGES = (RollupSet.LEVEL, RollupSet.DISTRIBUTION)


@dataclass(frozen=True, slots=True, eq=False)
class FindingRule:
    """One finding; equal to itself alone.

    Attributes:
        metrics: What it is found in; more than one for counters that fell.
        event, code: How it is stored; `code_of_all` where every entity of the host has it in one window, else `code`.
        levels: (from so many, severity), least first; one level of 0 for what lasts.
        what, action: Words for an operator; `what` may hold {count}.
        values, bits, unless, least, most: When it holds, in stored integers.
        until: With `least` or `most`: it ends once this is reached; what lies between says nothing. None: at once.
        grows, restarts: A counter grew, or fell.
        change: It begins only where the sample before is known not to hold.
    """

    name: str
    metrics: tuple[Metric, ...]
    event: str
    code: int
    code_of_all: int
    levels: tuple[tuple[int, str], ...]
    what: str
    action: str
    values: tuple[int, ...] = ()
    bits: int = 0
    unless: int = 0
    least: float | None = None
    most: float | None = None
    until: float | None = None
    grows: bool = False
    restarts: bool = False
    change: bool = False

    @property
    def kind(self) -> EntityKind:
        """Return the kind of the entities that it is found in."""
        return self.metrics[0].kind

    @property
    def lasts(self) -> bool:
        """Tell whether it has a beginning and an end."""
        return not (self.grows or self.restarts)

    def severity(self, count: int) -> str:
        """Return how bad so many are."""
        reached = [word for least, word in self.levels if count >= least]
        return (reached or [self.levels[0][1]])[-1]


def load_rules(catalog: Catalog) -> tuple[FindingRule, ...]:
    """Return the shipped rules.

    Raises:
        Rejected: `bad_catalog`, naming the line and what is wrong.
    """
    return parse_rules(_FILE.read_text(encoding="utf-8"), catalog)


def parse_rules(text: str, catalog: Catalog) -> tuple[FindingRule, ...]:
    """Return the rules of a TOML text, one inline table a line.

    Raises:
        Rejected: `bad_catalog`; `unknown_metric`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "one line is one finding: name = { event=..., ... }"
        raise refused("findings.toml", f"no TOML: {error}", hint) from None
    return tuple(_rule(name, line, catalog) for name, line in document.items())


def _rule(name: str, line: Mapping[str, Any], catalog: Catalog) -> FindingRule:
    where = f"findings.toml: {name}"
    table = Table(where, dict(line))
    one = table.text("metric")
    metrics = tuple(catalog.get(each) for each in ([one] if one else table.items("metrics", str)))
    code, severity, grows = table.whole("code", 0), table.text("severity"), table.items("grows", list)
    rule = FindingRule(
        name=name,
        metrics=metrics,
        event=table.text("event"),
        code=code,
        code_of_all=table.whole("code_of_all", code),
        levels=tuple((int(least), str(word)) for least, word in grows) or ((0, severity),),
        what=table.text("what"),
        action=table.text("do"),
        values=table.items("is", int),
        bits=table.whole("bits", 0),
        unless=table.whole("unless", 0),
        least=_stored(metrics, table.number("least")),
        most=_stored(metrics, table.number("most")),
        until=_stored(metrics, table.number("until")),
        grows=bool(grows),
        restarts=table.flag("restarts"),
        change=table.flag("change"),
    )
    table.end()
    wrong = _broken(rule, catalog)
    if wrong:
        raise refused(where, *wrong)
    return rule


def _stored(metrics: tuple[Metric, ...], physical: float | None) -> float | None:
    return physical / (metrics[0].resolution or 1.0) if metrics and physical is not None else None


def _broken(rule: FindingRule, catalog: Catalog) -> tuple[str, str] | None:
    """Return what is wrong with a rule and what to write instead."""
    if not rule.metrics or len({metric.kind for metric in rule.metrics}) > 1:
        return "it names no metrics of one kind", "metric=... or metrics=[...]"
    event = catalog.get(rule.event)
    if event.type is not MetricType.EVENT or not {rule.code, rule.code_of_all} <= {code for code, _ in event.values}:
        return f"{rule.event} is no event with code {rule.code}", "add the code to the event's values"
    if not {word for _, word in rule.levels} <= set(SEVERITIES):
        return "its severity is unknown", f"one of {', '.join(SEVERITIES)}"
    return _broken_test(rule)


def _broken_test(rule: FindingRule) -> tuple[str, str] | None:
    tests = [rule.values, rule.bits, rule.least is not None, rule.most is not None, rule.grows, rule.restarts]
    if sum(map(bool, tests)) != 1:
        return "it has no test, or several", "one of is, bits, least, most, grows, restarts"
    if not {metric.rollup for metric in rule.metrics} <= set(_sets(rule)):
        return "its test does not fit the metric", "is and bits test states, least and most gauges, the others counters"
    if rule.until is not None and not _is_beyond(rule, rule.until):
        return "until goes with a bound and lies beyond it", "most=0, until=3: it ends at 3"
    if rule.change and not rule.values:
        return "change goes with is", "leave it out"
    return None


def _sets(rule: FindingRule) -> tuple[RollupSet, ...]:
    if rule.grows or rule.restarts:
        return (RollupSet.INCREASE,)
    return (RollupSet.STATE,) if rule.values or rule.bits else GAUGES


def _is_beyond(rule: FindingRule, until: float) -> bool:
    if rule.most is not None:
        return until > rule.most
    return rule.least is not None and until < rule.least
