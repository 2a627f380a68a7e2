"""Read from the kubelet of this node which pod has which GPU.

While the kubelet is away the read fails, is counted (`read_failed:kubernetes`), and ends nothing: pods go on without
it. Settings that name no list of pods leave two pods of one GPU ambiguous until one of them is gone.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from secondsight.agent.client.connection import Connection
from secondsight.agent.client.secret import read_secret
from secondsight.agent.jobs.checkpoint import checkpoint_entries, checkpoint_pods
from secondsight.agent.jobs.devices import Gpu, device_of
from secondsight.agent.jobs.podlist import pod_list
from secondsight.agent.jobs.podresources import PodResourcesClient
from secondsight.agent.jobs.pods import FoundPods, Naming, PodFacts, PodKey, holdings_of
from secondsight.agent.jobs.report import AllocationReport, Findings, Means, Station
from secondsight.agent.jobs.settings import KubernetesConfig
from secondsight.contracts import Tick
from secondsight.errors import Retryable, SecondsightError
from secondsight.mapping.intervals import Listing

logger = logging.getLogger(__name__)

CALL_SHARE = 0.3
"""Share of the interval that one call may take; there are up to three."""
POD_LIST_MAXIMUM_BYTES = 32 << 20
CHECKPOINT_MAXIMUM_BYTES = 16 << 20
ALLOCATABLE_EVERY_TICKS = 12


class KubernetesReader:
    """Reads one kubelet; see `contracts.Reader`."""

    def __init__(self, config: KubernetesConfig, station: Station, means: Means) -> None:
        """Prepare; nothing is connected yet.

        Raises:
            Rejected: `missing_package`, `bad_url`.
        """
        self.name = "kubernetes"
        self.interval_ms = config.interval_ms
        self._config = config
        self._naming = naming_of(config)
        self._means = means
        self._entity = f"kubelet/{station.host_id}"
        self._report = AllocationReport("kubernetes", config.interval_ms, station, means)
        self._timeout_seconds = CALL_SHARE * config.interval_ms / 1000
        self._client = None if config.checkpoint else PodResourcesClient(config.socket)
        self._pods = Connection(config.pods_url, means.clock, ca_file=config.ca_file) if config.pods_url else None
        self._allocatable: frozenset[str] | None = None
        self._ticks = 0
        self._complaint = ""

    def read(self, tick_ms: int) -> Tick:
        """Ask the kubelet once.

        Raises:
            Retryable: It is away, hangs or refuses; nothing ends by that.
            Rejected: `bad_checkpoint`.
        """
        try:
            return self._read(tick_ms)
        finally:
            if self._client is not None:
                self._client.close()  # an open channel costs more between ticks than a new one

    def _read(self, tick_ms: int) -> Tick:
        try:
            found = self._look()
        except Retryable as error:
            held = self._report.open_intervals
            raise Retryable(f"{error}; {held} allocations are taken to go on") from error
        gpus = self._means.gpus.gpus()
        listing = Listing(tuple(found.holdings), alive=frozenset(found.unplaced), contested=found.contested)
        findings = Findings(listing, unresolved=found.unresolved)
        findings.readings += self._capacity(found, gpus)
        self._ticks += 1
        return self._report.tick(findings, tick_ms)

    def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._client is not None:
            self._client.close()
        if self._pods is not None:
            self._pods.close()

    def _look(self) -> FoundPods:
        gpus = self._means.gpus.gpus()
        if self._client is not None:
            pods = self._client.pods(self._timeout_seconds)
            return holdings_of(pods, self._facts(), gpus, self._naming)
        entries = checkpoint_entries(self._checkpoint_text())
        facts = self._facts()
        return holdings_of(checkpoint_pods(entries, facts), facts, gpus, self._naming)

    def _checkpoint_text(self) -> str:
        path = self._config.checkpoint or Path()
        try:
            with path.open(errors="replace") as file:
                return file.read(CHECKPOINT_MAXIMUM_BYTES)
        except OSError as error:
            raise Retryable(f"the checkpoint {path} cannot be read: {error.strerror}") from error

    def _facts(self) -> dict[PodKey, PodFacts] | None:
        """Return what is known of the pods, asked for after their devices: one that is missing is gone."""
        if self._pods is None:
            return None
        try:
            return self._ask_for_pods(self._pods)
        except SecondsightError as error:
            self._means.counts.add("pod_list_failed")
            self._complain(f"the list of pods is not to be had, phases and labels are unknown: {error}")
        return None

    def _ask_for_pods(self, connection: Connection) -> dict[PodKey, PodFacts]:
        parts = urlsplit(self._config.pods_url)
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if self._config.token_file is not None:
            headers["Authorization"] = f"Bearer {read_secret(self._config.token_file)}"
        answer = connection.request(
            "GET",
            (parts.path or "/pods") + (f"?{parts.query}" if parts.query else ""),
            headers,
            timeout_seconds=self._timeout_seconds,
            limit_bytes=POD_LIST_MAXIMUM_BYTES,
        )
        if answer.status != 200:
            raise Retryable(f"the kubelet answered {answer.status}")
        self._complaint = ""
        return pod_list(answer.body)

    def _complain(self, text: str) -> None:
        """Log a fault once until it is over."""
        if text != self._complaint:
            self._complaint = text
            logger.warning("kubernetes: %s", text)

    def _capacity(self, found: FoundPods, gpus: Sequence[Gpu]) -> list[tuple[str, str, str, float]]:
        """Return how many GPUs may be given, are given and are free; nothing where the kubelet does not tell."""
        if self._client is not None and self._ticks % ALLOCATABLE_EVERY_TICKS == 0:
            self._allocatable = self._ask_for_allocatable(self._client, gpus)
        if self._allocatable is None:
            return []
        given = {holding.entity for holding in found.holdings} & self._allocatable
        figures = {
            "scheduler_gpus_capacity": len(self._allocatable),
            "scheduler_gpus_allocated": len(given),
            "scheduler_gpus_idle": len(self._allocatable) - len(given),
        }
        return [(name, self._entity, "", number) for name, number in figures.items()]

    def _ask_for_allocatable(self, client: PodResourcesClient, gpus: Sequence[Gpu]) -> frozenset[str] | None:
        try:
            devices = client.allocatable(self._timeout_seconds)
        except Retryable as error:
            logger.debug("kubernetes: %s", error)
            return None
        placed = [device_of(name, gpus) for resource, name in devices if self._naming.is_gpu(resource)]
        return frozenset(device.entity for device in placed if device is not None)


def naming_of(config: KubernetesConfig) -> Naming:
    """Return how pods become jobs."""
    return Naming(
        config.resources,
        config.drivers,
        config.teams,
        re.compile(config.job_pattern) if config.job_pattern else None,
        config.job_labels,
        config.team_label,
        config.model_label,
    )
