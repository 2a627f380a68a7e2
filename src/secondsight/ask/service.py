"""Answer the questions of callers in words: names and scope from their identity, every statement through the guard.

Each question is put on record with what became of it; so is each draft of a model. Statements of a question are on
record by themselves, with the question as their parent.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import Engine

from secondsight.access.scope import Scope
from secondsight.ask.answer import Answer, Asked
from secondsight.ask.assistant import Assistant, DraftRecord
from secondsight.ask.models import LanguageModel
from secondsight.ask.names import NameReader
from secondsight.ask.plan import Planner
from secondsight.ask.question import Treatment
from secondsight.ask.run import Rows, Runner
from secondsight.ask.views import views_of
from secondsight.ask.vocabulary import load_vocabulary
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Rejected, SecondsightError
from secondsight.guard.audit import Recorded, file_question, new_question_id, scope_text
from secondsight.guard.register import tenants_of
from secondsight.guard.registry import Registry
from secondsight.guard.service import Origin, SqlAnswer
from secondsight.guard.views import registry_of
from secondsight.query.inventory import Inventory

QUESTION_CHARACTERS = 2_000
CHANNEL = "ask"


class Statements(Protocol):
    """Runs statements of untrusted authors; `guard.service.SqlService` does."""

    def ask(self, text: str, scope: Scope, origin: Origin) -> SqlAnswer:
        """Return the rows of a statement that the caller may see."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and the number under which the question is on record."""

    question_id: str
    answer: Answer


class AskService:
    """Answers questions. Safe to call from several threads; blocks while statements run or a model writes."""

    def __init__(
        self,
        statements: Statements,
        inventory: Inventory,
        metadata: Engine,
        catalog: Catalog,
        clock: Clock,
        model: LanguageModel | None = None,
    ) -> None:
        self._statements = statements
        self._names = NameReader(inventory)
        self._metadata = metadata
        self._clock = clock
        self._registry = registry_of(catalog)
        self._vocabulary = load_vocabulary(catalog)
        self._model = model
        self._assistants: dict[frozenset[str], Assistant] = {}

    def renew(self, catalog: Catalog) -> None:
        """Know the metrics of a later catalogue from now on."""
        self._vocabulary, self._registry = load_vocabulary(catalog), registry_of(catalog)
        self._assistants = {}

    def ask(self, asked: Asked, scope: Scope) -> Told:
        """Return the answer to a question, with what it was read as.

        Raises:
            Rejected(bad_question): It is empty or too long.
            Rejected(bad_zone): There is no such time zone.
            OverQuota: Too much is asked at once, or was today.
            Retryable: The store or the metadata store is away or busy.
        """
        if not asked.text.strip() or len(asked.text) > QUESTION_CHARACTERS:
            raise Rejected("bad_question", f"a question has 1 to {QUESTION_CHARACTERS} characters", "ask in a sentence")
        question_id, started_ms = new_question_id(), self._clock.now_ms()
        record = self._recorder(question_id, asked, scope)
        runner = self._runner(question_id, asked, scope)
        try:
            known = self._names.read(scope, started_ms)
            found = self._assistant(scope).answer(asked, known, runner, started_ms, record)
        except SecondsightError as error:
            self._file(question_id, asked, scope, started_ms, getattr(error, "code", "unavailable"), None)
            raise
        outcome = "ok" if found.treatment is Treatment.ANSWER else found.treatment.value
        self._file(question_id, asked, scope, started_ms, outcome, found)
        return Told(question_id, found)

    def _assistant(self, scope: Scope) -> Assistant:
        """Return the assistant that knows what a scope may read of: denied metrics are no metrics to it."""
        denied = frozenset[str]().union(*(box.denied_metrics for box in scope.boxes))
        found = self._assistants.get(denied)
        if found is None:
            planner = Planner(views_of(without(self._registry, denied)), self._vocabulary)
            found = self._assistants.setdefault(denied, Assistant(planner, self._model))
        return found

    def _runner(self, question_id: str, asked: Asked, scope: Scope) -> Runner:
        def run(sql: str) -> Rows:
            origin = Origin(CHANNEL, question_id, question=asked.text)
            return rows_of(self._statements.ask(sql, scope, origin))

        return run

    def _recorder(self, question_id: str, asked: Asked, scope: Scope) -> Callable[[DraftRecord], None]:
        def record(draft: DraftRecord) -> None:
            entry = self._entry(asked, scope, self._clock.now_ms(), draft.outcome)
            entry = replace(
                entry, parent_id=question_id, author=f"{draft.author} {draft.purpose} {draft.round}", sql=draft.text
            )
            file_question(self._metadata, new_question_id(), entry)

        return record

    def _file(
        self, question_id: str, asked: Asked, scope: Scope, started_ms: int, outcome: str, found: Answer | None
    ) -> None:
        entry = replace(
            self._entry(asked, scope, started_ms, outcome),
            rule=found.question.rule if found else "",
            author=found.model if found else "",
            result_rows=sum(len(table.rows) for table in found.tables) if found else 0,
            result_sha256=found.result_hash if found and found.tables else "",
            milliseconds=self._clock.now_ms() - started_ms,
        )
        file_question(self._metadata, question_id, entry)

    def _entry(self, asked: Asked, scope: Scope, time_ms: int, outcome: str) -> Recorded:
        return Recorded(
            time_ms=time_ms,
            subject=scope.subject,
            tenants=tenants_of(scope),
            scope=scope_text(scope),
            sql="",
            channel=CHANNEL,
            question=asked.text,
            outcome=outcome,
        )


def without(registry: Registry, denied: frozenset[str]) -> Registry:
    """Return a registry whose views hold nothing of some metrics."""
    if not denied:
        return registry
    views = tuple(
        replace(view, columns=tuple(column for column in view.columns if column.metric not in denied))
        for view in registry.views
    )
    metrics = tuple(metric for metric in registry.metrics if metric.name not in denied)
    return replace(registry, views=views, metrics=metrics)


def rows_of(found: SqlAnswer) -> Rows:
    """Return the rows of a statement."""
    names = tuple(column.name for column in found.columns)
    columns = [found.rows.column(place).to_pylist() for place in range(len(names))]
    return Rows(names, tuple(zip(*columns, strict=True)), found.truncated, found.warnings)
