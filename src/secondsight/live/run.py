"""Keep a live window beside an api: a thread that follows the store for as long as the api runs."""

import threading
from typing import cast

from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.live.config import LiveConfig
from secondsight.live.window import Followed, LiveWindow
from secondsight.selfmetrics import SelfMetrics

STOP_SECONDS = 5.0


def open_window(
    store: Store, catalog: Catalog, clock: Clock, config: LiveConfig, metrics: SelfMetrics
) -> LiveWindow | None:
    """Return a window over a store, or None where it is not wanted, or nobody tells what is inserted there.

    A server of ClickHouse tells nothing: several processors write to it, and answers are read from it.
    """
    if not config.mib or not hasattr(store, "follow"):
        return None
    return LiveWindow(cast(Followed, store), catalog, clock, config, metrics)


class Following:
    """The thread of a window; it begins at once."""

    def __init__(self, window: LiveWindow) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=window.run, args=(self._stop,), name="live-window", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Follow no longer; may be called twice."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)
