"""Keep the record of questions, hold callers to what a day may cost, and notice who is refused often."""

import logging
from collections import deque
from threading import Lock

from sqlalchemy import Engine

from secondsight.access.audit import AuditEntry, write_entries
from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.guard.audit import DAY_MS, Recorded, file_question, forget_texts, used
from secondsight.guard.budget import Budget, over_daily
from secondsight.selfmetrics import SelfMetrics

FORGET_SECONDS = 3_600.0
STORM_SECONDS = 600.0
SUBJECTS_MAXIMUM = 10_000
STORM_ACTION = "questions_refused"
_log = logging.getLogger(__name__)


class Register:
    """Files questions in the metadata store. Safe to call from several threads."""

    def __init__(self, metadata: Engine, budget: Budget, clock: Clock, metrics: SelfMetrics) -> None:
        self._metadata = metadata
        self._budget = budget
        self._clock = clock
        self._metrics = metrics
        self._lock = Lock()
        self._refused: dict[str, deque[float]] = {}
        self._forgotten_at = -FORGET_SECONDS

    def admit(self, scope: Scope) -> None:
        """Refuse callers who have used up what a day may cost.

        Raises:
            OverQuota: `daily_quota`.
            Retryable: The metadata store is away or busy.
        """
        now_ms = self._clock.now_ms()
        since_ms = now_ms // DAY_MS * DAY_MS
        if used(self._metadata, since_ms, subject=scope.subject).questions >= self._budget.daily_questions_per_user:
            raise over_daily("your questions", now_ms)
        tenants = used(self._metadata, since_ms, tenants=tenants_of(scope))
        if (
            tenants.questions >= self._budget.daily_questions_per_tenant
            or tenants.read_rows >= self._budget.daily_rows_per_tenant
            or tenants.milliseconds >= self._budget.daily_seconds_per_tenant * 1000
        ):
            raise over_daily("the questions of your tenant", now_ms)

    def file(self, question_id: str, recorded: Recorded) -> None:
        """Put a question on record, count it, and tell the operator of callers who are refused often.

        Raises:
            Retryable: The metadata store is away or busy.
        """
        file_question(self._metadata, question_id, recorded)
        self._metrics.count("sql_questions_total", outcome=recorded.outcome, channel=recorded.channel)
        self._metrics.count("sql_read_rows_total", recorded.read_rows)
        self._metrics.count("sql_seconds_total", recorded.milliseconds / 1000)
        if recorded.rule:
            self._watch(recorded)
        self._forget(recorded.time_ms)

    def _watch(self, recorded: Recorded) -> None:
        """Count a refusal by the guard; at every so many within ten minutes the operator hears of it."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            if len(self._refused) > SUBJECTS_MAXIMUM:
                self._refused.clear()
            times = self._refused.setdefault(recorded.subject, deque())
            times.append(now)
            while times[0] < now - STORM_SECONDS:
                times.popleft()
            count = len(times)
            is_storm = count >= self._budget.refusals
            if is_storm:
                times.clear()
        if is_storm:
            self._metrics.count("sql_refusal_storms_total")
            _log.warning("%s was refused %d questions within ten minutes", recorded.subject, count)
            entry = AuditEntry(
                recorded.time_ms,
                recorded.subject,
                recorded.tenants.split(",")[0],
                STORM_ACTION,
                "many_refusals",
                f"{count} questions, the last by {recorded.rule}: {recorded.outcome}",
            )
            write_entries(self._metadata, [entry])

    def _forget(self, now_ms: int) -> None:
        now = self._clock.monotonic_seconds()
        with self._lock:
            if now - self._forgotten_at < FORGET_SECONDS:
                return
            self._forgotten_at = now
        try:
            forget_texts(self._metadata, now_ms)
        except Retryable as error:
            _log.warning("old questions keep their texts for another hour: %s", error)


def tenants_of(scope: Scope) -> str:
    """Return under which name the tenants of a scope are counted together."""
    return ",".join(scope.all_tenant_ids)
