"""Answer statements of untrusted authors: check, estimate, run, and put on record, whatever comes of it.

The guard is asked first, then the engine what it reads of the generated text and how much that is; only then does the
statement run, in its turn and within its budget. Nothing of the engine's words reaches the author.
"""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from secondsight.access.scope import Scope
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable, SecondsightError
from secondsight.guard.audit import OK, Filed, Recorded, new_question_id, scope_like, scope_text
from secondsight.guard.budget import Turn, Turns
from secondsight.guard.check import Plans
from secondsight.guard.coarsen import coarser_statement
from secondsight.guard.execute import Estimate, Executor
from secondsight.guard.floor import Floors
from secondsight.guard.functions import Kind
from secondsight.guard.intervals import Span
from secondsight.guard.limits import Limits
from secondsight.guard.plan import Guarded
from secondsight.guard.quality import Quality, QualityReader, caveats
from secondsight.guard.refusal import Refused
from secondsight.guard.register import Register, tenants_of
from secondsight.guard.views import registry_of
from secondsight.store.cancel import AskerGone
from secondsight.store.question import Reply

LIMITS = Limits()
TOO_WIDE = "range_too_wide"


@dataclass(frozen=True, slots=True)
class Origin:
    """How a statement came in; see `audit.Recorded`.

    Attributes:
        at_ms: What the statement takes for now, epoch ms; None for the present.
    """

    channel: str = "sql"
    parent_id: str = ""
    author: str = ""
    question: str = ""
    at_ms: int | None = None


BY_HAND = Origin()


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One column of a result; `unit` is "" where it has none, or where nobody knows."""

    name: str
    type: str
    unit: str


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """Rows, and what they are worth.

    Attributes:
        question_id: Under which it is on record.
        rows: Arrow table without dictionaries, columns as in `columns`.
        truncated: There are more rows than these.
        sql: What ran.
        reads: What was read, and of which time.
        estimated_rows: What was expected to be read, None where that is not known.
        result_sha256: Hash of the rows.
    """

    question_id: str
    columns: tuple[ResultColumn, ...]
    rows: Any
    truncated: bool
    sql: str
    reads: tuple[Span, ...]
    estimated_rows: int | None
    read_rows: int
    read_bytes: int
    milliseconds: int
    quality: Quality
    warnings: tuple[str, ...]
    result_sha256: str


@dataclass(slots=True)
class _Course:
    """What became of one statement so far; it is put on record at the end."""

    question_id: str
    guarded: Guarded | None = None
    estimate: Estimate = field(default_factory=lambda: Estimate(None))
    reply: Reply | None = None
    result_rows: int = 0
    result_sha256: str = ""
    outcome: str = OK
    rule: str = ""


class SqlService:
    """Answers statements. Safe to call from several threads; blocks while a statement waits or runs."""

    def __init__(
        self,
        executor: Executor,
        register: Register,
        quality: QualityReader,
        floors: Floors,
        catalog: Catalog,
        clock: Clock,
    ) -> None:
        self._executor = executor
        self._register = register
        self._quality = quality
        self._floors = floors
        self._clock = clock
        self._turns = Turns(executor.budget, clock)
        self._registry = registry_of(catalog)
        self._plans = Plans(self._registry, LIMITS)

    def renew(self, catalog: Catalog) -> None:
        """Offer the columns of a later catalogue from now on."""
        registry = registry_of(catalog)
        self._plans, self._registry = Plans(registry, LIMITS), registry

    def ask(self, text: str, scope: Scope, origin: Origin = BY_HAND) -> SqlAnswer:
        """Return the rows of a statement that the caller may see.

        Raises:
            Refused: The guard does not let it through.
            OverQuota: Too much is asked at once, or was today.
            Rejected: It costs too much, or the engine does not take it.
            Retryable: The store or the metadata store is away or busy, or nobody waits for the answer any more.
        """
        course = _Course(new_question_id())
        started = self._clock.monotonic_seconds()
        with self._on_record(course, text, scope, origin):
            self._register.admit(scope)
            now_ms = self._clock.now_ms() if origin.at_ms is None else origin.at_ms
            guarded, is_coarser = self._guarded(text, scope, now_ms)
            course.guarded = guarded
            quality, floors = self._quality.read(guarded.spans, scope), self._floors.caveats(guarded.spans)
            with self._turns.hold(Turn(scope.subject, tenants_of(scope))):
                self._run(course, guarded, scope, quality)
            rows = with_times(plain(course.reply.rows if course.reply else pa.table({})), guarded)
            truncated = rows.num_rows > guarded.row_cap
            rows = rows.slice(0, guarded.row_cap)
            course.result_rows, course.result_sha256 = rows.num_rows, hash_of(rows)
        return SqlAnswer(
            question_id=course.question_id,
            columns=_columns(rows, guarded),
            rows=rows,
            truncated=truncated,
            sql=guarded.sql,
            reads=guarded.spans,
            estimated_rows=course.estimate.rows,
            read_rows=course.reply.rows_read if course.reply else 0,
            read_bytes=course.reply.bytes_read if course.reply else 0,
            milliseconds=round((self._clock.monotonic_seconds() - started) * 1000),
            quality=quality,
            warnings=(
                *(_coarser(guarded) if is_coarser else ()),
                *_warnings(guarded, quality, now_ms, truncated=truncated),
                *floors,
            ),
            result_sha256=course.result_sha256,
        )

    def replay(self, filed: Filed, reader: Scope) -> SqlAnswer:
        """Run a question again for somebody who may see all that it could see, at the time it was asked at.

        Raises:
            Rejected(no_grant): They may not.
            Rejected(not_found): Its text was deleted.
            Rejected, Retryable: As `ask`.
        """
        if not filed.recorded.sql:
            raise Rejected("not_found", "the text of this question was deleted", "texts are kept for 90 days")
        scope = scope_like(filed.recorded.scope, reader)
        origin = Origin("replay", filed.question_id, at_ms=filed.recorded.time_ms)
        return self.ask(filed.recorded.sql, scope, origin)

    def _guarded(self, text: str, scope: Scope, now_ms: int) -> tuple[Guarded, bool]:
        """Return what may run instead of a statement, and whether windows are read where it names seconds.

        They are where the range is too wide for seconds and the windows give the same.
        """
        try:
            return self._plans.guard(text, scope, now_ms), False
        except Refused as error:
            coarser = coarser_statement(text, self._registry, now_ms, LIMITS) if error.code == TOO_WIDE else None
            if coarser is None:
                raise
            return self._plans.guard(coarser, scope, now_ms), True

    def _run(self, course: _Course, guarded: Guarded, scope: Scope, quality: Quality) -> None:
        wall = self._executor.wall(scope, shared=quality.shared)
        self._executor.verify(guarded, course.question_id, wall)
        course.estimate = self._executor.estimate(guarded.sql, course.question_id, wall)
        course.reply = self._executor.run(guarded.sql, course.question_id, wall)

    @contextmanager
    def _on_record(self, course: _Course, text: str, scope: Scope, origin: Origin) -> Iterator[None]:
        """Put a statement on record when the block ends, however it ends."""
        time_ms, started = self._clock.now_ms(), self._clock.monotonic_seconds()
        try:
            yield
        except SecondsightError as error:
            course.outcome, course.rule = _outcome(error)
            raise
        except BaseException:
            course.outcome = "fault"
            raise
        finally:
            milliseconds = round((self._clock.monotonic_seconds() - started) * 1000)
            self._register.file(course.question_id, _recorded(course, text, scope, origin, (time_ms, milliseconds)))


def plain(rows: Any) -> Any:
    """Return a table whose columns are whole and hold no dictionaries."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in (rows.column(place).combine_chunks() for place in range(rows.num_columns))
    ]
    return pa.table(columns, names=rows.column_names) if columns else rows


