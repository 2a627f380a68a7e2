"""Answer a question of a caller: read, plan, run through the guard, tell, check. The whole path without a model.

What comes back says how the question was read, so that nobody has to guess what a figure is.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from secondsight.ask.analyses import compile_question
from secondsight.ask.compile import Statement
from secondsight.ask.diagnose import with_evidence
from secondsight.ask.followup import TURNS_MAXIMUM, with_context
from secondsight.ask.format import local_time, measure_words
from secondsight.ask.ground import grounded
from secondsight.ask.help import catalogue_table
from secondsight.ask.known import Known
from secondsight.ask.plan import Planner
from secondsight.ask.question import Bucket, Kind, Question, Stat, Treatment
from secondsight.ask.reading import Reading, read
from secondsight.ask.rules import refuse
from secondsight.ask.run import Ran, Runner, run_statements
from secondsight.ask.tables import Table
from secondsight.ask.tell import TIMES, caveats_of, is_empty, sentences_of
from secondsight.errors import Rejected

COST_CODES = frozenset(
    {"query_too_expensive", "query_too_slow", "query_too_large", "result_too_large", "too_complex", "cost_instants"}
)
"""Refusals that mean that a question was too much."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question got.

    Attributes:
        text: The sentences that passed the check, or what is asked back or refused.
        caveats: How it was read and what limits it.
        dropped: Sentences that said a number which the result does not hold.
        options: What may be asked next or instead.
        model: Name of the model that filled the form or wrote a text; "" for the planner.
        free_sql: True where a model wrote the SQL itself.
        rounds: How many repair rounds a model took.
    """

    treatment: Treatment
    text: str
    question: Question
    tables: tuple[Table, ...] = ()
    statements: tuple[Statement, ...] = ()
    caveats: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    model: str = ""
    free_sql: bool = False
    rounds: int = 0

    @property
    def result_hash(self) -> str:
        """Return a hash of the tables, for the audit."""
        text = repr([(table.columns, table.rows) for table in self.tables])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its surroundings.

    Attributes:
        context: Questions of the turns before, oldest first.
    """

    text: str
    zone: str
    context: tuple[str, ...] = ()


def answer(asked: Asked, planner: Planner, known: Known, runner: Runner, now_ms: int) -> Answer:
    """Return the answer of the planner.

    Raises:
        Rejected(bad_zone): There is no such time zone.
        Rejected, Retryable: As the runner says, where no coarser view helps.
    """
    reading = read_asked(asked, planner, known, now_ms)
    question = planner.plan(reading, now_ms)
    return answer_question(question, planner, runner, now_ms, reading)


def read_asked(asked: Asked, planner: Planner, known: Known, now_ms: int) -> Reading:
    """Return what a question and the turns before it name together."""
    turns = [*asked.context[-TURNS_MAXIMUM:], asked.text]
    return with_context([read(turn, known, planner.vocabulary, asked.zone, now_ms) for turn in turns])


def answer_question(
    question: Question, planner: Planner, runner: Runner, now_ms: int, reading: Reading | None = None
) -> Answer:
    """Return the answer to a form, whoever filled it."""
    if question.treatment is not Treatment.ANSWER:
        return Answer(question.treatment, question.message, question, options=question.options)
    if question.kind is Kind.CATALOGUE:
        table = catalogue_table(planner.views, question.options)
        text = "These are the metrics that can be asked about, with their units and what may be asked of each."
        return Answer(Treatment.ANSWER, text, question, (table,), options=_EXAMPLES)
    return _answered(question, planner, runner, now_ms, reading)


_EXAMPLES = (
    "Average utilisation by cluster last week",
    "Top 10 hottest GPUs right now",
    "Errors per host in the last 24 hours",
)


