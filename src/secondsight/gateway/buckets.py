"""Count tokens that come at a rate, up to a size; they may be overdrawn once, so that no request is too large."""


class Bucket:
    """Tokens of one thing. Times are monotonic seconds; it is open while there are any left.

    Args:
        per_second: How many come, > 0.
        size: How many there are at most.
        now: When it begins, full.
    """

    __slots__ = ("_at", "_level", "per_second", "size")

    def __init__(self, per_second: float, size: float, now: float) -> None:
        self.per_second = per_second
        self.size = size
        self._level = size
        self._at = now

    def change(self, per_second: float, size: float, now: float) -> None:
        """Go by another rate and size from now on; what was used stays used."""
        used = self.size - self._refilled(now)
        self.per_second, self.size = per_second, size
        self._level = size - used

    def wait_seconds(self, now: float, reserve: float = 0.0) -> float:
        """Return for how long it is closed, 0 while it is open.

        Args:
            now: Monotonic seconds.
            reserve: How much further who asks may overdraw it.
        """
        level = self._refilled(now) + reserve
        return 0.0 if level > 0 else -level / self.per_second + 1e-3

    def take(self, amount: float) -> None:
        """Take tokens, whether they are there or not."""
        self._level -= amount

    def give_back(self, amount: float) -> None:
        """Put tokens back that were taken."""
        self._level += amount

    def cut(self) -> None:
        """Lose those that are beyond the size."""
        self._level = min(self._level, self.size)

    def _refilled(self, now: float) -> float:
        """Return how many there are; more than its size are left as they are."""
        full = min(self._level + (now - self._at) * self.per_second, self.size)
        self._at = now
        self._level = max(self._level, full)
        return self._level
