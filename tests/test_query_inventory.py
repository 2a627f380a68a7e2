"""What many ask for at once is read once, and a reading that fails or was forgotten is nobody else's."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from secondsight.clock import ManualClock
from secondsight.errors import Retryable
from secondsight.query.inventory import Inventory

ASKERS = 6
WAIT_SECONDS = 30.0


class Asked:
    """Askers of one key, the first of whom makes it while all the others ask."""

    def __init__(self, clock: ManualClock) -> None:
        never_asked: Any = None
        self.inventory = Inventory(never_asked, clock)
        self.made = 0
        self._begun = threading.Event()
        self._others = threading.Semaphore(0)

    def all_answers(self, first: Callable[[], str]) -> list[Any]:
        """Return what each asker got, errors among them; `first` is what the first one makes of it."""
        with ThreadPoolExecutor(ASKERS) as pool:
            leading = pool.submit(self._ask, lambda: self._slowly(first))
            assert self._begun.wait(WAIT_SECONDS)
            following = [pool.submit(self._follow) for _ in range(ASKERS - 1)]
            return [one.result(WAIT_SECONDS) for one in (leading, *following)]

    def _slowly(self, first: Callable[[], str]) -> str:
        self._begun.set()
        for _ in range(ASKERS - 1):
            assert self._others.acquire(timeout=WAIT_SECONDS)
        return first()

    def _follow(self) -> Any:
        self._others.release()
        return self._ask(lambda: "another")

    def _ask(self, make: Callable[[], str]) -> Any:
        def counted() -> str:
            self.made += 1
            return make()

        try:
            return self.inventory.remember("key", 5.0, counted)
        except Retryable as error:
            return error


def test_what_is_being_made_is_waited_for() -> None:
    asked = Asked(ManualClock(0))
    assert asked.all_answers(lambda: "first") == ["first"] * ASKERS
    assert asked.made == 1


def test_a_failure_is_that_of_whoever_met_it() -> None:
    def fail() -> str:
        raise Retryable("the store is away")

    first, *others = Asked(ManualClock(0)).all_answers(fail)
    assert isinstance(first, Retryable)
    assert others == ["another"] * (ASKERS - 1)


def test_a_reading_that_takes_longer_than_it_is_good_for_is_not_waited_for() -> None:
    clock = ManualClock(0)
    asked = Asked(clock)

    def begin_again() -> str:
        clock.sleep(5.0)
        assert asked.inventory.remember("key", 5.0, lambda: "newer") == "newer"
        return "old"

    assert asked.inventory.remember("key", 5.0, begin_again) == "old"
    assert asked.inventory.remembered("key", 5.0) == "newer"


@pytest.mark.parametrize("forget", ["forget", "forget_kind"])
def test_what_was_forgotten_while_it_was_made_is_made_anew(forget: str) -> None:
    inventory = Asked(ManualClock(0)).inventory
    key = "key" if forget == "forget" else ("kind", 1)

    def made() -> str:
        getattr(inventory, forget)("key" if forget == "forget" else "kind")
        return "before"

    assert inventory.remember(key, 5.0, made) == "before"
    assert inventory.remember(key, 5.0, lambda: "after") == "after"
