"""Turn the size of a site into what it costs: values a second, bytes and files of each tier, cores, machines.

Every constant is a measurement of `capacity.toml`, with its source. The sums here say how they scale, nothing else.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from secondsight.errors import Rejected

DATA = Path(__file__).with_name("capacity.toml")
DAY_SECONDS = 86_400
MIB = 1 << 20
WIDTHS_SECONDS = {"30s": 30, "5m": 300, "1h": 3_600, "1d": DAY_SECONDS}
"""Resolution of stored rollups -> seconds."""
LAKE_DAYS: dict[str, float | None] = {"1s": 400, "30s": 400, "5m": 400, "1h": None, "1d": None}
"""What the lake keeps where nothing else is said, days; None is for ever."""
HOT_DAYS: dict[str, float | None] = {"1s": 14, "30s": 30, "5m": 180, "1h": 1_095, "1d": None}
HORIZON_DAYS = 1_095
"""What is kept for ever is counted up to here."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One measured figure."""

    value: float
    unit: str
    meaning: str
    source: str


@dataclass(frozen=True, slots=True)
class Site:
    """What is planned for.

    Attributes:
        metrics: Values of one GPU at one tick; those of its host are counted on top.
        clusters: The lake has files of its own for each.
        hot_days: Resolution -> days in the hot store, None for ever.
        lake: Whether rows go to the lake too.
    """

    hosts: int
    gpus_per_host: int = 8
    metrics: int = 100
    interval_seconds: float = 1.0
    clusters: int = 1
    hot_days: Mapping[str, float | None] | None = None
    lake: bool = True

    def __post_init__(self) -> None:
        """Refuse a site of nothing."""
        for name in ("hosts", "gpus_per_host", "metrics", "interval_seconds", "clusters"):
            if getattr(self, name) <= 0:
                raise Rejected("bad_site", f"{name.replace('_', ' ')} must be more than 0", "for example --hosts 1000")

    @property
    def gpus(self) -> int:
        """Return how many GPUs there are."""
        return self.hosts * self.gpus_per_host

    def days(self, resolution: str) -> float | None:
        """Return how long the hot store keeps rows of a resolution."""
        return {**HOT_DAYS, **(self.hot_days or {})}[resolution]


@dataclass(frozen=True, slots=True)
class Tier:
    """One resolution in one store.

    Attributes:
        kept_days: None is for ever; `total_bytes` counts three years of it then.
        files_a_day: Parts or Parquet files that are left of a day after merging.
    """

    tier: str
    resolution: str
    rows_a_day: float
    bytes_a_day: float
    kept_days: float | None
    total_bytes: float
    files_a_day: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a site costs.

    Attributes:
        cores: Stage -> processor cores that it uses on average.
        memory_bytes: Part -> bytes of one process of it.
        machines: Part -> how many machines or processes, at most `utilisation` busy.
        drivers: (what, share of all bytes or cores), the largest first.
    """

    gpus: int
    values_a_second: float
    requests_a_second: float
    ingest_bytes_a_second: float
    tiers: tuple[Tier, ...]
    log_bytes: float
    cores: Mapping[str, float]
    memory_bytes: Mapping[str, float]
    machines: Mapping[str, int]
    kafka_partitions: int
    drivers: tuple[tuple[str, float], ...]

    @property
    def total_cores(self) -> float:
        """Return the cores of all stages."""
        return sum(self.cores.values())


def read_constants(path: Path = DATA) -> dict[str, Constant]:
    """Return the measured constants by name."""
    return {name: Constant(**entry) for name, entry in tomllib.loads(path.read_text()).items()}


def capacity(site: Site, constants: Mapping[str, Constant]) -> Capacity:
    """Return what a site costs by some constants."""
    figures = {name: constant.value for name, constant in constants.items()}
    values = _values_a_second(site, figures)
    tiers = (*_hot(site, figures, values), *(_lake(site, figures, values) if site.lake else ()))
    cores = _cores(site, figures, values)
    log_bytes = values * figures["wire_bytes_per_value"] * figures["log_hours"] * 3_600
    partitions = _partitions(values, figures)
    machines = _machines(site, figures, cores, tiers, partitions)
    return Capacity(
        gpus=site.gpus,
        values_a_second=values,
        requests_a_second=site.hosts / figures["seconds_per_request"],
        ingest_bytes_a_second=values * figures["wire_bytes_per_value"],
        tiers=tiers,
        log_bytes=log_bytes * (figures["kafka_replicas"] if machines["kafka brokers"] else 1),
        cores=cores,
        memory_bytes=_memory(site, figures, values, machines),
        machines=machines,
        kafka_partitions=partitions if machines["kafka brokers"] else 0,
        drivers=_drivers(tiers, cores),
    )


def _values_a_second(site: Site, figures: Mapping[str, float]) -> float:
    return site.hosts * (site.gpus_per_host * site.metrics + figures["host_values"]) / site.interval_seconds


def _hot(site: Site, figures: Mapping[str, float], values: float) -> list[Tier]:
    raw = _raw("hot", site, values * figures["hot_bytes_per_value"], site.days("1s"), figures["parts_per_partition"])
    files = {"30s": figures["parts_per_partition"], "5m": figures["parts_per_partition"] / 30}
    files |= {"1h": figures["parts_per_partition"] / 30, "1d": figures["parts_per_partition"] / 365}
    rollups = [
        _rollup("hot", site, name, figures[f"hot_rollup_bytes_{name}"], site.days(name), files[name])
        for name in WIDTHS_SECONDS
    ]
    return [raw, *rollups]


def _lake(site: Site, figures: Mapping[str, float], values: float) -> list[Tier]:
    rate = values * figures["lake_bytes_per_value"]
    files = max(1.0, rate * DAY_SECONDS / site.clusters / (figures["lake_file_mib"] * MIB)) * site.clusters
    tiers = [_raw("lake", site, rate, LAKE_DAYS["1s"], files)]
    for name in WIDTHS_SECONDS:
        row = figures[f"hot_rollup_bytes_{name}"] * figures["lake_rollup_ratio"]
        made = _rollup("lake", site, name, row, LAKE_DAYS[name], float(site.clusters))
        tiers.append(made)
    return tiers


def _raw(tier: str, site: Site, bytes_a_second: float, days: float | None, files: float) -> Tier:
    rows = (site.gpus + site.hosts) / site.interval_seconds * DAY_SECONDS
    return _tier(tier, "1s", rows, bytes_a_second * DAY_SECONDS, days, files)


def _rollup(tier: str, site: Site, name: str, bytes_per_metric: float, days: float | None, files: float) -> Tier:
    """Return one resolution of rollups; `bytes_per_metric` are those of one metric in one row."""
    rows = site.gpus * DAY_SECONDS / WIDTHS_SECONDS[name]
    return _tier(tier, name, rows, rows * site.metrics * bytes_per_metric, days, files)


def _tier(tier: str, name: str, rows: float, bytes_a_day: float, days: float | None, files: float) -> Tier:
    total = bytes_a_day * (HORIZON_DAYS if days is None else days)
    return Tier(tier, name, rows, bytes_a_day, days, total, files)


def _cores(site: Site, figures: Mapping[str, float], values: float) -> dict[str, float]:
    """Return stage -> cores."""
    stages = ["gateway", "processor", "inserts", "merges", "rollups"] + (["lake"] if site.lake else [])
    return {stage: values * figures[f"{stage}_ns_per_value"] / 1e9 for stage in stages}


def _partitions(values: float, figures: Mapping[str, float]) -> int:
    """Return partitions of the log: each processor takes several, so that a lost one's are shared out evenly."""
    processors = _processors(values, figures)
    return 1 << math.ceil(math.log2(max(8, processors * figures["partitions_per_processor"])))


