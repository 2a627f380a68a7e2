"""Put every question on record: who asked what, what came of it, and what it cost. Nothing is ever changed.

Texts are kept for `TEXT_DAYS`, in a table of their own, so that they can be deleted; their hashes are kept for ever.
"""

import hashlib
import json
import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select

from secondsight.access.metadata import QUESTION_TEXTS, QUESTIONS, reading, writing
from secondsight.access.scope import Scope
from secondsight.errors import Rejected

TEXT_DAYS = 90
DAY_MS = 86_400_000
OK = "ok"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One question, refused ones too.

    Attributes:
        tenants: Whose rows the caller may see, sorted, by commas.
        scope: All of what the caller may see, as `scope_text` writes it.
        channel: `sql`, `ask` or `replay`: how it came in.
        parent_id: Question that it is a draft or a repetition of, or "".
        author: Model and version of the prompt that wrote it, or "" for the caller.
        question: What was asked in words, or "".
        sql: What was sent.
        generated: What the guard made of it, or "".
        outcome: `ok`, or the code of the refusal.
        rule: Step of the guard that refused, or "".
        estimated_rows: What it was expected to read, None where that is not known.
        result_sha256: Hash of the rows, "" where there are none.
    """

    time_ms: int
    subject: str
    tenants: str
    scope: str
    sql: str
    channel: str = "sql"
    parent_id: str = ""
    author: str = ""
    question: str = ""
    generated: str = ""
    outcome: str = OK
    rule: str = ""
    estimated_rows: int | None = None
    read_rows: int = 0
    read_bytes: int = 0
    result_rows: int = 0
    result_sha256: str = ""
    milliseconds: int = 0


@dataclass(frozen=True, slots=True)
class Filed:
    """A question as it was put on record; its texts are "" once they were deleted."""

    question_id: str
    text_sha256: str
    generated_sha256: str
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which questions; empty filters admit all. `before` is the time and id of the last one of the page before.

    Attributes:
        from_ms, to_ms: Half open, epoch ms.
    """

    from_ms: int
    to_ms: int
    subjects: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    parent_id: str = ""
    before: tuple[int, str] | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Usage:
    """What some questions cost together."""

    questions: int
    read_rows: int
    milliseconds: int


def new_question_id() -> str:
    """Return an id that no other question has; it is the marker by which the engine knows it as well."""
    return uuid.uuid4().hex


def file_question(metadata: Engine, question_id: str, recorded: Recorded) -> None:
    """Put a question on record.

    Raises:
        Retryable: The metadata store is away or busy.
    """
    values = asdict(recorded)
    texts = {name: values.pop(name) for name in _TEXTS}
    hashes = {"text_sha256": digest(texts["sql"] or texts["question"]), "generated_sha256": digest(texts["generated"])}
    with writing(metadata) as connection:
        connection.execute(insert(QUESTIONS).values(question_id=question_id, **values, **hashes))
        connection.execute(insert(QUESTION_TEXTS).values(question_id=question_id, time_ms=recorded.time_ms, **texts))


def read_questions(metadata: Engine, tenant_ids: Collection[str], wanted: Wanted) -> tuple[Filed, ...]:
    """Return questions of callers who may see nothing but some tenants, newest first.

    Raises:
        Retryable: The metadata store is away or busy.
    """
    table = QUESTIONS.c
    named = ((table.subject, wanted.subjects), (table.outcome, wanted.outcomes), (table.channel, wanted.channels))
    asked = select(QUESTIONS, *(QUESTION_TEXTS.c[name] for name in _TEXTS))
    asked = asked.outerjoin(QUESTION_TEXTS, QUESTION_TEXTS.c.question_id == table.question_id)
    asked = asked.where(table.time_ms >= wanted.from_ms, table.time_ms < wanted.to_ms)
    asked = asked.where(*(column.in_(values) for column, values in named if values))
    if wanted.parent_id:
        asked = asked.where(table.parent_id == wanted.parent_id)
    if wanted.before is not None:
        time_ms, question_id = wanted.before
        older = (table.time_ms < time_ms) | ((table.time_ms == time_ms) & (table.question_id < question_id))
        asked = asked.where(older)
    asked = asked.order_by(table.time_ms.desc(), table.question_id.desc())
    mine = frozenset(tenant_ids)
    with reading(metadata) as connection:
        rows = connection.execute(asked).mappings()
        found = (_filed(dict(row)) for row in rows if mine >= set(row["tenants"].split(",")))
        return tuple(islice(found, wanted.limit))


