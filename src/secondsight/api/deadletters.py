"""Serve dead letters to operators: what was refused, why and where, with the bytes that were kept of it."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from secondsight.api.debug import Operator
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Time, next_cursor, span_of, words_of
from secondsight.api.services import Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE
from secondsight.query.deadletters import Asked, DeadLetterReader
from secondsight.query.request import parse_cursor, parse_limit
from secondsight.query.times import format_time, parse_time

ID_DIGITS = 16
STAGES = (DEAD_LETTER, QUARANTINE)

router = APIRouter(tags=["dead letters"], responses={404: {"model": ErrorAnswer}, 422: {"model": ErrorAnswer}})


class LetterAnswer(Shape):
    """Something that was not stored.

    `partition` and `offset` say where in the log its record lies, null where that is not known; it is sent again from
    there. `rows` and `values` are what the ledger counts of it. `firstTime` and `lastTime` are event times.
    """

    id: str
    tenant_id: str
    cluster_id: str
    host_id: str
    collector_id: str
    stage: str
    code: str
    message: str
    kind: str
    metric: str
    rows: int
    values: int
    first_time: str | None
    last_time: str | None
    ingest_time: str
    partition: int | None
    offset: int | None
    has_payload: bool
    replayed_time: str | None


class LetterDetail(LetterAnswer):
    """A letter with what was kept of its bytes, up to 64 KiB, as base64."""

    payload: str


class LetterPage(Shape):
    """A page of letters, newest first."""

    letters: list[LetterAnswer]
    total: int
    next_cursor: str | None


class CountOfLetters(Shape):
    """How many letters there are of one reason, and how many of them were sent again."""

    stage: str
    code: str
    letters: int
    rows: int
    values: int
    replayed: int
    oldest_time: str
    newest_time: str


class LetterCounts(Shape):
    """Letters by reason, most first."""

    reasons: list[CountOfLetters]
    total: int


class LetterParameters(PageParameters):
    """Which letters, by when they were taken in; several values are separated by commas."""

    cluster: Names = ""
    host: Names = ""
    collector: Names = ""
    stage: Annotated[
        Names, Field(description="dead_letter, or quarantine: a known metric whose value or time was bad.")
    ] = ""
    reason: Annotated[Names, Field(description="Codes, such as unknown_metric or bad_checksum.")] = ""
    metric: Names = ""
    id: Names = ""
    replayed: bool | None = None
    from_: Annotated[Time, Field(alias="from")] = "now-1d"
    to: Time = "now"


@router.get("/v1/deadletters")
def dead_letters(
    services: Shared, _caller: Operator, scope: Reader, asked: Annotated[LetterParameters, Query()]
) -> LetterPage:
    """Return letters without their bytes, newest first."""
    wanted = _asked(services, asked)
    page = DeadLetterReader(services.inventory).read(wanted, scope)
    end = wanted.offset + len(page.rows)
    return LetterPage(
        letters=[LetterAnswer(**_letter(row)) for row in page.rows],
        total=page.total,
        next_cursor=next_cursor(end, page.total),
    )


@router.get("/v1/deadletters/counts")
def counts(
    services: Shared, _caller: Operator, scope: Reader, asked: Annotated[LetterParameters, Query()]
) -> LetterCounts:
    """Return how many letters there are by reason."""
    rows = DeadLetterReader(services.inventory).count(_asked(services, asked), scope)
    found = [
        CountOfLetters(
            stage=row["stage"],
            code=row["code"],
            letters=row["letters"],
            rows=row["all_rows"],
            values=row["all_values"],
            replayed=row["replayed"],
            oldest_time=format_time(row["oldest_ms"]),
            newest_time=format_time(row["newest_ms"]),
        )
        for row in rows
    ]
    return LetterCounts(reasons=found, total=sum(one.letters for one in found))


class OneParameters(PageParameters):
    """When a letter was taken in, roughly."""

    from_: Annotated[Time, Field(alias="from")] = "now-31d"
    to: Time = "now"


@router.get("/v1/deadletters/{letter_id}")
def dead_letter(
    services: Shared,
    _caller: Operator,
    scope: Reader,
    letter_id: str,
    asked: Annotated[OneParameters, Query()],
) -> LetterDetail:
    """Return one letter with its bytes."""
    wanted = _asked(services, LetterParameters(id=letter_id, from_=asked.from_, to=asked.to), payload=True)
    page = DeadLetterReader(services.inventory).read(wanted, scope)
    if not page.rows:
        raise Rejected("not_found", f"there is no dead letter {letter_id[:64]} in that time", "name an earlier from")
    return LetterDetail(**_letter(page.rows[0]), payload=page.rows[0]["payload"])


def _asked(services: Services, asked: LetterParameters, *, payload: bool = False) -> Asked:
    now_ms = services.clock.now_ms()
    stages = words_of(asked.stage)
    if not set(stages) <= set(STAGES):
        raise Rejected("bad_stage", f"{asked.stage[:80]!r} names no stage", f"one of {', '.join(STAGES)}")
    to_ms = parse_time(asked.to, now_ms) + (asked.to == "now")
    span = span_of(parse_time(asked.from_, now_ms), to_ms)
    return Asked(
        span,
        clusters=words_of(asked.cluster),
        hosts=words_of(asked.host),
        collectors=words_of(asked.collector),
        stages=stages,
        codes=words_of(asked.reason),
        metrics=words_of(asked.metric),
        ids=_ids(asked.id),
        replayed=asked.replayed,
        payload=payload,
        limit=parse_limit(asked.limit),
        offset=parse_cursor(asked.cursor),
    )


def _ids(text: str) -> tuple[int, ...]:
    words = words_of(text)
    if not all(len(word) == ID_DIGITS and set(word) <= set("0123456789abcdef") for word in words):
        raise Rejected("bad_id", f"{text[:64]!r} is no id of a dead letter", f"{ID_DIGITS} digits, 0 to 9 and a to f")
    return tuple(int(word, 16) for word in words)


def _letter(row: Mapping[str, Any]) -> dict[str, Any]:
    place = ("tenant_id", "cluster_id", "host_id", "collector_id", "stage", "code", "message", "kind", "metric")
    is_placed = row["log_offset"] >= 0
    return {
        **{name: row[name] for name in place},
        "id": f"{row['id']:0{ID_DIGITS}x}",
        "rows": row["rows"],
        "values": row["values"],
        "first_time": format_time(row["first_ms"]) if row["first_ms"] else None,
        "last_time": format_time(row["last_ms"]) if row["last_ms"] else None,
        "ingest_time": format_time(row["taken_ms"]),
        "partition": row["log_partition"] if is_placed else None,
        "offset": row["log_offset"] if is_placed else None,
        "has_payload": row["payload_characters"] > 0,
        "replayed_time": format_time(row["replayed_ms"]) if row["replayed_ms"] else None,
    }
