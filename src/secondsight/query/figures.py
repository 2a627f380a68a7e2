"""Say what the last minutes of each GPU show: figures near a limit, or below those of its peers.

Figures are those of windows of 30 s, so a single odd second says nothing. Peers are GPUs of the same scope.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median
from typing import Any

from secondsight.access.scope import Scope
from secondsight.catalog.health import Beside, Health, LimitRule, PeerRule, limit_rules, peer_rules
from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric, RollupSet
from secondsight.catalog.scale import physical_array
from secondsight.model import EntityKind
from secondsight.query.fleet import UTILIZATION, GpuNow, Status
from secondsight.query.members import covered_expression, value_of_last
from secondsight.query.plan import Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windows import rollup_bounds
from secondsight.store.schema import rollup_table
from secondsight.store.spec import quoted

BACK_MS = 300_000
PEERS_LEAST = 3
"""So many others a GPU is compared with at least."""

Key = tuple[str, str, str, str]
Figures = Mapping[str, float]
"""Metric -> what it was over the last minutes, in its unit; without those that had no value."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What figures say of a GPU."""

    rule: str
    health: Health
    since_ms: int
    text: str


def metrics_of_rules(catalog: Catalog, scope: Scope) -> tuple[Metric, ...]:
    """Return the metrics that the rules look at and the scope shows."""
    rules: list[LimitRule | PeerRule] = [*limit_rules(), *peer_rules()]
    names = dict.fromkeys([UTILIZATION, *(name for rule in rules for name in rule.metrics)])
    return tuple(catalog.get(name) for name in names if scope.shows(name))


def compile_figures(metrics: Sequence[Metric], now_ms: int, scope: Scope) -> Statement:
    """Return the statement for one row per GPU: of each metric `figure_N` in stored integers, NULL without a value.

    A figure is the highest state, or the lowest mean of a window of what some rule bounds from above, else the mean.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    lowest = {rule.metric for rule in limit_rules()}
    name = rollup_table(EntityKind.GPU)
    columns = ["tenant_id", "cluster_id", "host_id", "entity"]
    figures = [
        f"{_figure(metric, metric.name in lowest, tables, parameters)} AS figure_{number}"
        for number, metric in enumerate(metrics)
    ]
    where = [*rollup_bounds(Span(now_ms - BACK_MS, now_ms), parameters), "part = ''", "samples > 0"]
    rows = tables.table(name, [*columns, *figures], where, tail=[f"GROUP BY {', '.join(columns)}"])
    return Statement(rows[1:-1], parameters.values())


def _figure(metric: Metric, is_lowest: bool, tables: ScopedTables, parameters: Parameters) -> str:
    table = rollup_table(EntityKind.GPU)
    if metric.rollup in (RollupSet.STATE, RollupSet.CONSTANT):
        return f"toFloat64(max({tables.shown(table, metric.name, value_of_last(metric))}))"
    total = tables.shown(table, metric.name, quoted(f"{metric.name}_sum"))
    covered = f"if(isNull({total}), NULL, {covered_expression(parameters.bind(metric.name, 'String'))})"
    if is_lowest:
        return f"min(toFloat64({total}) / nullIf({covered}, 0))"
    return f"sum(toFloat64({total})) / nullIf(sum({covered}), 0)"


def figures_of(rows: Any, metrics: Sequence[Metric]) -> dict[Key, Figures]:
    """Return the figures of each GPU of an answer, in the units of their metrics."""
    columns = [rows[name].to_pylist() for name in ("tenant_id", "cluster_id", "host_id", "entity")]
    keys: list[Key] = list(zip(*columns, strict=True))
    found: dict[Key, dict[str, float]] = {key: {} for key in keys}
    for number, metric in enumerate(metrics):
        stored = rows[f"figure_{number}"].to_numpy()
        for key, value in zip(keys, physical_array(metric, stored).tolist(), strict=True):
            if not isnan(value):
                found[key][metric.name] = value
    return dict(found)


def signs_of(gpus: Iterable[GpuNow], figures: Mapping[Key, Figures], now_ms: int) -> dict[Key, list[Sign]]:
    """Return what the figures of some GPUs say of those that report."""
    live = {
        (gpu.tenant_id, gpu.cluster_id, gpu.host_id, gpu.gpu_id): gpu for gpu in gpus if gpu.status is Status.REPORTING
    }
    known = {key: figures[key] for key in live if key in figures}
    found: dict[Key, list[Sign]] = defaultdict(list)
    for limit in limit_rules():
        for key, own in known.items():
            if (text := _near(limit, own)) is not None:
                found[key].append(Sign(limit.name, limit.verdict, now_ms - BACK_MS, text))
    for rule in peer_rules():
        for group in _groups(rule, live, known):
            for key, text in _below(rule, {key: known[key] for key in group}).items():
                found[key].append(Sign(rule.name, rule.verdict, now_ms - BACK_MS, text))
    return dict(found)


def _near(rule: LimitRule, own: Figures) -> str | None:
    left = own.get(rule.metric)
    if left is None and all(name in own for name in rule.else_less) and rule.else_less:
        left = own[rule.else_less[0]] - own[rule.else_less[1]]
    return f"{rule.what}: {left:.0f} left" if left is not None and left <= rule.most else None


def _groups(rule: PeerRule, live: Mapping[Key, GpuNow], known: Mapping[Key, Figures]) -> list[list[Key]]:
    """Return GPUs that are compared with each other."""
    groups: dict[tuple[str, ...], list[Key]] = defaultdict(list)
    for key, own in known.items():
        gpu = live[key]
        place = (gpu.tenant_id, gpu.cluster_id)
        group = (*place, gpu.job_id) if rule.beside is Beside.JOB else (*place, gpu.gpu_model)
        if group[-1] and (rule.load_of_group or own.get(UTILIZATION, 0.0) >= rule.load):
            groups[group].append(key)
    return [group for group in groups.values() if len(group) > PEERS_LEAST]


def _below(rule: PeerRule, group: Mapping[Key, Figures]) -> dict[Key, str]:
    """Return those of a group that lie below it, with the figure that lies lowest."""
    busy = [own[UTILIZATION] for own in group.values() if UTILIZATION in own]
    if rule.load_of_group and (not busy or median(busy) < rule.load):
        return {}
    worst: dict[Key, tuple[float, str]] = {}
    for name in rule.metrics:
        values = {key: own[name] for key, own in group.items() if name in own}
        if len(values) <= PEERS_LEAST:
            continue
        middle = median(values.values())
        apart = median(abs(value - middle) for value in values.values())
        for key, value in values.items():
            is_below = value < rule.below * middle and middle - value > rule.spread * apart
            if is_below and middle >= rule.least and value / middle < worst.get(key, (1.0, ""))[0]:
                text = f"{rule.what}: {name} was {value / middle:.0%} of the median of {len(values)} GPUs"
                worst[key] = (value / middle, text)
    return {key: text for key, (_, text) in worst.items()}
