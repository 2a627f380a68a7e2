"""Say what questions may cost, and give them their turns: few at once, no tenant more than its share of them."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from secondsight.clock import Clock
from secondsight.errors import Rejected

DAY_SECONDS = 86_400
_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Budget:
    """What questions in SQL may cost.

    Attributes:
        read_rows, read_bytes: Of tables, for one question.
        seconds: How long one may run.
        memory_bytes: What the engine may hold for one.
        result_bytes: Size of one result.
        threads: Threads of the engine for one.
        at_once: Questions that run at once, of everybody together; further ones wait. 0 stands for half of the cores
            of this machine, one at least, so that they leave the other half to dashboards.
        at_once_per_tenant, at_once_per_user: Questions that run or wait; further ones are refused.
        waiting: Questions of everybody that wait.
        wait_seconds: How long one waits for its turn.
        daily_questions_per_user, daily_questions_per_tenant: Questions of a day in UTC, refused ones too.
        daily_rows_per_tenant: Rows that the questions of a day may read together.
        daily_seconds_per_tenant: How long they may run together.
        rows_per_second: What one thread reads at least; it says how long a question is expected to run.
        refusals: Refusals of one caller within ten minutes that are told to the operator.
    """

    read_rows: int = 300_000_000
    read_bytes: int = 16 << 30
    seconds: float = 20.0
    memory_bytes: int = 2 << 30
    result_bytes: int = 64 << 20
    threads: int = 1
    at_once: int = 0
    at_once_per_tenant: int = 2
    at_once_per_user: int = 2
    waiting: int = 24
    wait_seconds: float = 10.0
    daily_questions_per_user: int = 5_000
    daily_questions_per_tenant: int = 20_000
    daily_rows_per_tenant: int = 100_000_000_000
    daily_seconds_per_tenant: int = 7_200
    rows_per_second: int = 10_000_000
    refusals: int = 20

    def __post_init__(self) -> None:
        """Refuse a budget that admits nothing.

        Raises:
            Rejected: `bad_config`.
        """
        positive = (self.read_rows, self.read_bytes, self.seconds, self.memory_bytes, self.result_bytes, self.threads)
        counts = (
            self.running_at_once,
            self.at_once_per_tenant,
            self.at_once_per_user,
            self.rows_per_second,
            self.refusals,
        )
        if min(*positive, *counts) <= 0:
            raise Rejected("bad_config", "every budget of questions in SQL must be positive")

    @property
    def running_at_once(self) -> int:
        """Return how many questions run at once."""
        return self.at_once or max((os.cpu_count() or 1) // 2, 1)


class OverQuota(Rejected):
    """Too much was asked for now; the same question may be asked later.

    Attributes:
        retry_after_seconds: When it may be.
    """

    def __init__(self, code: str, message: str, hint: str, retry_after_seconds: float) -> None:
        super().__init__(code, message, hint)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A question on its way, of a caller and of whose rows it may see."""

    subject: str
    tenants: str


class Turns:
    """Gives questions their turns. Safe to call from several threads.

    Of those that wait, the one goes first whose tenant has the fewest running, then the one that came first.
    """

    def __init__(self, budget: Budget, clock: Clock) -> None:
        self._budget = budget
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []

    @contextmanager
    def hold(self, turn: Turn) -> Iterator[None]:
        """Wait for a turn and keep it while the block runs.

        Raises:
            OverQuota: `too_many_at_once`: The caller or the tenant has too many on their way, or none came free.
        """
        self._begin(turn)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(turn)
                self._changed.notify_all()

    @property
    def running(self) -> int:
        """Return how many have their turn."""
        return len(self._running)

    def _begin(self, turn: Turn) -> None:
        end = self._clock.monotonic_seconds() + self._budget.wait_seconds
        with self._changed:
            self._admit(turn)
            self._waiting.append(turn)
            try:
                while not self._is_next(turn):
                    left_seconds = end - self._clock.monotonic_seconds()
                    if left_seconds <= 0:
                        raise _too_many("too many questions run now")
                    self._changed.wait(min(left_seconds, _LOOK_SECONDS))
                self._running.append(turn)
            finally:
                self._waiting.remove(turn)

    def _admit(self, turn: Turn) -> None:
        on_their_way = [*self._running, *self._waiting]
        if sum(other.subject == turn.subject for other in on_their_way) >= self._budget.at_once_per_user:
            raise _too_many("you have as many questions on their way as you may")
        if sum(other.tenants == turn.tenants for other in on_their_way) >= self._budget.at_once_per_tenant:
            raise _too_many("your tenant has as many questions on their way as it may")
        if len(self._waiting) >= self._budget.waiting:
            raise _too_many("too many questions wait already")

    def _is_next(self, turn: Turn) -> bool:
        if len(self._running) >= self._budget.running_at_once:
            return False
        running = Counter(other.tenants for other in self._running)
        return turn is min(self._waiting, key=lambda other: running[other.tenants])


def _too_many(message: str) -> OverQuota:
    return OverQuota("too_many_at_once", message, "wait for their answers, then ask again", _AGAIN_SECONDS)


def over_daily(what: str, now_ms: int) -> OverQuota:
    """Return the refusal of a question beyond what a day may cost."""
    left_seconds = DAY_SECONDS - now_ms // 1000 % DAY_SECONDS
    hint = "ask again after midnight UTC, or ask an administrator for more"
    return OverQuota("daily_quota", f"{what} of today are used up", hint, float(left_seconds))