def with_times(rows: Any, guarded: Guarded) -> Any:
    """Return a table whose times are times: the engine writes those of whole seconds as numbers."""
    if len(guarded.outputs) != rows.num_columns:
        return rows
    for place, output in enumerate(guarded.outputs):
        if output.figure.kind is Kind.TIME and pa.types.is_uint32(rows.schema.types[place]):
            seconds = rows.column(place).cast(pa.int64()).cast(pa.timestamp("s", "UTC"))
            rows = rows.set_column(place, rows.column_names[place], seconds)
    return rows


def hash_of(rows: Any) -> str:
    """Return the SHA-256 of a table, in hexadecimal; equal rows in equal order have equal hashes."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _columns(rows: Any, guarded: Guarded) -> tuple[ResultColumn, ...]:
    names = rows.column_names
    units = [output.unit for output in guarded.outputs]
    units = units if len(units) == len(names) else [""] * len(names)
    kinds = [str(kind) for kind in rows.schema.types]
    return tuple(ResultColumn(*column) for column in zip(names, kinds, units, strict=True))


def _coarser(guarded: Guarded) -> tuple[str, ...]:
    names = ", ".join(guarded.views)
    return (f"the range is too wide for single seconds: read from {names}, whose windows give the same",)


def _warnings(guarded: Guarded, quality: Quality, now_ms: int, *, truncated: bool) -> tuple[str, ...]:
    more = (f"only the first {guarded.row_cap} rows are here; there are more",) if truncated else ()
    return (*more, *caveats(quality, guarded.spans, now_ms))


def _outcome(error: SecondsightError) -> tuple[str, str]:
    """Return (outcome, step of the guard) of a failure."""
    match error:
        case Refused():
            return error.code, error.rule.value
        case Rejected():
            return error.code, ""
        case AskerGone():
            return "cancelled", ""
        case Retryable():
            return "unavailable", ""
        case _:
            return "failed", ""


def _recorded(course: _Course, text: str, scope: Scope, origin: Origin, times_ms: tuple[int, int]) -> Recorded:
    return Recorded(
        time_ms=times_ms[0],
        subject=scope.subject,
        tenants=tenants_of(scope),
        scope=scope_text(scope),
        sql=text,
        channel=origin.channel,
        parent_id=origin.parent_id,
        author=origin.author,
        question=origin.question,
        generated=course.guarded.sql if course.guarded else "",
        outcome=course.outcome,
        rule=course.rule,
        estimated_rows=course.estimate.rows,
        read_rows=course.reply.rows_read if course.reply else 0,
        read_bytes=course.reply.bytes_read if course.reply else 0,
        result_rows=course.result_rows,
        result_sha256=course.result_sha256,
        milliseconds=times_ms[1],
    )
