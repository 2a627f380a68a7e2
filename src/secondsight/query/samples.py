"""Read rows of samples of a kind wherever they are: the seam at which gaps and their evidence learn of tiers."""

from collections.abc import Callable
from typing import Any, Protocol

from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.statement import Statement


class Samples(Protocol):
    """What reads seconds and windows of 30 s."""

    def rows(self, kind: EntityKind, span: Span, make: Callable[[Span], Statement]) -> list[dict[str, Any]]:
        """Return the rows of a statement about a range, which may be asked of parts of it.

        Args:
            kind: Whose tables it reads.
            span: The range; parts of it meet at edges of windows.
            make: Returns the statement for a part.

        Raises:
            Retryable: A store is away or busy.
        """
        ...


class HotSamples:
    """Reads all of it from the hot store."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def rows(self, kind: EntityKind, span: Span, make: Callable[[Span], Statement]) -> list[dict[str, Any]]:  # noqa: ARG002 - one store has all kinds
        """Return the rows of a statement about a range."""
        found: list[dict[str, Any]] = self._inventory.read(make(span)).to_pylist()
        return found
