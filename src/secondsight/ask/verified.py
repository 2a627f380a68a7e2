"""Keep verified examples: a question, its form, who looked at it and when, and the views that it was looked at with.

An example counts while the registry is the one it was verified with; a changed registry withdraws it.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from secondsight.ask.views import Views

EXAMPLES_MAXIMUM = 6


@dataclass(frozen=True, slots=True)
class Verified:
    """One example.

    Attributes:
        needs: Columns that the form rests on; it counts while a view has each of them.
        verified_by: Who looked at question, form and SQL: a role, never a person's name.
        verified_on: ISO date.
    """

    question: str
    form: Mapping[str, Any]
    needs: tuple[str, ...]
    verified_by: str
    verified_on: str


def verified_examples(views: Views, question: str) -> tuple[Verified, ...]:
    """Return the few valid examples that share most words with a question."""
    words = set(question.lower().split())
    valid = [one for one in _examples() if is_valid(one, views)]
    ranked = sorted(valid, key=lambda one: -len(words & set(one.question.lower().split())))
    return tuple(ranked[:EXAMPLES_MAXIMUM])


def is_valid(example: Verified, views: Views) -> bool:
    """Tell whether the views still have every column that an example was verified with."""
    columns = {column.name for view in views.registry.views for column in view.columns}
    return set(example.needs) <= columns


@cache
def _examples() -> Sequence[Verified]:
    found = tomllib.loads(Path(__file__).with_name("verified.toml").read_text(encoding="utf-8"))
    return tuple(
        Verified(one["question"], one["form"], tuple(one["needs"]), one["verified_by"], str(one["verified_on"]))
        for one in found["example"]
    )
