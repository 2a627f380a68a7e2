"""Serve the record of questions to admins, and ask one again."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from secondsight.access.scope import Scope
from secondsight.api.administration import Admin, administered
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Time, span_of, words_of
from secondsight.api.services import Reader, Services, Shared
from secondsight.api.sql import Asker, off_loop
from secondsight.api.sqlforms import SqlResult, rows_of, told
from secondsight.errors import Rejected
from secondsight.guard.audit import Filed, Wanted, read_question, read_questions
from secondsight.query.request import parse_limit
from secondsight.query.times import format_time, parse_time

ID_DIGITS = 32
CURSOR_LENGTH_MAXIMUM = 64

router = APIRouter(tags=["administration"], responses={403: {"model": ErrorAnswer}})


class QuestionAnswer(Shape):
    """A question on record; its texts are empty 90 days later, its hashes stay."""

    question_id: str
    time: str
    subject: str
    tenants: list[str]
    channel: str
    parent_id: str
    author: str
    question: str
    sql: str
    generated: str
    outcome: str
    rule: str
    text_sha256: str
    generated_sha256: str
    result_sha256: str
    rows_estimated: int | None
    rows_read: int
    bytes_read: int
    result_rows: int
    milliseconds: int


class QuestionPage(Shape):
    """Questions, newest first."""

    questions: list[QuestionAnswer]
    next_cursor: str | None


class ReplayAnswer(Shape):
    """A question that was asked again, at the time it was asked at; `same` says whether its rows are those of then."""

    same: bool | None
    was: QuestionAnswer
    result: SqlResult


class QuestionParameters(PageParameters):
    """Which questions; several values are separated by commas."""

    subject: Names = ""
    outcome: Names = ""
    channel: Names = ""
    from_: Annotated[Time, Field(alias="from")] = "now-1d"
    to: Time = "now+1m"
    cursor: Annotated[str, Field(max_length=CURSOR_LENGTH_MAXIMUM)] = ""


@router.get("/v1/audit/questions")
def questions(
    services: Shared, _caller: Admin, scope: Reader, asked: Annotated[QuestionParameters, Query()]
) -> QuestionPage:
    """Return questions of callers who see nothing but tenants that the caller administers, newest first."""
    now_ms = services.clock.now_ms()
    span = span_of(parse_time(asked.from_, now_ms), parse_time(asked.to, now_ms))
    limit = parse_limit(asked.limit)
    wanted = Wanted(
        span.from_ms,
        span.to_ms,
        subjects=words_of(asked.subject),
        outcomes=words_of(asked.outcome),
        channels=words_of(asked.channel),
        before=_before(asked.cursor),
        limit=limit,
    )
    found = read_questions(services.metadata, administered(scope), wanted)
    last = found[-1] if len(found) == limit else None
    cursor = None if last is None else f"{last.recorded.time_ms}-{last.question_id}"
    return QuestionPage(questions=[_question(one) for one in found], next_cursor=cursor)


@router.get("/v1/audit/questions/{question_id}", responses={404: {"model": ErrorAnswer}})
def question(services: Shared, _caller: Admin, scope: Reader, question_id: str) -> QuestionAnswer:
    """Return one question."""
    return _question(_filed(services, scope, question_id))


@router.post("/v1/audit/questions/{question_id}/replay", responses={404: {"model": ErrorAnswer}})
async def replay(services: Shared, _caller: Admin, scope: Asker, question_id: str) -> ReplayAnswer:
    """Ask a question again, of the rows that it could see, at the time it was asked at."""

    def run() -> ReplayAnswer:
        filed = _filed(services, scope, question_id)
        answer = services.sql.replay(filed, scope)
        was = filed.recorded.result_sha256
        return ReplayAnswer(
            same=was == answer.result_sha256 if was else None,
            was=_question(filed),
            result=SqlResult(**told(answer), rows=rows_of(answer.rows)),
        )

    return await off_loop(run)


def _before(cursor: str) -> tuple[int, str] | None:
    if not cursor:
        return None
    time_ms, _, question_id = cursor.partition("-")
    if not (time_ms.isdecimal() and len(time_ms) < 16 and _is_id(question_id)):
        raise Rejected("bad_cursor", "the cursor is none of this list", "give nextCursor of the page before")
    return int(time_ms), question_id


def _is_id(text: str) -> bool:
    return len(text) == ID_DIGITS and set(text) <= set("0123456789abcdef")


def _filed(services: Services, scope: Scope, question_id: str) -> Filed:
    found = read_question(services.metadata, administered(scope), question_id) if _is_id(question_id) else None
    if found is None:
        raise Rejected("not_found", "there is no such question", "GET /v1/audit/questions names them")
    return found


def _question(filed: Filed) -> QuestionAnswer:
    one = filed.recorded
    return QuestionAnswer(
        question_id=filed.question_id,
        time=format_time(one.time_ms),
        subject=one.subject,
        tenants=one.tenants.split(","),
        channel=one.channel,
        parent_id=one.parent_id,
        author=one.author,
        question=one.question,
        sql=one.sql,
        generated=one.generated,
        outcome=one.outcome,
        rule=one.rule,
        text_sha256=filed.text_sha256,
        generated_sha256=filed.generated_sha256,
        result_sha256=one.result_sha256,
        rows_estimated=one.estimated_rows,
        rows_read=one.read_rows,
        bytes_read=one.read_bytes,
        result_rows=one.result_rows,
        milliseconds=one.milliseconds,
    )
