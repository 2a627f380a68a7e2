"""Commands about grants: who may read what, given, listed and taken back at the shell of the platform."""

import argparse
from dataclasses import asdict
from typing import Any

from secondsight.administer.shell import AddCommand, Commands, audit, group, metadata, now_ms, place, say, show

SETS = ("clusters", "teams", "jobs", "model_ids")


def add_grants(commands: Commands, add: AddCommand) -> None:
    """Add `grants`."""
    grants = group(commands, "grants", "who may read what")
    give = add(
        grants,
        "add",
        "let a token or a person read a tenant, or a part of it",
        _add,
        "secondsight grants add token:6b1f0c2d9e8a7b65 --cluster cedar --without gpu_power_watts",
    )
    give.add_argument("subject", metavar="SUBJECT", help="token:ID or user:ID")
    for name, text in (("cluster", "cluster"), ("team", "team"), ("job", "job"), ("model", "AI model")):
        give.add_argument(f"--{name}", action="append", metavar="ID", help=f"only this {text}; may stand several times")
    give.add_argument("--without", action="append", default=[], metavar="METRIC", help="a metric that is not shown")
    listing = add(grants, "list", "list grants, revoked ones too", _list, "secondsight grants list --json")
    listing.add_argument("--json", action="store_true", help="as JSON")
    take = add(grants, "revoke", "take a grant back, within seconds", _revoke, "secondsight grants revoke 17")
    take.add_argument("grant_id", type=int, metavar="GRANT")
    for parser in (give, listing, take):
        place(parser)


def _add(arguments: argparse.Namespace) -> int:
    from secondsight.access.grants import checked_subject
    from secondsight.access.scope import Grant, add_grant
    from secondsight.catalog.load import load_catalog

    subject, catalog = checked_subject(arguments.subject), load_catalog()
    given = (arguments.cluster, arguments.team, arguments.job, arguments.model)
    sets = {name: None if ids is None else frozenset(ids) for name, ids in zip(SETS, given, strict=True)}
    denied = frozenset(catalog.resolve(name).name for name in arguments.without)
    with metadata(arguments) as engine:
        grant_id = add_grant(engine, subject, Grant(arguments.tenant, **sets, denied_metrics=denied), now_ms())
        audit(engine, arguments.tenant, "grant_create", f"{grant_id} to {subject}")
    return say(f"grant {grant_id}: {subject} may read tenant {arguments.tenant}")


def _list(arguments: argparse.Namespace) -> int:
    from secondsight.access.grants import list_grants

    with metadata(arguments) as engine:
        records = list_grants(engine, [arguments.tenant])
    rows: list[dict[str, Any]] = []
    for record in records:
        fields = {name: _listed(value) for name, value in asdict(record.grant).items()}
        rows.append({"grant_id": record.grant_id, "subject": record.subject, **fields, "revoked_ms": record.revoked_ms})
    shown = ("grant_id", "subject", *SETS, "denied_metrics", "revoked_ms")
    return show(rows, shown, as_json=arguments.json)


def _listed(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def _revoke(arguments: argparse.Namespace) -> int:
    from secondsight.access.grants import revoke_grant

    with metadata(arguments) as engine:
        revoke_grant(engine, arguments.grant_id, [arguments.tenant], now_ms())
        audit(engine, arguments.tenant, "grant_revoke", str(arguments.grant_id))
    return say(f"grant {arguments.grant_id} is revoked; readers follow within 5 s")