def _processors(values: float, figures: Mapping[str, float]) -> int:
    """Return processes: one is a thread of decoding and windows, which has one core."""
    return math.ceil(values * figures["processor_ns_per_value"] / 1e9 / figures["utilisation"])


def _machines(
    site: Site, figures: Mapping[str, float], cores: Mapping[str, float], tiers: tuple[Tier, ...], partitions: int
) -> dict[str, int]:
    """Return part -> count; one machine holds everything up to its share of cores and disk."""
    busy = sum(cores.values()) / figures["utilisation"]
    hot_bytes = sum(tier.total_bytes for tier in tiers if tier.tier == "hot")
    disks = hot_bytes / (figures["store_disk_tib"] * MIB * MIB)
    if busy <= figures["machine_cores"] / 2 and disks <= 1 and site.gpus <= figures["one_machine_gpus"]:
        return {"machines with everything": 1, "kafka brokers": 0}
    store = (cores["inserts"] + cores["merges"] + figures["query_cores"]) / figures["utilisation"]
    shards = max(1, math.ceil(store / figures["machine_cores"]), math.ceil(disks))
    log_bytes = (
        partitions and cores["gateway"] / figures["gateway_ns_per_value"] * 1e9 * figures["wire_bytes_per_value"]
    )
    return {
        "gateways": max(2, math.ceil(cores["gateway"] / figures["utilisation"])),
        "processors": max(2, math.ceil(cores["processor"] / figures["utilisation"])),
        "rollup stages": max(1, math.ceil(cores["rollups"] / figures["utilisation"])),
        "lake writers": max(1, math.ceil(cores["lake"] / figures["utilisation"])) if site.lake else 0,
        "store shards": shards,
        "store machines": shards * round(figures["store_replicas"]),
        "kafka brokers": max(3, math.ceil(log_bytes * figures["kafka_replicas"] / (figures["broker_mib"] * MIB))),
        "api processes": 2,
    }


def _memory(site: Site, figures: Mapping[str, float], values: float, machines: Mapping[str, int]) -> dict[str, float]:
    """Return part -> bytes of one process: what it takes at rest, and its share of open windows."""
    processors = machines.get("processors", 1)
    windows = values * figures["window_seconds"] * figures["window_bytes_per_value"] / processors
    entities = site.gpus * figures["processor_bytes_per_gpu"] / processors
    return {
        "gateway": figures["gateway_mib"] * MIB + site.hosts * figures["gateway_bytes_per_host"],
        "processor": figures["processor_mib"] * MIB + windows + entities,
        "api": figures["api_mib"] * MIB,
    }


def _drivers(tiers: tuple[Tier, ...], cores: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return what costs most: shares of all stored bytes, and of all cores."""
    stored = sum(tier.total_bytes for tier in tiers)
    shares = [(f"bytes: {tier.resolution} rows in the {tier.tier} tier", tier.total_bytes / stored) for tier in tiers]
    shares += [(f"cores: {stage}", used / sum(cores.values())) for stage, used in cores.items()]
    return tuple(sorted(shares, key=lambda share: -share[1]))


def as_rows(tiers: tuple[Tier, ...]) -> list[dict[str, object]]:
    """Return tiers as rows for a table or JSON."""
    return [{field.name: getattr(tier, field.name) for field in fields(Tier)} for tier in tiers]
