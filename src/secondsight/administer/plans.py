"""Commands about plans: how often agents sample, and how far metrics are rolled out."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from secondsight.administer.planned import add_capacity
from secondsight.administer.shell import AddCommand, Commands, audit, metadata, now_ms, place, say, show
from secondsight.errors import Rejected

INTERVALS_MS = {"1s": 1000, "30s": 30_000}


def add_plans(commands: Commands, add: AddCommand) -> None:
    """Add `plan`: alone it says what a site costs, its actions say how often agents sample."""
    plans = add_capacity(commands)
    adding = add(
        plans,
        "set",
        "sample a tenant, cluster, host, GPU or job every second or every 30 s",
        _plan_set,
        "secondsight plan set --cluster cedar --interval 30s",
    )
    adding.add_argument("--interval", choices=sorted(INTERVALS_MS), required=True)
    for name in ("cluster", "host", "gpu", "job", "kind"):
        adding.add_argument(f"--{name}", default="", metavar="ID", help=f"only this {name}")
    adding.add_argument("--metrics", default="", metavar="A,B", help="these alone, of the kind")
    showing = add(plans, "list", "list the rules in force", _plan_list, "secondsight plan list")
    showing.add_argument("--json", action="store_true", help="as JSON")
    removing = add(plans, "remove", "remove a rule", _plan_remove, "secondsight plan remove 3")
    removing.add_argument("rule_id", type=int, metavar="RULE")
    for parser in (adding, showing, removing):
        place(parser)


def add_stages(actions: Commands, add: AddCommand) -> None:
    """Add `metrics stage` and `metrics stages`."""
    stage = add(
        actions,
        "stage",
        "collect a metric nowhere, on some hosts first, or everywhere",
        _stage,
        "secondsight metrics stage gpu_sm_occupancy_ratio canary --hosts 5%",
    )
    stage.add_argument("metric", metavar="NAME")
    stage.add_argument("stage", choices=("off", "canary", "on"))
    stage.add_argument("--hosts", default="", metavar="SHARE|A,B", help="of a canary: 5%%, or host ids by commas")
    stages = add(actions, "stages", "list metrics that are not on everywhere", _stages, "secondsight metrics stages")
    for parser in (stage, stages):
        place(parser)


def _plan_set(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import Rule, add_rule
    from secondsight.model import EntityKind

    kinds = {kind.value: kind for kind in EntityKind}
    if arguments.kind and arguments.kind not in kinds:
        raise Rejected("bad_rule", f"there is no kind {arguments.kind!r}", f"one of: {', '.join(kinds)}")
    metrics = tuple(name for name in arguments.metrics.split(",") if name)
    _check_metrics(metrics, arguments.kind)
    rule = Rule(
        arguments.tenant,
        INTERVALS_MS[arguments.interval],
        arguments.cluster,
        arguments.host,
        arguments.gpu,
        arguments.job,
        kinds.get(arguments.kind),
        metrics or None,
    )
    with metadata(arguments) as engine:
        rule_id = add_rule(engine, rule, now_ms())
        audit(engine, arguments.tenant, "plan_set", f"rule {rule_id}: {arguments.interval} of {_about(asdict(rule))}")
    return say(f"rule {rule_id}: every {arguments.interval} of {_about(asdict(rule))}; agents follow within seconds")


def _plan_list(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import live_rules

    with metadata(arguments) as engine:
        rules = [asdict(rule) for rule in live_rules(engine) if rule.tenant_id == arguments.tenant]
    rows = [rule | {"about": _about(rule), "every": f"{rule['interval_ms'] // 1000}s"} for rule in rules]
    return show(rows, ("rule_id", "every", "about", "metrics"), as_json=arguments.json)


def _plan_remove(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import remove_rule

    with metadata(arguments) as engine:
        if not remove_rule(engine, arguments.tenant, arguments.rule_id, now_ms()):
            raise Rejected("not_found", f"there is no rule {arguments.rule_id}", "`secondsight plan list` has them")
        audit(engine, arguments.tenant, "plan_remove", f"rule {arguments.rule_id}")
    return say(f"rule {arguments.rule_id} is removed")


def _stage(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import MetricStage, Stage, set_stage
    from secondsight.catalog.load import load_catalog

    metric = load_catalog().resolve(arguments.metric).name
    share_ppm, hosts = _hosts(arguments.hosts)
    stage = Stage(arguments.stage)
    if (stage is Stage.CANARY) != bool(arguments.hosts):
        raise Rejected("bad_stage", "a canary, and nothing else, has hosts", "say --hosts 5%, or --hosts a,b")
    with metadata(arguments) as engine:
        set_stage(engine, MetricStage(arguments.tenant, metric, stage, share_ppm, hosts), now_ms())
        audit(engine, arguments.tenant, "metric_stage", f"{metric} {stage} {arguments.hosts}")
    where = f" on {arguments.hosts}" if stage is Stage.CANARY else ""
    return say(f"{metric} is {stage}{where}; agents follow within seconds")


def _stages(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import metric_stages

    with metadata(arguments) as engine:
        stages = [stage for stage in metric_stages(engine) if stage.tenant_id == arguments.tenant]
    rows = [
        {"metric": one.metric, "stage": one.stage.value, "share": f"{one.share_ppm / 10_000:g}%", "hosts": one.hosts}
        for one in stages
    ]
    return show(rows, ("metric", "stage", "share", "hosts"), as_json=False)


def _check_metrics(metrics: Sequence[str], kind: str) -> None:
    from secondsight.catalog.load import load_catalog

    if metrics and not kind:
        raise Rejected("bad_rule", "--metrics needs --kind", "say whose metrics these are")
    for name in metrics:
        if load_catalog().get(name).kind.value != kind:
            raise Rejected("bad_rule", f"{name} is no metric of kind {kind}")


def _hosts(text: str) -> tuple[int, tuple[str, ...]]:
    """Return (hosts in a million, hosts by name) of `5%` or `a,b`."""
    if not text.endswith("%"):
        return 0, tuple(name for name in text.split(",") if name)
    try:
        share = float(text[:-1])
    except ValueError:
        share = -1.0
    if not 0 < share <= 100:
        raise Rejected("bad_stage", f"{text!r} is no share of hosts", "for example 5%")
    return round(share * 10_000), ()


def _about(rule: dict[str, Any]) -> str:
    named = [(name, rule[f"{name}_id"]) for name in ("cluster", "host", "gpu", "job") if rule[f"{name}_id"]]
    kind = f"kind {rule['kind'].value} of " if rule["kind"] else ""
    return kind + (", ".join(f"{name} {value}" for name, value in named) or f"tenant {rule['tenant_id']}")
