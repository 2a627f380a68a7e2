"""Look at what the agent scrapes: whether it answers, and how much of what it says has a place."""

from collections.abc import Iterator

from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.health.words import plain, short
from secondsight.agent.scrape.reader import ScrapePlace, ScrapeReader
from secondsight.agent.scrape.target import Target
from secondsight.catalog.load import Catalog, load_catalog
from secondsight.clock import Clock
from secondsight.doctor.findings import Finding, fault, ok, skipped, warning
from secondsight.errors import SecondsightError

SLOW_SHARE = 0.5
NAMES_SHOWN = 5


def sources(config: AgentConfig, clock: Clock) -> Iterator[Finding]:
    """Scrape every target once."""
    if not config.scrape:
        yield skipped("no target is scraped (agent.scrape)")
        return
    catalog = load_catalog(config.catalog_files)
    for target in config.scrape:
        yield _one(target, config.host, catalog, clock)


def _one(target: Target, host_id: str, catalog: Catalog, clock: Clock) -> Finding:
    where = f"{target.name} ({target.url})"
    try:
        reader = ScrapeReader(target, catalog, clock, Counts(), ScrapePlace(host_id))
    except SecondsightError as error:
        return fault(f"{where}: {plain(str(error))}", "mend agent.scrape")
    begun = clock.monotonic_seconds()
    try:
        mapped = reader.scrape(clock.now_ms())
    except (SecondsightError, OSError) as error:
        remedy = (
            "is it running, and are address, path and token right? curl it from this host; what the catalogue lacks"
        )
        remedy += " is for docs/guides/adding-a-metric.md"
        return fault(f"{where}: {plain(str(error))}", remedy)
    finally:
        reader.close()
    seconds = clock.monotonic_seconds() - begun
    unknown = sum(mapped.unknown.values())
    words = f"{where}: {mapped.samples} samples have a place, {unknown} have none, in {short(seconds)}"
    if mapped.unnamed:
        remedy = 'give the names: gpus = {0 = "GPU-...", ...} in its settings (nvidia-smi -L)'
        return warning(f"{words}; GPUs of some are not named", remedy)
    if seconds > SLOW_SHARE * target.interval_ms / 1000:
        return warning(
            f"{words}, at a cadence of {short(target.interval_ms / 1000)}", "scrape it less often: interval_ms"
        )
    if not mapped.samples:
        names = ", ".join(sorted(mapped.unknown)[:NAMES_SHOWN])
        return warning(f"{words}: {names}", "see docs/guides/adding-a-metric.md, or leave this target out")
    return ok(words)
