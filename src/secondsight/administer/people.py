"""Commands about people whom an issuer vouched for: listed, and erased, at the shell of the platform."""

import argparse
from dataclasses import asdict

from secondsight.administer.shell import AddCommand, Commands, audit, group, metadata, now_ms, place, say, show


def add_people(commands: Commands, add: AddCommand) -> None:
    """Add `users`."""
    users = group(commands, "users", "people who sign in by an issuer")
    listing = add(users, "list", "list people, erased ones too", _list, "secondsight users list --json")
    listing.add_argument("--json", action="store_true", help="as JSON")
    erase = add(
        users,
        "erase",
        "forget a person's name and questions, end sessions and grants, and keep the person shut out",
        _erase,
        "secondsight users erase 6b1f0c2d9e8a7b65 --tenant acme",
    )
    erase.add_argument("user_id", metavar="USER", help="as `secondsight users list` and the audit have it")
    for parser in (listing, erase):
        place(parser)


def _list(arguments: argparse.Namespace) -> int:
    from secondsight.access.people import list_people

    with metadata(arguments) as engine:
        rows = [asdict(person) for person in list_people(engine, [arguments.tenant])]
    shown = ("user_id", "name", "role", "tenant_id", "disabled_ms")
    return show(rows, shown, as_json=arguments.json)


def _erase(arguments: argparse.Namespace) -> int:
    from secondsight.access.people import erase_person

    user_id = arguments.user_id.removeprefix("user:")
    with metadata(arguments) as engine:
        erase_person(engine, user_id, [arguments.tenant], now_ms())
        audit(engine, arguments.tenant, "person_erase", user_id)
    return say(f"person {user_id} is erased and shut out; tokens of the issuer are refused within 5 s")
