"""Turn values that a source repeats for ever into what happened: events of last-value gauges, changed facts.

A gauge that holds the last Xid says that there was one, not when, nor how often: it becomes one event when the value
changes. Facts become an info when they change. Both remember a bounded number of entities.
"""

import re

from secondsight.mapping.cells import plain_text
from secondsight.wire.content import Event, Info

REMEMBERED = 10_000
INFO_ATTRIBUTES_MAXIMUM = 48
INFO_VALUE_CHARACTERS = 200

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?").fullmatch


class LastValues:
    """Gives an event when a last-value gauge changes to a code; the first code seen counts as a change."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], tuple[int, float | None]] = {}
        self._first_look = True

    def look_done(self) -> None:
        """Say that one whole scrape was looked at: what was there already had happened before the agent looked."""
        self._first_look = False

    def see(self, metric: str, entity: str, part: str, code: float | None, time_ms: int) -> Event | None:
        """Return the event that this reading makes, if any; `code` is None while the source has none.

        A reading that comes after a later one says nothing of when something changed.
        """
        key = (metric, entity, part)
        told_ms, before = self._last.get(key, (time_ms, None))
        if time_ms < told_ms:
            return None
        if len(self._last) >= REMEMBERED:
            self._last.clear()
        self._last[key] = (time_ms, code)
        if code is None or code == before:
            return None
        attributes = {"via": "last_value"} | ({"before_start": "true"} if self._first_look else {})
        return Event(metric, entity, part, time_ms, int(code), attributes=attributes)


class Facts:
    """Collects facts of entities and gives an info for each whose facts changed.

    A fact that the catalogue does not name, is a number and changes is a reading in disguise: it is dropped for good
    and counted.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], dict[str, str]] = {}
        self._changed: set[tuple[str, str, str]] = set()
        self._readings: set[tuple[str, str]] = set()
        self.refused = 0

    def learn(self, metric: str, entity: str, attributes: dict[str, str], *, named: bool) -> None:
        """Take facts of one entity; others that are known of it stay.

        Args:
            metric: Info metric that they belong to.
            entity: Whom they are of.
            attributes: The facts.
            named: True if the catalogue names these facts.
        """
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        known = self._known.setdefault((metric, entity, ""), {})
        for name, value in attributes.items():
            short = plain_text(value, INFO_VALUE_CHARACTERS)
            if named or not self._is_reading(metric, known, name, short):
                self._keep((metric, entity, ""), known, name, short)

    def _is_reading(self, metric: str, known: dict[str, str], name: str, value: str) -> bool:
        before = known.get(name)
        if before is not None and before != value and _NUMBER(before) and _NUMBER(value):
            self._readings.add((metric, name))
            del known[name]
        if (metric, name) in self._readings:
            self.refused += 1
            return True
        return False

    def _keep(self, key: tuple[str, str, str], known: dict[str, str], name: str, value: str) -> None:
        before = known.get(name)
        if before != value and (before is not None or len(known) < INFO_ATTRIBUTES_MAXIMUM):
            known[name] = value
            self._changed.add(key)

    def take(self, time_ms: int) -> list[Info]:
        """Return an info for every entity whose facts changed since the last call."""
        changed = sorted(self._changed)
        self._changed.clear()
        return [Info(*key, time_ms, dict(self._known[key])) for key in changed if self._known.get(key)]
