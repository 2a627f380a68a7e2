"""Hold whom to ask how a part of the agent is, for parts that only exist when they are configured.

A part registers a function that returns plain facts (texts, numbers, None, lists); it is called from another thread,
now and then, and must not wait.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

Facts = Mapping[str, Any]


class Vitals:
    """The parts of one agent that can be asked, by name. Safe to call from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, Callable[[], Facts]] = {}

    def register(self, name: str, ask: Callable[[], Facts]) -> None:
        """Add a part, or replace the one of that name."""
        with self._lock:
            self._asked[name] = ask

    def all(self) -> dict[str, Facts]:
        """Return what every part says; one that fails is left out and logged."""
        with self._lock:
            asked = dict(self._asked)
        found: dict[str, Facts] = {}
        for name, ask in asked.items():
            try:
                found[name] = ask()
            except Exception:
                logger.exception("%s cannot say how it is", name)
        return found
