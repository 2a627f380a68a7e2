"""Serve questions in words: what was asked becomes a reading, SQL through the guard, tables and checked sentences."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.services import Shared
from secondsight.api.sql import Asker, off_loop
from secondsight.ask.answer import Answer, Asked
from secondsight.ask.format import column_words, measure_words
from secondsight.ask.question import Question
from secondsight.ask.service import QUESTION_CHARACTERS, Told
from secondsight.ask.tables import Table
from secondsight.query.times import format_time

CONTEXT_TURNS = 10

router = APIRouter(tags=["ask"], responses={422: {"model": ErrorAnswer}, 429: {"model": ErrorAnswer}})


Turn = Annotated[str, Field(max_length=QUESTION_CHARACTERS)]


class AskBody(Shape):
    """A question, the asker's zone, and the questions of the turns before, oldest first."""

    question: Annotated[str, Field(min_length=1, max_length=QUESTION_CHARACTERS)]
    timezone: Annotated[str, Field(max_length=64)] = "UTC"
    context: Annotated[list[Turn], Field(max_length=CONTEXT_TURNS)] = Field(default_factory=list)


class AskRange(Shape):
    """A half-open range of time, with the words that meant it and the zone they were read in."""

    from_: Annotated[str, Field(alias="from")]
    to: str
    words: str
    zone: str
    assumed: bool


class AskReading(Shape):
    """How a question was read."""

    kind: str
    metrics: list[str]
    aggregation: list[str]
    dimensions: list[str]
    filter: dict[str, list[str]]
    time_range: AskRange | None
    ranges: list[AskRange]
    view: str | None
    granularity: str | None


class AskColumn(Shape):
    """A column of a table; `derived` where it was computed from the others."""

    name: str
    words: str
    unit: str
    derived: bool


class AskTable(Shape):
    """A table of an answer; the first `keys` columns say what a row is of."""

    name: str
    columns: list[AskColumn]
    keys: list[str]
    rows: list[list[str | float | int | None]]
    truncated: bool


class AskSql(Shape):
    """One statement as the planner or a model wrote it, before the guard."""

    name: str
    view: str
    sql: str


class AskAnswer(Shape):
    """What a question got.

    `treatment` is answer, clarify, refuse or unanswerable. `text` holds only numbers that are in the tables. `caveats`
    say how the question was read and what limits the answer; `dropped` counts sentences that did not pass the check.
    """

    question_id: str
    treatment: str
    text: str
    caveats: list[str]
    suggestions: list[str]
    interpretation: AskReading
    chart: str
    tables: list[AskTable]
    sql: list[AskSql]
    rule: str
    model: str
    free_sql: bool
    rounds: int
    dropped: int


@router.post("/v1/ask")
async def ask(services: Shared, scope: Asker, body: AskBody) -> AskAnswer:
    """Answer a question in words, ask back, or say why not. Every figure comes from rows that the caller may see."""
    asked = Asked(body.question, body.timezone, tuple(body.context))
    return await off_loop(lambda: shape(services.ask.ask(asked, scope)))


def shape(told: Told) -> AskAnswer:
    """Return an answer as the api gives it."""
    found = told.answer
    return AskAnswer(
        question_id=told.question_id,
        treatment=found.treatment.value,
        text=found.text,
        caveats=list(found.caveats),
        suggestions=list(found.options),
        interpretation=_reading(found.question),
        chart=found.question.chart.value,
        tables=[_table(table) for table in found.tables],
        sql=_sql(found),
        rule=found.question.rule,
        model=found.model,
        free_sql=found.free_sql,
        rounds=found.rounds,
        dropped=len(found.dropped),
    )


def _sql(found: Answer) -> list[AskSql]:
    return [AskSql(name=one.name, view=one.view, sql=one.sql) for one in found.statements]


def _reading(question: Question) -> AskReading:
    ranges = [
        AskRange(
            from_=format_time(one.from_ms),
            to=format_time(one.to_ms),
            words=one.words,
            zone=one.zone,
            assumed=one.assumed,
        )
        for one in question.ranges
    ]
    whole = question.range if question.ranges else None
    bucket = question.bucket.value if question.bucket else None
    return AskReading(
        kind=question.kind.value,
        metrics=list(dict.fromkeys(measure.metric for measure in question.measures)),
        aggregation=[measure_words(measure) for measure in question.measures],
        dimensions=[*question.dimensions, *([bucket] if bucket else [])],
        filter=_filters(question),
        time_range=None
        if whole is None
        else AskRange(
            from_=format_time(whole.from_ms),
            to=format_time(whole.to_ms),
            words=whole.words,
            zone=whole.zone,
            assumed=whole.assumed,
        ),
        ranges=ranges,
        view=question.view or None,
        granularity=bucket,
    )


def _filters(question: Question) -> dict[str, list[str]]:
    return {("not " if one.negated else "") + one.column: list(one.values) for one in question.filters}


def _table(table: Table) -> AskTable:
    columns = [
        AskColumn(name=one.name, words=column_words(one), unit=one.unit, derived=one.name in table.derived)
        for one in table.columns
    ]
    return AskTable(
        name=table.name,
        columns=columns,
        keys=list(table.keys),
        rows=[list(row) for row in table.rows],
        truncated=table.truncated,
    )