def _answered(question: Question, planner: Planner, runner: Runner, now_ms: int, reading: Reading | None) -> Answer:
    try:
        chosen, ran = _within_cost(question, planner, runner, now_ms)
    except Rejected as error:
        if error.code not in COST_CODES:
            raise
        offers = ("a shorter range", "one cluster, host or job", "a coarser bucket: per day or week")
        refused = refuse("cost", f"That is too much for one question: {error.message}.", offers)
        return Answer(Treatment.REFUSE, refused.message, refused, options=offers)
    chosen, ran = _with_rows(chosen, ran, planner, runner, now_ms)
    sentences = sentences_of(chosen, ran.tables)
    kept = grounded(sentences, ran.tables, [*_given(chosen), *_local_times(chosen, ran.tables)])
    return Answer(
        treatment=Treatment.ANSWER,
        text=" ".join(kept),
        question=chosen,
        tables=ran.tables,
        statements=ran.statements,
        caveats=(*caveats_of(chosen, ran.tables, reading, planner.views), *ran.warnings),
        dropped=tuple(one for one in sentences if one not in kept),
        options=next_questions(chosen),
    )


def _within_cost(question: Question, planner: Planner, runner: Runner, now_ms: int) -> tuple[Question, Ran]:
    """Run a question; where it is too much and a coarser view has the columns, run that, and say so."""
    try:
        return question, _run(question, planner, runner, now_ms)
    except Rejected as error:
        simpler = _without_sums(question) if error.code == "cost_instants" else None
        if simpler is not None:
            return simpler, _run(simpler, planner, runner, now_ms)
        coarser = planner.views.clusters[-1]
        if error.code not in COST_CODES or question.view in (coarser.name, planner.views.events.name):
            raise
        columns = {*question.dimensions, *(one.column for one in question.filters)}
        if any(coarser.get(column) is None for column in columns) or question.kind is not Kind.FIGURES:
            raise
        caveat = "The finer view would have been too much, so the view of 1 h windows was read."
        other = replace(question, view=coarser.name, caveats=(*question.caveats, caveat))
        return other, _run(other, planner, runner, now_ms)


def _with_rows(question: Question, ran: Ran, planner: Planner, runner: Runner, now_ms: int) -> tuple[Question, Ran]:
    """Return what was found; where there are no single seconds of a range, what its windows of 30 s say."""
    of_seconds = question.view == planner.views.raw.name and question.bucket is not Bucket.SECOND
    if not of_seconds or question.conditions or not is_empty(ran.tables):
        return question, ran
    windows = replace(question, view=planner.views.fine.name)
    found = _run(windows, planner, runner, now_ms)
    return (question, ran) if is_empty(found.tables) else (windows, found)


def _without_sums(question: Question) -> Question | None:
    """Return a question without sums over GPUs, where other figures are left."""
    rest = tuple(measure for measure in question.measures if measure.stat is not Stat.SUM)
    if not rest or len(rest) == len(question.measures):
        return None
    caveat = "The sum over GPUs was left out: there are too many instants to add up at."
    return replace(question, measures=rest, caveats=(*question.caveats, caveat))


def _run(question: Question, planner: Planner, runner: Runner, now_ms: int) -> Ran:
    statements = compile_question(question, planner.views, now_ms)
    ran = run_statements(statements, question, runner, now_ms)
    return replace(ran, tables=with_evidence(ran.tables, question)) if question.kind is Kind.SLOW_JOB else ran


def _given(question: Question) -> list[str]:
    """Return the texts of a question whose numbers a sentence may repeat."""
    words = [word for measure in question.measures for word in [measure_words(measure)]]
    values = [value for one in question.filters for value in one.values]
    return [*words, *values, *(one.words for one in question.ranges), "5m", "1s", "95th percentile"]


def _local_times(question: Question, tables: Sequence[Table]) -> list[str]:
    """Return the times of a result as the asker's clock shows them."""
    cells = (cell for table in tables for name in TIMES if table.has(name) for cell in table.cells(name))
    return [local_time(cell, question.zone) for cell in cells if cell is not None]


def next_questions(question: Question) -> tuple[str, ...]:
    """Return what may be asked next about the same figures."""
    found = []
    if question.kind is Kind.FIGURES and "host_id" not in question.dimensions:
        found.append("Break it down by host")
    if question.bucket is None and question.kind is Kind.FIGURES and len(question.measures) < 4:
        found.append("And over time, per day?")
    if not question.filtered("cluster_id") and "cluster_id" not in question.dimensions:
        found.append("Break it down by cluster")
    found.append("And the week before?" if question.ranges and question.range.seconds > 86_400 else "And last week?")
    return tuple(found[:3])