def read_question(metadata: Engine, tenant_ids: Collection[str], question_id: str) -> Filed | None:
    """Return one question of callers who may see nothing but some tenants.

    Raises:
        Retryable: The metadata store is away or busy.
    """
    asked = select(QUESTIONS, *(QUESTION_TEXTS.c[name] for name in _TEXTS))
    asked = asked.outerjoin(QUESTION_TEXTS, QUESTION_TEXTS.c.question_id == QUESTIONS.c.question_id)
    with reading(metadata) as connection:
        row = connection.execute(asked.where(QUESTIONS.c.question_id == question_id)).mappings().first()
    if row is None or not frozenset(tenant_ids) >= set(row["tenants"].split(",")):
        return None
    return _filed(dict(row))


def used(metadata: Engine, since_ms: int, *, subject: str = "", tenants: str = "") -> Usage:
    """Return what was asked since a time, by one caller or by all that may see the same tenants.

    Raises:
        Retryable: The metadata store is away or busy.
    """
    table = QUESTIONS.c
    sums = (func.coalesce(func.sum(column), 0) for column in (table.read_rows, table.milliseconds))
    asked = select(func.count(), *sums).where(table.time_ms >= since_ms)
    asked = asked.where(table.subject == subject) if subject else asked.where(table.tenants == tenants)
    with reading(metadata) as connection:
        questions, rows, milliseconds = connection.execute(asked).one()
    return Usage(int(questions), int(rows), int(milliseconds))


def forget_texts(metadata: Engine, now_ms: int) -> int:
    """Delete the texts of old questions and return how many there were.

    Raises:
        Retryable: The metadata store is away or busy.
    """
    old = delete(QUESTION_TEXTS).where(QUESTION_TEXTS.c.time_ms < now_ms - TEXT_DAYS * DAY_MS)
    with writing(metadata) as connection:
        return connection.execute(old).rowcount


def scope_text(scope: Scope) -> str:
    """Return everything of a scope that decides what may be read, as JSON."""
    return json.dumps([{name: _plain(getattr(box, name)) for name in _FIELDS} for box in scope.boxes])


def scope_like(text: str, reader: Scope) -> Scope:
    """Return the scope that was written down, for somebody else who may see all of it.

    Raises:
        Rejected(no_grant): They may not.
    """
    boxes = []
    for fields_of in json.loads(text):
        sets: dict[str, Any] = {name: _names(fields_of[name]) for name in _SETS}
        denied = frozenset(fields_of["denied_metrics"])
        box = Scope(
            tuple(fields_of["tenant_ids"]), **sets, denied_metrics=denied, subject=reader.subject, role=reader.role
        )
        if not any(_holds(mine, box) for mine in reader.boxes):
            raise Rejected("no_grant", "your grants do not hold all that this question could see")
        boxes.append(box)
    return replace(boxes[0], others=tuple(boxes[1:]))


def _holds(outer: Scope, inner: Scope) -> bool:
    sets = ((getattr(outer, name), getattr(inner, name)) for name in _SETS)
    return (
        set(outer.tenant_ids) >= set(inner.tenant_ids)
        and outer.denied_metrics <= inner.denied_metrics
        and all(mine is None or (theirs is not None and mine >= theirs) for mine, theirs in sets)
    )


def _names(values: Collection[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)


def _plain(values: Collection[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, "" of none."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else ""


_SETS = ("clusters", "teams", "jobs", "model_ids")
_FIELDS = ("tenant_ids", *_SETS, "denied_metrics")
_TEXTS = ("question", "sql", "generated")
_NAMES = tuple(one.name for one in fields(Recorded))


def _filed(row: dict[str, Any]) -> Filed:
    values = {name: row[name] for name in _NAMES} | {name: row[name] or "" for name in _TEXTS}
    return Filed(row["question_id"], row["text_sha256"], row["generated_sha256"], Recorded(**values))
