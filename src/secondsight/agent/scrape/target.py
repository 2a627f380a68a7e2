"""What an agent is told of an exporter or engine to scrape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """One address to scrape.

    Attributes:
        name: Suffix of the collector id; letters, digits, `-`, `_`, `.`.
        url: Full address of the exposition.
        inference: True for an engine whose silence is itself a reading.
        model: AI model that the engine serves, where its samples do not say.
        remote: True if it speaks of other hosts than this one, by label.
        host_id: Host that it speaks of where no label says; "" for this host.
        gpus: Index -> UUID, for exporters that print no UUID.
        attribution: Take workloads from pod and job labels of GPU samples; off where an allocator is read itself.
        token_file: File that holds a bearer token; read anew for every request.
        timeout_seconds: For one scrape; 0 for 0.7 of the interval.
    """

    name: str
    url: str
    interval_ms: int = 1000
    inference: bool = False
    model: str = ""
    remote: bool = False
    host_id: str = ""
    gpus: Mapping[str, str] = field(default_factory=dict)
    attribution: bool = True
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_seconds: float = 0.0
    body_limit_bytes: int = 16 << 20
    sample_limit: int = 50_000
