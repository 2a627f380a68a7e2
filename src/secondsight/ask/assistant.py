"""Answer questions with the planner, and with a model where there is one and the planner does not know.

Rules decide, a model proposes: what the rules refuse is never given to a model, and what a model proposes goes through
the form, the guard and the check of figures. Each draft of a model is told to whoever keeps the record.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from secondsight.ask.answer import Answer, Asked, answer_question, read_asked
from secondsight.ask.compile import Column
from secondsight.ask.form import FORM_CHARACTERS, Draft, draft_of
from secondsight.ask.format import column_words
from secondsight.ask.ground import grounded
from secondsight.ask.known import Known
from secondsight.ask.models import LanguageModel, Message
from secondsight.ask.plan import Planner
from secondsight.ask.prompt import (
    VERSION,
    explain_prompt,
    form_prompt,
    question_message,
    repair_message,
    result_message,
)
from secondsight.ask.question import Chart, Question, Treatment
from secondsight.ask.run import Rows, Runner
from secondsight.ask.tables import Table, plain_cell
from secondsight.ask.verified import verified_examples
from secondsight.errors import Permanent, Rejected, Retryable

REPAIR_ROUNDS = 3
SENTENCES_MAXIMUM = 6
SENTENCE_CHARACTERS = 400

OPEN_RULES = frozenset({"unknown_word", "unknown_subject", "which_metric", "compare_what", "limit", "one_metric"})
"""Verdicts of the planner that say that it does not know; only these are given to a model."""

_LINK = re.compile(r"https?:|www\.|://|[<>\[\]{}|`]|@\w")
_NAME = re.compile(r"\b[A-Za-z][\w-]*[\d_][\w-]*\b")


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """One thing that a model said, for the record.

    Attributes:
        purpose: `form` or `explain`.
        round: 0 for the first draft, then 1 to `REPAIR_ROUNDS`.
        author: Model and version of the prompt.
        outcome: `ok`, or the code of why it was not taken.
    """

    purpose: str
    round: int
    author: str
    text: str
    outcome: str


Record = Callable[[DraftRecord], None]


@dataclass(frozen=True, slots=True)
class Assistant:
    """Answers questions over one set of views; safe to share between threads."""

    planner: Planner
    model: LanguageModel | None = None

    def answer(self, asked: Asked, known: Known, runner: Runner, now_ms: int, record: Record) -> Answer:
        """Return the answer to a question.

        Raises:
            Rejected(bad_zone): There is no such time zone.
            Rejected, Retryable: As the runner says.
        """
        reading = read_asked(asked, self.planner, known, now_ms)
        planned = self.planner.plan(reading, now_ms)
        if self.model is None:
            return answer_question(planned, self.planner, runner, now_ms, reading)
        if planned.treatment is Treatment.ANSWER or planned.rule not in OPEN_RULES:
            found = answer_question(planned, self.planner, runner, now_ms, reading)
        else:
            drafting = _Drafting(self.planner, self.model, asked, known, runner, now_ms, record)
            found = drafting.answer() or answer_question(planned, self.planner, runner, now_ms, reading)
        return _explained(found, self.model, known, record) if found.tables else found


@dataclass(frozen=True, slots=True)
class _Drafting:
    """The rounds of one question with a model."""

    planner: Planner
    model: LanguageModel
    asked: Asked
    known: Known
    runner: Runner
    now_ms: int
    record: Record

    def answer(self) -> Answer | None:
        """Return the first draft that holds, or None after the last round or where the model is away."""
        system = form_prompt(self.planner.views, verified_examples(self.planner.views, self.asked.text))
        messages = [question_message(self.asked.text, self.asked.context, self.asked.zone)]
        for number in range(REPAIR_ROUNDS + 1):
            try:
                text = self.model.complete(system, messages)
            except (Retryable, Permanent) as error:
                self._note(number, "", type(error).__name__.lower())
                return None
            try:
                found = self._try(text)
            except Rejected as error:
                self._note(number, text, error.code)
                messages += [Message("assistant", text[:FORM_CHARACTERS]), repair_message(error)]
                continue
            self._note(number, text, "ok")
            return replace(found, model=self.model.name, rounds=number)
        return None

    def _try(self, text: str) -> Answer:
        draft = draft_of(text, self.planner, self.known, self.asked.zone, self.now_ms)
        if draft.sql:
            return run_free(draft, self.runner)
        found = answer_question(draft.question, self.planner, self.runner, self.now_ms)
        if found.treatment is Treatment.CLARIFY and not _is_clean(found.text, [], self.known):
            return replace(found, text="Which metric, of what, over which range?")
        return found

    def _note(self, number: int, text: str, outcome: str) -> None:
        self.record(DraftRecord("form", number, f"{self.model.name} {VERSION}", text[:FORM_CHARACTERS], outcome))


def run_free(draft: Draft, runner: Runner) -> Answer:
    """Return the rows of SQL that a model wrote; units and meaning of its columns are not known.

    Raises:
        Rejected, Retryable: As the runner says.
    """
    rows = runner(draft.sql)
    table = _free_table(rows)
    question = replace(draft.question, chart=Chart.TABLE)
    text = "A model wrote the SQL for this; it ran through the guard. The table has its rows."
    caveat = "Units and meaning of the columns are the model's; read the SQL before you rely on them."
    return Answer(Treatment.ANSWER, text, question, (table,), caveats=(caveat,), free_sql=True)


def _free_table(rows: Rows) -> Table:
    cells = tuple(tuple(plain_cell(cell) for cell in row) for row in rows.rows)
    return Table("rows", tuple(Column(name) for name in rows.names), cells, truncated=rows.truncated)


def _explained(found: Answer, model: LanguageModel, known: Known, record: Record) -> Answer:
    """Return an answer in a model's words, as far as they hold; in the planner's where none do."""
    author = f"{model.name} {VERSION}"
    try:
        text = model.complete(explain_prompt(), [result_message(found.tables)])
    except (Retryable, Permanent) as error:
        record(DraftRecord("explain", 0, author, "", type(error).__name__.lower()))
        return found
    said = _sentences(text)
    held = grounded([one for one in said if _is_clean(one, found.tables, known)], found.tables, _given(found.question))
    record(DraftRecord("explain", 0, author, text[:FORM_CHARACTERS], "ok" if held else "not_grounded"))
    dropped = (*found.dropped, *(one for one in said if one not in held))
    if not held:
        return replace(found, dropped=dropped)
    return replace(found, text=" ".join(held), dropped=dropped, model=model.name)


def _sentences(text: str) -> list[str]:
    start, end = text.find("{"), text.rfind("}")
    try:
        said = json.loads(text[start : end + 1])["sentences"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if not isinstance(said, list):
        return []
    return [str(one)[:SENTENCE_CHARACTERS] for one in said[:SENTENCES_MAXIMUM]]


def _is_clean(text: str, tables: Sequence[Table], known: Known) -> bool:
    """Tell whether a text holds no link or markup, and names nothing that the caller may not see."""
    if _LINK.search(text):
        return False
    shown = {str(cell).lower() for table in tables for row in table.rows for cell in row if isinstance(cell, str)}
    headings = {column.name.lower() for table in tables for column in table.columns}
    return all(name.lower() in shown | headings | known.words() for name in _NAME.findall(text))


def _given(question: Question) -> list[str]:
    words = [column_words(Column("mean_of_x", measure=measure)) for measure in question.measures]
    return [*words, *(one.words for one in question.ranges)]
