"""Commands about tokens: make, list and revoke them, and let agents enrol."""

import argparse
import sys
from dataclasses import asdict

from secondsight.administer.shell import AddCommand, Commands, audit, group, metadata, now_ms, place, say, show
from secondsight.errors import Rejected

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
COUNT_MAXIMUM = 1_000_000
ROLES = ("viewer", "operator", "admin", "collector")


def add_tokens(commands: Commands, add: AddCommand) -> None:
    """Add `tokens`."""
    tokens = group(commands, "tokens", "tokens of people, programs and agents")
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
        place(parser)
    _add_join(tokens, add)


def _add_join(tokens: Commands, add: AddCommand) -> None:
    join = group(tokens, "join", "join tokens, with which agents enrol by themselves")
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
        place(parser)


def _lifetime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--expires", default="", metavar="TIME", help="12h, 90d; never without it")


def _expires_ms(text: str) -> int | None:
    if not text:
        return None
    number, unit = text[:-1], text[-1:]
    if not number.isascii() or not number.isdecimal() or unit not in UNITS or not 0 < int(number) <= COUNT_MAXIMUM:
        raise Rejected("bad_expiry", f"{text!r} is no width of time", "for example 12h or 90d")
    return now_ms() + int(number) * UNITS[unit] * 1000


def _tokens_create(arguments: argparse.Namespace) -> int:
    from secondsight.access.identity import Role
    from secondsight.access.scope import Grant
    from secondsight.access.tokens import TokenSpec, create_token

    role = Role(arguments.role)
    _require_meant(arguments)
    spec = TokenSpec(role, arguments.tenant, arguments.name, expires_ms=_expires_ms(arguments.expires))
    if role is Role.COLLECTOR:
        cluster = arguments.cluster[0] if len(arguments.cluster) == 1 else ""
        named = {"cluster_id": cluster, "region": arguments.region, "collector_pattern": arguments.collector}
        spec = TokenSpec(**{name: getattr(spec, name) for name in ("role", "tenant_id", "name", "expires_ms")} | named)
    elif role is not Role.ADMIN:
        clusters, teams = (frozenset(names) or None for names in (arguments.cluster, arguments.team))
        grants = (Grant(arguments.tenant, clusters, teams),)
        spec = TokenSpec(role, arguments.tenant, arguments.name, grants=grants, expires_ms=spec.expires_ms)
    with metadata(arguments) as engine:
        issued = create_token(engine, spec, now_ms())
        audit(engine, arguments.tenant, "token_create", f"{role} token {issued.token_id} {arguments.name!r}")
    return _show_secret(issued.secret, f"{role} token {issued.token_id}")


def _require_meant(arguments: argparse.Namespace) -> None:
    """Refuse what a token of this role would not heed: who asks for less than it gives is not to be surprised.

    Raises:
        Rejected(token_spec_invalid).
    """
    is_collector, is_admin = arguments.role == "collector", arguments.role == "admin"
    unheeded = {
        "--cluster": is_admin and arguments.cluster,
        "--team": (is_admin or is_collector) and arguments.team,
        "--region": not is_collector and arguments.region,
        "--collector": not is_collector and arguments.collector,
    }
    named = [name for name, is_wrong in unheeded.items() if is_wrong]
    if named:
        what = "reads and changes its whole tenant" if is_admin else "has no such bound"
        raise Rejected("token_spec_invalid", f"{', '.join(named)}: the role {arguments.role} {what}", "leave it out")
    if is_collector and len(arguments.cluster) > 1:
        raise Rejected("token_spec_invalid", "--cluster: a collector writes to one cluster", "make one token for each")


def _tokens_list(arguments: argparse.Namespace) -> int:
    from secondsight.access.tokens import list_tokens

    with metadata(arguments) as engine:
        records = list_tokens(engine, arguments.tenant)
    rows = [asdict(record) | {"role": record.role.value} for record in records]
    shown = ("token_id", "role", "name", "cluster_id", "collector_pattern", "expires_ms", "revoked_ms")
    return show(rows, shown, as_json=arguments.json)


def _tokens_revoke(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import revoke

    with metadata(arguments) as engine:
        what = revoke(engine, arguments.tenant, arguments.token_id, now_ms())
        audit(engine, arguments.tenant, "token_revoke", f"{what}, token {arguments.token_id}")
    return say(f"revoked: {what}; gateways refuse it within 5 s")


def _tokens_readmit(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import readmit

    with metadata(arguments) as engine:
        if not readmit(engine, arguments.tenant, arguments.collector_id, now_ms()):
            raise Rejected("not_found", f"no collector {arguments.collector_id!r} was ever enrolled")
        audit(engine, arguments.tenant, "agent_readmit", f"collector {arguments.collector_id}")
    return say(f"{arguments.collector_id} may enrol again, with a join token; tokens that it had are revoked")


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
    with metadata(arguments) as engine:
        issued = create_join_token(engine, spec, now_ms())
        audit(engine, arguments.tenant, "join_token_create", f"join token {issued.token_id} for {arguments.cluster}")
    return _show_secret(issued.secret, f"join token {issued.token_id} for cluster {arguments.cluster}")


def _join_list(arguments: argparse.Namespace) -> int:
    from secondsight.access.enrolment import list_join_tokens

    with metadata(arguments) as engine:
        rows = [asdict(record) for record in list_join_tokens(engine, arguments.tenant)]
    shown = ("token_id", "name", "cluster_id", "collector_pattern", "uses", "uses_maximum", "expires_ms", "revoked_ms")
    return show(rows, shown, as_json=arguments.json)


def _show_secret(secret: str, what: str) -> int:
    """Print a secret alone on standard output, and what it is of on the other, so that a file can be made of it."""
    sys.stderr.write(f"{what}; this secret is shown once:\n")
    return say(secret)
