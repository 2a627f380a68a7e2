"""Turn findings into rows of `events` and back, and look up in the store what a window between others needs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from secondsight.catalog.findings import FindingRule
from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.process.enrich import Attribution
from secondsight.process.findings import holding
from secondsight.process.kinds import KindState
from secondsight.process.land import Row, attribution_row, hash64, own_provenance
from secondsight.process.load import FINAL, RANGE, START, range_params, series_of
from secondsight.process.series import CLUSTER, COLLECTOR, ENTITY, FIELDS, HOST, PART, REGION, TENANT, Names
from secondsight.store.schema import raw_table
from secondsight.store.spec import quoted

SOURCE = "findings"
RETRACTED = "retracted"
LONGEST_MS = 31 * 86_400_000
"""What lasted longer and ended is not looked for when late samples fall into it."""
KEPT_OPEN_MS = 90 * 86_400_000
NEXT_MS = 86_400_000
"""How far after a window the sample that follows it is looked for."""

Firsts = dict[int, list[tuple[int, bool]]]
"""Series -> first sample of each window that has some, in order: when, and whether it holds."""

_SUBJECTS = {EntityKind.GPU: "GPU", EntityKind.FABRIC_PORT: "port"}


@dataclass(slots=True)
class Finding:
    """One finding of one series.

    Attributes:
        end_ms: None while it lasts.
        count: How much a counter grew, or how often it began within its first window.
        version: Of its newest row, 0 before there is one.
        code: As stored.
        told: Counters that fell.
        gone: It was retracted.
    """

    rule: FindingRule
    series: int
    begin_ms: int
    end_ms: int | None
    count: int
    code: int
    version: int = 0
    told: str = ""
    gone: bool = False

    def covers(self, time_ms: int) -> bool:
        """Tell whether it lasts at an instant."""
        return self.begin_ms <= time_ms and (self.end_ms is None or self.end_ms > time_ms)


def finding_row(finding: Finding, names: Names, owner: Attribution, now_ms: int) -> Row:
    """Return the row of a finding; a retracted one keeps its key, has no length and no severity."""
    rule, entity = finding.rule, names[ENTITY]
    attributes = {
        "rule": rule.name,
        "count": str(finding.count),
        "message": message_of(finding, names),
        "action": rule.action,
    }
    attributes |= {"counters": finding.told} if finding.told else {}
    attributes |= {RETRACTED: "late samples say otherwise"} if finding.gone else {}
    return {
        "tenant_id": names[TENANT],
        "region": names[REGION],
        "cluster_id": names[CLUSTER],
        "host_id": names[HOST],
        "entity": entity,
        "part": names[PART],
        "kind": rule.kind.value,
        "metric": rule.event,
        "event_time": finding.begin_ms,
        "end_time": finding.begin_ms if finding.gone else finding.end_ms,
        "code": finding.code,
        "severity": "" if finding.gone else rule.severity(finding.count),
        "text_hash": hash64(rule.name, names[COLLECTOR]),
        "event_version": finding.version,
        "attributes": attributes,
        **own_provenance(SOURCE, names[COLLECTOR], now_ms),
        **attribution_row(owner),
    }


def message_of(finding: Finding, names: Names) -> str:
    """Return what happened to whom, from when to when, and what to do."""
    rule = finding.rule
    part = f" {names[PART]}" if names[PART] else ""
    subject = f"{_SUBJECTS.get(rule.kind, rule.kind.value)} {names[ENTITY]}{part} of host {names[HOST]}"
    what = rule.what.format(count=finding.count)
    return f"{subject}: {what}, {_when(finding)}; {rule.action}"


def _when(finding: Finding) -> str:
    begin = _clock(finding.begin_ms)
    if finding.end_ms is None:
        return f"since {begin}"
    if not finding.rule.lasts:
        return f"at {begin}" if finding.end_ms == finding.begin_ms else f"{begin} to {_clock(finding.end_ms)}"
    return f"over after {(finding.end_ms - finding.begin_ms) / 1000:.0f} s from {begin} on"


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_COLUMNS = (
    "tenant_id, region, cluster_id, host_id, entity, part, collector_id, code, "
    "toUnixTimestamp64Milli(event_time) AS begin_ms, "
    "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_ms, "
    "event_version AS version, attributes['rule'] AS rule, attributes['count'] AS counted, "
    f"attributes['counters'] AS told, mapContains(attributes, '{RETRACTED}') AS gone"
)


def load_open(
    store: Store, states: Mapping[EntityKind, KindState], rules: Mapping[str, FindingRule], now_ms: int
) -> list[Finding]:
    """Return all findings that last.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        f"SELECT {_COLUMNS} FROM events FINAL WHERE source = '{SOURCE}' AND isNull(end_time) "  # noqa: S608 - names of the code
        "AND event_time >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')",
        {"since": now_ms - KEPT_OPEN_MS},
    )
    return _findings(rows.to_pylist(), states, rules)


