"""Say which names of a question that found nothing are of nothing in its scope, and which ones are near.

What is out of scope and what is nowhere are told alike: only names of the scope are looked at.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from secondsight.access.scope import Scope
from secondsight.query.inventory import Inventory
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement

NEAR_AMONG_MAXIMUM = 5_000
"""Among more names, only those that begin so count as near."""
NEAR_SHOWN = 3
NAMES_SHOWN = 5
NAME_LENGTH_SHOWN = 100


def unknown_names(
    filters: Filters, inventory: Inventory, scope: Scope, collectors: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return a sentence for each name of a filter, or of a collector, that nothing in scope has.

    Raises:
        Retryable: The store is away or busy.
    """
    told: list[str] = []
    places = inventory.places(scope)
    for what, asked, column in (
        ("cluster", filters.cluster, 1),
        ("host", filters.host, 2),
        ("GPU", filters.gpu, 3),
    ):
        if asked:
            told += _sentences(what, asked, {place[column] for place in places} - {""})
    for what, asked, name in (
        ("job", filters.job, "job_id"),
        ("team", filters.team, "owner_team"),
        ("AI model", filters.model, "model_id"),
    ):
        if asked:
            rows = inventory.read(compile_owners_named(name, asked, scope)).to_pylist()
            told += _sentences(what, asked, {row["name"] for row in rows})
    if collectors:
        told += _sentences("collector", collectors, set(inventory.progress(scope)["collector_id"].to_pylist()))
    return tuple(told)


def compile_owners_named(column: str, names: Iterable[str], scope: Scope) -> Statement:
    """Return the statement for those of some names that one column of the allocations in scope holds."""
    parameters = Parameters()
    where = [f"{column} IN {parameters.bind_texts(names)}"]
    rows = ScopedTables(scope, parameters).table("allocations", [f"DISTINCT {column} AS name"], where)
    return Statement(rows[1:-1], parameters.values())


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return names that somebody who wrote this one may have meant."""
    names, meant = sorted(set(known)), name.lower()[:200]
    begun = [each for each in names if meant and each.lower().startswith(meant)][:NEAR_SHOWN]
    if begun or len(names) > NEAR_AMONG_MAXIMUM:
        return begun
    lowered = {each.lower(): each for each in names}
    return [lowered[each] for each in get_close_matches(meant, lowered, NEAR_SHOWN)]


def _sentences(what: str, asked: Iterable[str], known: set[str]) -> list[str]:
    missing = [name for name in asked if name not in known]
    few = sorted(known) if len(known) <= NAMES_SHOWN else []
    return [_sentence(what, name, near(name, known), few) for name in missing[:NAMES_SHOWN]]


def _sentence(what: str, name: str, meant: list[str], few: list[str]) -> str:
    names, word = (meant, "near") if meant else (few, "there are")
    rest = f"; {word}: {', '.join(map(repr, names))}" if names else ""
    return f"there is no {what} {name[:NAME_LENGTH_SHOWN]!r} that you may see{rest}"
