"""Count how long requests take, by route and status, as a Prometheus histogram."""

from bisect import bisect_left

BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_NAME = "gateway_request_seconds"


class Durations:
    """Histograms by (route, status); used by one thread. The caller bounds how many routes there are."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._sums: dict[tuple[str, int], float] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        key = (route, status)
        if key not in self._counts:
            self._counts[key], self._sums[key] = [0] * (len(BOUNDS_SECONDS) + 1), 0.0
        self._counts[key][bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self._sums[key] += seconds

    def render(self) -> str:
        """Return the Prometheus text exposition."""
        lines = [f"# TYPE {_NAME} histogram\n"] if self._counts else []
        for (route, status), counts in sorted(self._counts.items()):
            labels = f'route="{route}",status="{status}"'
            total = 0
            for bound, count in zip((*BOUNDS_SECONDS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{_NAME}_bucket{{{labels},le="{bound}"}} {total}\n')
            lines.append(f"{_NAME}_sum{{{labels}}} {self._sums[route, status]:.9g}\n")
            lines.append(f"{_NAME}_count{{{labels}}} {total}\n")
        return "".join(lines)
