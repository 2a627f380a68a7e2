"""Commands of administration: tokens, plans, stages of metrics, debug sessions.

Tokens, plans and stages are kept in the metadata store, and these commands open it where it is: they run beside the
platform, by whoever may read its folder. Debug sessions go through the api, with a token. Nothing of the platform is
imported before its command runs.
"""

import argparse
import getpass
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondsight.clock import SystemClock
from secondsight.errors import Rejected

if TYPE_CHECKING:
    from sqlalchemy import Engine

Commands = Any
"""What `argparse` gives for sub-commands; its parsers are those of `cli`."""

AddCommand = Callable[[Commands, str, str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
INTERVALS_MS = {"1s": 1000, "30s": 30_000}
ROLES = ("viewer", "operator", "admin", "collector")


def add_tokens(commands: Commands, add: AddCommand) -> None:
    """Add `tokens`."""
    tokens = _group(commands, "tokens", "tokens of people, programs and agents")
    create = add(
        tokens,
        "create",
        "make a token and print its secret, once",
        _tokens_create,
        "secondsight tokens create --role viewer --name dashboards --expires 90d",
    )
    create.add_argument("--role", choices=ROLES, required=True)
    create.add_argument("--name", required=True, metavar="TEXT", help="what it is for; shown in lists and the audit")
    create.add_argument("--cluster", action="append", default=[], metavar="ID", help="may read it; a collector's own")
    create.add_argument("--team", action="append", default=[], metavar="ID", help="may read seconds of this team alone")
    create.add_argument("--region", default="", metavar="ID", help="of a collector")
    create.add_argument(
        "--collector", default="", metavar="PATTERN", help="a collector's ids: names by commas, * in them"
    )
    _lifetime(create)
    listing = add(tokens, "list", "list tokens, without secrets", _tokens_list, "secondsight tokens list --json")
    listing.add_argument("--json", action="store_true", help="as JSON")
    revoke = add(
        tokens,
        "revoke",
        "revoke a token, or an agent by its token, within seconds",
        _tokens_revoke,
        "secondsight tokens revoke 6b1f0c2d9e8a7b65",
    )
    revoke.add_argument("token_id", metavar="TOKEN_ID")
    readmit = add(
        tokens,
        "readmit",
        "let a revoked agent, or another machine of its name, enrol again",
        _tokens_readmit,
        "secondsight tokens readmit gpu-host-17",
    )
    readmit.add_argument("collector_id", metavar="COLLECTOR")
    for parser in (create, listing, revoke, readmit):
        _place(parser)
    _add_join(tokens, add)


def add_plans(commands: Commands, add: AddCommand) -> None:
    """Add `plan`."""
    plans = _group(commands, "plan", "how often agents sample, and which metrics")
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
        _place(parser)


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
        _place(parser)


def add_debug(commands: Commands, add: AddCommand, add_server: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add `debug`."""
    debug = _group(commands, "debug", "every second of something for a while")
    start = add(
        debug,
        "start",
        "sample a host, GPU, job or cluster every second for a while",
        _debug_start,
        "secondsight debug start --host gpu-host-17 --minutes 15 --back 10",
    )
    for name in ("cluster", "host", "gpu", "job"):
        start.add_argument(f"--{name}", default="", metavar="ID")
    start.add_argument("--minutes", type=float, default=15, metavar="N", help="how long (15)")
    start.add_argument("--back", type=float, default=0, metavar="N", help="minutes before, as far as hosts have them")
    listing = add(
        debug, "list", "list debug sessions and what is left of the budget", _debug_list, "secondsight debug list"
    )
    listing.add_argument("--json", action="store_true", help="as JSON")
    stop = add(debug, "stop", "end a debug session now", _debug_stop, "secondsight debug stop 4f2a90c1b7d3")
    stop.add_argument("session_id", metavar="SESSION")
    for parser in (start, listing, stop):
        add_server(parser)
    budget = add(
        debug,
        "budget",
        "say what a tenant's sessions may add, in values a second",
        _debug_budget,
        "secondsight debug budget 50000",
    )
    budget.add_argument("values", metavar="N|default", help="values a second, or default for the api's setting")
    _place(budget)


def _add_join(tokens: Commands, add: AddCommand) -> None:
    join = _group(tokens, "join", "join tokens, with which agents enrol by themselves")
    create = add(
        join,
        "create",
        "make a join token and print its secret, once",
        _join_create,
        "secondsight tokens join create --cluster cedar --uses 200 --expires 7d > join-token",
    )
    create.add_argument("--cluster", required=True, metavar="ID", help="that the agents belong to")
    create.add_argument("--region", default="", metavar="ID")
    create.add_argument("--name", default="join", metavar="TEXT", help="what it is for")
    create.add_argument("--collector", default="*", metavar="PATTERN", help="who may enrol: names by commas, * in them")
    create.add_argument("--uses", type=int, metavar="N", help="how many agents may enrol; any number without it")
    _lifetime(create)
    listing = add(join, "list", "list join tokens, without secrets", _join_list, "secondsight tokens join list")
    listing.add_argument("--json", action="store_true", help="as JSON")
    for parser in (create, listing):
        _place(parser)


def _group(commands: Commands, name: str, text: str) -> Commands:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="actions", metavar="ACTION", required=True, parser_class=type(parser))


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="folder of the platform (./data)"
    )
    parser.add_argument("--metadata", default="", metavar="URL", help="metadata store, where it is not in that folder")
    parser.add_argument("--tenant", default="default", metavar="ID")


def _lifetime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--expires", default="", metavar="TIME", help="12h, 90d; never without it")


@contextmanager
def _metadata(arguments: argparse.Namespace) -> "Iterator[Engine]":
    """Give the metadata store, which must be there already."""
    from secondsight.access.metadata import open_metadata

    path = arguments.data / "metadata.sqlite"
    if not arguments.metadata and not path.is_file():
        raise Rejected("bad_data", f"there is no platform in {arguments.data}", "name its folder with --data")
    engine = open_metadata(arguments.metadata or str(path))
    try:
        yield engine
    finally:
        engine.dispose()


def _audit(engine: "Engine", tenant_id: str, action: str, detail: str) -> None:
    from secondsight.access.audit import AuditEntry, write_entries

    write_entries(engine, [AuditEntry(_now_ms(), f"shell:{getpass.getuser()}", tenant_id, action, "ok", detail)])


def _now_ms() -> int:
    return SystemClock().now_ms()


def _expires_ms(text: str) -> int | None:
    if not text:
        return None
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in UNITS or not int(number):
        raise Rejected("bad_expiry", f"{text!r} is no width of time", "for example 12h or 90d")
    return _now_ms() + int(number) * UNITS[unit] * 1000


def _tokens_create(arguments: argparse.Namespace) -> int:
    from secondsight.access.identity import Role
    from secondsight.access.scope import Grant
    from secondsight.access.tokens import TokenSpec, create_token

    role = Role(arguments.role)
    spec = TokenSpec(role, arguments.tenant, arguments.name, expires_ms=_expires_ms(arguments.expires))
    if role is Role.COLLECTOR:
        cluster = arguments.cluster[0] if len(arguments.cluster) == 1 else ""
        named = {"cluster_id": cluster, "region": arguments.region, "collector_pattern": arguments.collector}
        spec = TokenSpec(**{name: getattr(spec, name) for name in ("role", "tenant_id", "name", "expires_ms")} | named)
    elif role is not Role.ADMIN:
        clusters, teams = (frozenset(names) or None for names in (arguments.cluster, arguments.team))
        grants = (Grant(arguments.tenant, clusters, teams),)
        spec = TokenSpec(role, arguments.tenant, arguments.name, grants=grants, expires_ms=spec.expires_ms)
    with _metadata(arguments) as engine:
        issued = create_token(engine, spec, _now_ms())
        _audit(engine, arguments.tenant, "token_create", f"{role} token {issued.token_id} {arguments.name!r}")
    return _show_secret(issued.secret, f"{role} token {issued.token_id}")


def _tokens_list(arguments: argparse.Namespace) -> int:
    from secondsight.access.tokens import list_tokens

    with _metadata(arguments) as engine:
        records = list_tokens(engine, arguments.tenant)
    rows = [asdict(record) | {"role": record.role.value} for record in records]
    shown = ("token_id", "role", "name", "cluster_id", "collector_pattern", "expires_ms", "revoked_ms")
    return _show(rows, shown, as_json=arguments.json)


def _tokens_revoke(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import revoke

    with _metadata(arguments) as engine:
        what = revoke(engine, arguments.tenant, arguments.token_id, _now_ms())
        _audit(engine, arguments.tenant, "token_revoke", f"{what}, token {arguments.token_id}")
    return _say(f"revoked: {what}; gateways refuse it within 5 s")


def _tokens_readmit(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import readmit

    with _metadata(arguments) as engine:
        if not readmit(engine, arguments.tenant, arguments.collector_id):
            raise Rejected("not_found", f"no collector {arguments.collector_id!r} was ever enrolled")
        _audit(engine, arguments.tenant, "agent_readmit", f"collector {arguments.collector_id}")
    return _say(f"{arguments.collector_id} may enrol again, with a join token")


def _join_create(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import JoinSpec, create_join_token

    spec = JoinSpec(
        arguments.tenant,
        arguments.name,
        arguments.cluster,
        arguments.region,
        arguments.collector,
        arguments.uses,
        _expires_ms(arguments.expires),
    )
    with _metadata(arguments) as engine:
        issued = create_join_token(engine, spec, _now_ms())
        _audit(engine, arguments.tenant, "join_token_create", f"join token {issued.token_id} for {arguments.cluster}")
    return _show_secret(issued.secret, f"join token {issued.token_id} for cluster {arguments.cluster}")


def _join_list(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import list_join_tokens

    with _metadata(arguments) as engine:
        rows = [asdict(record) for record in list_join_tokens(engine, arguments.tenant)]
    shown = ("token_id", "name", "cluster_id", "collector_pattern", "uses", "uses_maximum", "expires_ms", "revoked_ms")
    return _show(rows, shown, as_json=arguments.json)


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
    with _metadata(arguments) as engine:
        rule_id = add_rule(engine, rule, _now_ms())
        _audit(engine, arguments.tenant, "plan_set", f"rule {rule_id}: {arguments.interval} of {_about(asdict(rule))}")
    return _say(f"rule {rule_id}: every {arguments.interval} of {_about(asdict(rule))}; agents follow within seconds")


def _plan_list(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import live_rules

    with _metadata(arguments) as engine:
        rules = [asdict(rule) for rule in live_rules(engine) if rule.tenant_id == arguments.tenant]
    rows = [rule | {"about": _about(rule), "every": f"{rule['interval_ms'] // 1000}s"} for rule in rules]
    return _show(rows, ("rule_id", "every", "about", "metrics"), as_json=arguments.json)


def _plan_remove(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import remove_rule

    with _metadata(arguments) as engine:
        if not remove_rule(engine, arguments.tenant, arguments.rule_id, _now_ms()):
            raise Rejected("not_found", f"there is no rule {arguments.rule_id}", "`secondsight plan list` has them")
        _audit(engine, arguments.tenant, "plan_remove", f"rule {arguments.rule_id}")
    return _say(f"rule {arguments.rule_id} is removed")


def _stage(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import MetricStage, Stage, set_stage
    from secondsight.catalog.load import load_catalog

    metric = load_catalog().resolve(arguments.metric).name
    share_ppm, hosts = _hosts(arguments.hosts)
    stage = Stage(arguments.stage)
    if (stage is Stage.CANARY) != bool(arguments.hosts):
        raise Rejected("bad_stage", "a canary, and nothing else, has hosts", "say --hosts 5%, or --hosts a,b")
    with _metadata(arguments) as engine:
        set_stage(engine, MetricStage(arguments.tenant, metric, stage, share_ppm, hosts), _now_ms())
        _audit(engine, arguments.tenant, "metric_stage", f"{metric} {stage} {arguments.hosts}")
    where = f" on {arguments.hosts}" if stage is Stage.CANARY else ""
    return _say(f"{metric} is {stage}{where}; agents follow within seconds")


def _stages(arguments: argparse.Namespace) -> int:
    from secondsight.access.sampling import metric_stages

    with _metadata(arguments) as engine:
        stages = [stage for stage in metric_stages(engine) if stage.tenant_id == arguments.tenant]
    rows = [
        {"metric": one.metric, "stage": one.stage.value, "share": f"{one.share_ppm / 10_000:g}%", "hosts": one.hosts}
        for one in stages
    ]
    return _show(rows, ("metric", "stage", "share", "hosts"), as_json=False)


def _debug_start(arguments: argparse.Namespace) -> int:
    asked = {name: getattr(arguments, name) for name in ("cluster", "host", "gpu", "job") if getattr(arguments, name)}
    asked |= {"minutes": arguments.minutes, "backMinutes": arguments.back}
    told = _api(arguments, "POST", "/v1/debug", asked)
    _say(f"session {told['sessionId']}: every second of {told['targetKind']} {told['target']} until {told['until']}")
    for note in told["notes"]:
        _say(f"  {note}")
    return _say(f"  {told['valuesPerSecond']} values/s more; `secondsight debug stop {told['sessionId']}` ends it")


def _debug_list(arguments: argparse.Namespace) -> int:
    told = _api(arguments, "GET", "/v1/debug", None)
    if arguments.json:
        return _say(json.dumps(told, indent=2))
    shown = ("sessionId", "active", "targetKind", "target", "start", "until", "valuesPerSecond", "startedBy")
    _show(told["sessions"], shown, as_json=False)
    return _say(f"{told['freeValuesPerSecond']} of {told['budgetValuesPerSecond']} values/s are free")


def _debug_stop(arguments: argparse.Namespace) -> int:
    told = _api(arguments, "DELETE", f"/v1/debug/{arguments.session_id}", None)
    return _say(f"session {told['sessionId']} has ended")


def _debug_budget(arguments: argparse.Namespace) -> int:
    from secondsight.access.debug import set_budget

    if arguments.values != "default" and not arguments.values.isdigit():
        raise Rejected("bad_budget", f"{arguments.values!r} is no number of values a second", "a number, or default")
    values = None if arguments.values == "default" else int(arguments.values)
    with _metadata(arguments) as engine:
        set_budget(engine, arguments.tenant, values)
        _audit(engine, arguments.tenant, "debug_budget", arguments.values)
    return _say(f"debug sessions of tenant {arguments.tenant} may add {arguments.values} values/s")


def _api(arguments: argparse.Namespace, method: str, path: str, body: dict[str, Any] | None) -> Any:
    from secondsight.query.client import ApiClient, read_token

    client = ApiClient(arguments.server, read_token(arguments.token_file))
    try:
        return client.send_json(method, path, body)
    finally:
        client.close()


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


def _show_secret(secret: str, what: str) -> int:
    """Print a secret alone on standard output, and what it is of on the other, so that a file can be made of it."""
    sys.stderr.write(f"{what}; this secret is shown once:\n")
    return _say(secret)


def _show(rows: Sequence[dict[str, Any]], shown: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        return _say(json.dumps(rows, indent=2, default=str))
    table = [
        [name.removesuffix("_ms").upper() for name in shown],
        *([_text(name, row.get(name)) for name in shown] for row in rows),
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(shown))]
    for line in table:
        _say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    return 0


def _text(name: str, value: Any) -> str:
    if name in ("expires_ms", "revoked_ms") and value is not None:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)


def _say(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 0