def load_near(
    store: Store,
    state: KindState,
    collectors: Sequence[int],
    reach_ms: tuple[int, int],
    rules: Mapping[str, FindingRule],
) -> list[Finding]:
    """Return the findings of some collectors of one cluster that reach into a range of time, retracted ones too.

    Raises:
        Retryable: The store is busy or away.
    """
    tenant, _, cluster, _ = state.collectors.items[collectors[0]]
    rows = store.query(
        f"SELECT {_COLUMNS} FROM events FINAL WHERE tenant_id = {{tenant:String}} "  # noqa: S608 - names of the code
        "AND cluster_id = {cluster:String} AND event_time >= fromUnixTimestamp64Milli({since:Int64}, 'UTC') "
        "AND event_time <= fromUnixTimestamp64Milli({until:Int64}, 'UTC') "
        "AND (isNull(end_time) OR end_time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')) "
        f"AND source = '{SOURCE}' AND kind = {{kind:String}} AND collector_id IN {{collectors:Array(String)}}",
        {
            "tenant": tenant,
            "cluster": cluster,
            "since": reach_ms[0] - LONGEST_MS,
            "from": reach_ms[0],
            "until": reach_ms[1] + NEXT_MS,
            "kind": state.kind.value,
            "collectors": sorted({state.collectors.items[collector][-1] for collector in collectors}),
        },
    )
    return _findings(rows.to_pylist(), {state.kind: state}, rules)


def _findings(
    rows: Iterable[Row], states: Mapping[EntityKind, KindState], rules: Mapping[str, FindingRule]
) -> list[Finding]:
    found = []
    for row in rows:
        rule = rules.get(row["rule"])
        if rule is not None and rule.kind in states:
            names = tuple(row[name] for name in FIELDS)
            series = states[rule.kind].series.id_of(names)
            count = int(row["counted"]) if row["counted"].isdecimal() else 0
            times = (row["begin_ms"], row["end_ms"])
            told = (row["version"], row["told"], bool(row["gone"]))
            found.append(Finding(rule, series, *times, count, row["code"], *told))
    return found


def load_next(
    store: Store, state: KindState, rule: FindingRule, series: Sequence[int], end_ms: int
) -> dict[int, tuple[int, bool]]:
    """Return, by series, when the first stored sample from an instant on is, and whether it holds.

    Raises:
        Retryable: The store is busy or away.
    """
    by_cluster: dict[tuple[str, str], list[Names]] = defaultdict(list)
    for number in series:
        names = state.series.names_of(number)
        by_cluster[names[TENANT], names[CLUSTER]].append(names)
    found: dict[int, tuple[int, bool]] = {}
    for (tenant, cluster), some in by_cluster.items():
        whose = {
            "tenant": tenant,
            "cluster": cluster,
            "collectors": sorted({names[COLLECTOR] for names in some}),
            "entities": sorted({names[ENTITY] for names in some}),
        }
        asked = f" AND entity IN {{entities:Array(String)}} GROUP BY {', '.join(_SERIES)}"
        firsts = _firsts(store, state, rule, asked, whose, (end_ms, end_ms + NEXT_MS))
        found |= {number: each[0] for number, each in firsts.items()}
    return found


def load_firsts(
    store: Store, state: KindState, rule: FindingRule, collectors: Sequence[int], reach_ms: tuple[int, int]
) -> Firsts:
    """Return what the first stored sample of each window in a range is, for collectors of one cluster.

    Raises:
        Retryable: The store is busy or away.
    """
    tenant, _, cluster, _ = state.collectors.items[collectors[0]]
    names = [state.collectors.items[collector][-1] for collector in collectors]
    whose = {"tenant": tenant, "cluster": cluster, "collectors": names}
    asked = f" GROUP BY {', '.join(_SERIES)}, {START} ORDER BY next_ms"
    return _firsts(store, state, rule, asked, whose, reach_ms)


_SERIES = ("region", "host_id", "entity", "part", "collector_id")
_FIRSTS = f"WHERE {RANGE} AND isNotNull({{metric:Identifier}}) AND collector_id IN {{collectors:Array(String)}}"


def _firsts(
    store: Store,
    state: KindState,
    rule: FindingRule,
    asked: str,
    whose: Mapping[str, Any],
    reach_ms: tuple[int, int],
) -> Firsts:
    name, place = rule.metrics[0].name, (whose["tenant"], whose["cluster"])
    tells, bounds = _telling(rule)
    rows = store.query(
        f"SELECT {', '.join(_SERIES)}, min(toUnixTimestamp64Milli(event_time)) AS next_ms, "  # noqa: S608 - names from the catalogue
        f"argMin({quoted(name)}, event_time) AS value FROM {raw_table(state.kind)} FINAL {_FIRSTS}{tells}{asked}",
        {**range_params(*place, reach_ms), "metric": name, **whose, **bounds},
        FINAL,
    )
    found: Firsts = defaultdict(list)
    if rows.num_rows:
        holds = holding(rule, np.asarray(rows.column("value").to_numpy()))
        numbers = series_of(rows, state, *place).tolist()
        for number, at_ms, held in zip(numbers, rows.column("next_ms").to_pylist(), holds, strict=True):
            found[number].append((at_ms, bool(held)))
    return found


def _telling(rule: FindingRule) -> tuple[str, dict[str, float]]:
    """Return the predicate for samples that say something, as `findings.telling`."""
    bound = rule.most if rule.most is not None else rule.least
    if rule.until is None or bound is None:
        return "", {}
    low, high = sorted((bound, rule.until))
    return " AND ({metric:Identifier} <= {low:Float64} OR {metric:Identifier} >= {high:Float64})", {
        "low": low,
        "high": high,
    }
