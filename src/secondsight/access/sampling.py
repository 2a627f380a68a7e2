"""Keep what operators want of the agents: how often, which metrics, and which metrics are still tried out.

Three small tables that a gateway reads whole, every few seconds: rules of sampling, stages of metrics, debug sessions.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from sqlalchemy import Engine, RowMapping, delete, insert, select, update

from secondsight.access.metadata import METRIC_STAGES, SAMPLING_RULES, reading, writing
from secondsight.errors import Rejected
from secondsight.model import EntityKind

FULL_MS = 1000
COARSE_MS = 30_000
INTERVALS_MS = (FULL_MS, COARSE_MS)
PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    """How often something is sampled.

    The rule with the narrowest place counts, then one that names the kind, then the newest. A rule of a GPU or a job
    can only ask for every second of it.

    Attributes:
        cluster_id, host_id, gpu_id, job_id: What it is about; all empty is the whole tenant.
        kind: None for every kind.
        metrics: Metrics to be collected; None for all.
    """

    tenant_id: str
    interval_ms: int
    cluster_id: str = ""
    host_id: str = ""
    gpu_id: str = ""
    job_id: str = ""
    kind: EntityKind | None = None
    metrics: tuple[str, ...] | None = None
    rule_id: int = 0
    created_ms: int = 0

    @property
    def narrowness(self) -> tuple[int, bool, int]:
        """Return what rules of one host and kind are ordered by; the greatest counts."""
        return 2 * bool(self.host_id) + bool(self.cluster_id), self.kind is not None, self.rule_id


class Stage(StrEnum):
    """How far a metric is rolled out."""

    OFF = "off"
    CANARY = "canary"
    ON = "on"


@dataclass(frozen=True, slots=True)
class MetricStage:
    """The stage of one metric in one tenant; a metric without one is on.

    Attributes:
        share_ppm: Hosts, in a million, that a canary runs on, besides those listed.
    """

    tenant_id: str
    metric: str
    stage: Stage
    share_ppm: int = 0
    hosts: tuple[str, ...] = ()

    def allows(self, host_id: str) -> bool:
        """Tell whether a host collects the metric; a greater share has the hosts of a smaller one, and others."""
        match self.stage:
            case Stage.ON:
                return True
            case Stage.OFF:
                return False
            case Stage.CANARY:
                return host_id in self.hosts or _place_ppm(self.metric, host_id) < self.share_ppm


def add_rule(metadata: Engine, rule: Rule, now_ms: int) -> int:
    """Store a rule in place of one about the same, and return its id.

    Raises:
        Rejected(bad_rule): It cannot be followed.
    """
    _check(rule)
    row = {
        "tenant_id": rule.tenant_id,
        "cluster_id": rule.cluster_id,
        "host_id": rule.host_id,
        "gpu_id": rule.gpu_id,
        "job_id": rule.job_id,
        "kind": rule.kind.value if rule.kind else "",
    }
    same = [SAMPLING_RULES.c[name] == value for name, value in row.items()]
    told = {"interval_ms": rule.interval_ms, "metrics": _to_text(rule.metrics), "created_ms": now_ms}
    with writing(metadata) as connection:
        live = update(SAMPLING_RULES).where(*same, SAMPLING_RULES.c.removed_ms.is_(None))
        connection.execute(live.values(removed_ms=now_ms))
        made = connection.execute(insert(SAMPLING_RULES).values(**row, **told))
    key: Any = made.inserted_primary_key
    return int(key[0])


def remove_rule(metadata: Engine, tenant_id: str, rule_id: int, now_ms: int) -> bool:
    """Remove a rule; return False where there is no such live rule."""
    mine = (SAMPLING_RULES.c.rule_id == rule_id, SAMPLING_RULES.c.tenant_id == tenant_id)
    live = update(SAMPLING_RULES).where(*mine, SAMPLING_RULES.c.removed_ms.is_(None))
    with writing(metadata) as connection:
        return connection.execute(live.values(removed_ms=now_ms)).rowcount == 1


def live_rules(metadata: Engine) -> tuple[Rule, ...]:
    """Return every rule that was not removed, oldest first."""
    live = select(SAMPLING_RULES).where(SAMPLING_RULES.c.removed_ms.is_(None)).order_by(SAMPLING_RULES.c.rule_id)
    with reading(metadata) as connection:
        rows = connection.execute(live).mappings().all()
    return tuple(_rule(row) for row in rows)


def set_stage(metadata: Engine, stage: MetricStage, now_ms: int) -> None:
    """Store the stage of a metric in place of the one it had."""
    mine = (METRIC_STAGES.c.tenant_id == stage.tenant_id, METRIC_STAGES.c.metric == stage.metric)
    if not 0 <= stage.share_ppm <= PPM:
        raise Rejected("bad_stage", f"{stage.share_ppm} of a million hosts is no share", "say 0 % to 100 %")
    with writing(metadata) as connection:
        connection.execute(delete(METRIC_STAGES).where(*mine))
        if stage.stage is not Stage.ON:
            row = {"stage": stage.stage.value, "share_ppm": stage.share_ppm, "hosts": json.dumps(sorted(stage.hosts))}
            named = {"tenant_id": stage.tenant_id, "metric": stage.metric, "changed_ms": now_ms}
            connection.execute(insert(METRIC_STAGES).values(**row, **named))


def metric_stages(metadata: Engine) -> tuple[MetricStage, ...]:
    """Return the stages of all metrics that are not on everywhere."""
    with reading(metadata) as connection:
        rows = connection.execute(select(METRIC_STAGES).order_by(METRIC_STAGES.c.metric)).mappings().all()
    return tuple(
        MetricStage(
            row["tenant_id"], row["metric"], Stage(row["stage"]), row["share_ppm"], tuple(json.loads(row["hosts"]))
        )
        for row in rows
    )


def _check(rule: Rule) -> None:
    if not rule.tenant_id or rule.interval_ms not in INTERVALS_MS:
        raise Rejected("bad_rule", f"{rule.interval_ms} ms is no cadence of a plan", "say 1s or 30s")
    if (rule.gpu_id or rule.job_id) and (rule.interval_ms != FULL_MS or rule.metrics is not None):
        message = "a rule of one GPU or job can only ask for every second of it"
        raise Rejected("bad_rule", message, "say --interval 1s, without --metrics")
    if bool(rule.gpu_id) + bool(rule.job_id) > 1:
        raise Rejected("bad_rule", "a rule is about a GPU or a job, not both")


def _place_ppm(metric: str, host_id: str) -> int:
    """Return where a host stands among a million, another place for each metric and always the same one."""
    digest = blake2b(f"{metric}\0{host_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % PPM


def _rule(row: RowMapping) -> Rule:
    return Rule(
        row["tenant_id"],
        row["interval_ms"],
        row["cluster_id"],
        row["host_id"],
        row["gpu_id"],
        row["job_id"],
        EntityKind(row["kind"]) if row["kind"] else None,
        None if row["metrics"] is None else tuple(json.loads(row["metrics"])),
        row["rule_id"],
        row["created_ms"],
    )


def _to_text(names: Iterable[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))
