"""Look at what an api keeps of the newest minutes in memory, by what it shows on `/metrics`."""

from collections.abc import Iterator

from secondsight.agent.health.words import size, width
from secondsight.clock import Clock
from secondsight.doctor.figures import figures, total
from secondsight.doctor.findings import Finding, ok, warning
from secondsight.errors import SecondsightError


def live_window(address: str, clock: Clock) -> Iterator[Finding]:
    """Tell how far back an api answers from memory; whether it answers at all is said elsewhere."""
    try:
        shown = figures(address, clock)
    except SecondsightError:
        return
    if "live_seconds" not in shown:
        yield ok("the newest minutes are read from the store: there is no window in memory")
        return
    seconds, held = total(shown, "live_seconds"), total(shown, "live_bytes")
    if not seconds:
        yield warning("the newest minutes are not in memory, they are read from the store", "see the api's log")
    elif total(shown, "live_narrow"):
        words = f"{width(seconds)} are in memory ({size(held)}), of metrics of class P0 alone"
        yield warning(words, "api.live.mib sets how much memory the newest minutes may take")
    else:
        yield ok(f"{width(seconds)} are in memory ({size(held)})")
