"""Commands about tenants: list them, and say how much each may send."""

import argparse
import re
from dataclasses import asdict
from typing import Any

from secondsight.administer.shell import AddCommand, Commands, audit, group, metadata, now_ms, place, say, show
from secondsight.errors import Rejected

MULTIPLES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
DEFAULT, NONE = "default", "none"
OPTIONS = {
    "values_per_second": "values, such as 2M",
    "bytes_per_second": "bytes of bodies as they come, such as 10M",
    "burst_seconds": "so many seconds' worth may come at once",
    "active_series": "series written within the last hour",
    "new_series_per_minute": "series that were not among them",
    "weight": "share of a gateway under pressure, beside the others' weights",
}


def add_tenants(commands: Commands, add: AddCommand) -> None:
    """Add `tenants`."""
    tenants = group(commands, "tenants", "tenants, and how much each may send")
    listing = add(tenants, "list", "list tenants with their quotas", _list, "secondsight tenants list --json")
    listing.add_argument("--json", action="store_true", help="as JSON")
    quota = add(
        tenants,
        "quota",
        "show or set how much a tenant may send; gateways follow within seconds",
        _quota,
        "secondsight tenants quota --tenant acme --values-per-second 2M --active-series default",
    )
    for name, text in OPTIONS.items():
        quota.add_argument(f"--{name.replace('_', '-')}", dest=name, default="", metavar="N", help=text)
    quota.add_argument("--json", action="store_true", help="as JSON")
    create = add(
        tenants, "create", "put a tenant on record", _create, "secondsight tenants create --tenant acme --name 'Acme'"
    )
    create.add_argument("--name", default="", metavar="TEXT", help="in words")
    for parser in (listing, quota, create):
        place(parser)


def _create(arguments: argparse.Namespace) -> int:
    from secondsight.access.tenants import Tenant, add_tenant

    with metadata(arguments) as engine:
        add_tenant(engine, Tenant(arguments.tenant, arguments.name, now_ms()))
        audit(engine, arguments.tenant, "tenant_create", arguments.name)
    return say(f"tenant {arguments.tenant} is on record; `secondsight tokens create` gives it its first token")


def _list(arguments: argparse.Namespace) -> int:
    from secondsight.access.quotas import DEFAULT_QUOTA, read_quotas
    from secondsight.access.tenants import list_tenants, tenant_ids

    with metadata(arguments) as engine:
        names = {tenant.tenant_id: tenant.name for tenant in list_tenants(engine)}
        quotas, ids = read_quotas(engine), tenant_ids(engine)
    rows = [
        {"tenant": tenant_id, "name": names.get(tenant_id, ""), **asdict(quotas.get(tenant_id, DEFAULT_QUOTA))}
        for tenant_id in sorted(ids | quotas.keys())
    ]
    return _show(rows, ("tenant", "name", *OPTIONS), as_json=arguments.json)


def _quota(arguments: argparse.Namespace) -> int:
    from secondsight.access.quotas import DEFAULT_QUOTA, read_quotas, set_quota

    told = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name)}
    changes = {name: _number(name, text) for name, text in told.items()}
    with metadata(arguments) as engine:
        if changes:
            quota = set_quota(engine, arguments.tenant, changes, now_ms())
            detail = ", ".join(f"{name} {text}" for name, text in told.items())
            audit(engine, arguments.tenant, "quota_set", detail)
        else:
            quota = read_quotas(engine).get(arguments.tenant, DEFAULT_QUOTA)
    return _show([{"tenant": arguments.tenant, **asdict(quota)}], ("tenant", *OPTIONS), as_json=arguments.json)


def _number(name: str, text: str) -> int | None:
    """Return what a quota is set to, None for the default."""
    if text == DEFAULT:
        return None
    if text == NONE:
        return 0
    found = re.fullmatch(r"(\d{1,15})([kMG]?)", text, re.ASCII)
    if found is None:
        hint = "for example 500k, 2M, none or default"
        raise Rejected("bad_quota", f"--{name.replace('_', '-')}: {text!r} is no number", hint)
    return int(found[1]) * MULTIPLES[found[2]]


def _show(rows: list[dict[str, Any]], shown: tuple[str, ...], *, as_json: bool) -> int:
    if as_json:
        return show(rows, shown, as_json=True)
    if not rows:
        return say("no tenant is on record; `secondsight tokens create` gives one its first token")
    told = [{name: NONE if value == 0 else value for name, value in row.items()} for row in rows]
    return show(told, shown, as_json=False)
