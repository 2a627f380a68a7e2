"""Follow a store in this process, as an api follows one in another."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.live.config import LiveConfig
from secondsight.live.window import LiveWindow
from secondsight.selfmetrics import SelfMetrics

WIDE = LiveConfig(mib=256, minutes=20.0)


class Near:
    """A store that its owner follows itself."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def follow(self, wanted: Any) -> Iterator[Any]:
        return iter(self._store.tail.follow(wanted))

    def position(self) -> tuple[str, int]:
        return self._store.tail.position

    def query(self, *args: Any) -> Any:
        return self._store.query(*args)

    def insert(self, table: str, data: Any) -> None:
        self._store.insert(table, data)

    def close(self) -> None:
        pass


@contextmanager
def following(
    store: Any, clock: Clock, config: LiveConfig = WIDE, metrics: SelfMetrics | None = None
) -> Iterator[LiveWindow]:
    """Give a window that follows a store from another thread."""
    window = LiveWindow(store, load_catalog(), clock, config, metrics or SelfMetrics())
    stop = threading.Event()
    thread = threading.Thread(target=window.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield window
    finally:
        stop.set()
        thread.join(10)


def settled(window: LiveWindow, table: str = "gpu_1s", tries: int = 200) -> LiveWindow:
    """Wait until a window holds all that its store has, and return it."""
    for _ in range(tries):
        window.settle()
        if window.table(table) is not None:
            return window
        threading.Event().wait(0.02)
    raise AssertionError("the window was not filled")
