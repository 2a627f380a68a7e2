"""Turn what the kubelet lists into holdings: which pod has which GPU, and which of two has it.

A pod that has ended is listed with its devices for a while: where the state of pods is known it owns nothing. Where it
is not known, two pods of one GPU are ambiguous and neither is taken for the owner.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from secondsight.agent.jobs.devices import Device, Gpu, claimed_device, device_of
from secondsight.agent.jobs.podresources import Claim, PodDevices
from secondsight.mapping.allocation import Holding, Owner, Share
from secondsight.mapping.cells import Key

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
SHARED_SUFFIX = ".shared"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known of a pod beyond its devices.

    Attributes:
        phase: Pending, Running, Succeeded, Failed or Unknown.
        started_ms: When the kubelet took the pod, epoch ms.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    started_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Naming:
    """How pods become jobs, teams and models.

    Attributes:
        resources: Patterns of resource names that are GPUs.
        drivers: Drivers of dynamic resource allocation whose devices are GPUs.
        teams: Namespace -> team; others are their own team.
        job_pattern: Matched against a pod's name; its first group is the job.
        job_labels: Labels that name a job; the first present counts.
        team_label, model_label: Labels that name team and AI model.
    """

    resources: tuple[str, ...]
    drivers: tuple[str, ...]
    teams: Mapping[str, str] = field(default_factory=dict)
    job_pattern: re.Pattern[str] | None = None
    job_labels: tuple[str, ...] = ()
    team_label: str = ""
    model_label: str = ""

    def owner_of(self, pod: PodDevices, container: str, facts: PodFacts | None) -> Owner:
        """Return whose work a container of a pod is."""
        labels = {} if facts is None else facts.labels
        namespace = pod.namespace
        return Owner(
            job_id=_path(namespace, self._job_of(pod.name, labels, facts)),
            workload_id=_path(namespace, pod.name, container),
            owner_team=labels.get(self.team_label, "") or self.teams.get(namespace, namespace),
            model_id=labels.get(self.model_label, ""),
        )

    def is_gpu(self, resource: str) -> bool:
        """Tell whether devices of a resource are GPUs."""
        plain = resource.removesuffix(SHARED_SUFFIX)
        return any(fnmatchcase(plain, pattern) for pattern in self.resources)

    def _job_of(self, pod: str, labels: Mapping[str, str], facts: PodFacts | None) -> str:
        named = next((labels[name] for name in self.job_labels if labels.get(name)), "")
        found = self.job_pattern.match(pod) if self.job_pattern and not named else None
        owner = "" if facts is None else facts.owner
        return named or (found[1] if found else "") or owner or pod


@dataclass(slots=True)
class FoundPods:
    """Who has which GPU.

    Attributes:
        contested: GPU or slice -> jobs listed for it, where entries of pods that are gone had to be passed over.
        unplaced: Jobs with devices that name no GPU that is known now.
        unresolved: Reason -> devices that could not be placed.
    """

    holdings: list[Holding] = field(default_factory=list)
    unplaced: set[str] = field(default_factory=set)
    contested: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    unresolved: Counter[str] = field(default_factory=Counter)


PodKey = tuple[str, str]
"""(namespace, name)."""


def holdings_of(
    pods: Sequence[PodDevices], facts: Mapping[PodKey, PodFacts] | None, gpus: Sequence[Gpu], naming: Naming
) -> FoundPods:
    """Return who has which GPU.

    Args:
        pods: As the kubelet lists them.
        facts: Every pod that the node has, or None where that is not known.
        gpus: The GPUs that are present.
        naming: How pods become jobs.
    """
    found = FoundPods()
    claims: dict[Key, list[tuple[Holding, PodKey]]] = {}
    for pod in pods:
        key = (pod.namespace, pod.name)
        known = None if facts is None else facts.get(key)
        if known is not None and known.phase in ENDED_PHASES:
            continue
        for holding in _of_pod(pod, known, gpus, (naming, found)):
            claims.setdefault(holding.place, []).append((holding, key))
    _share_claims(pods, gpus, claims, naming)
    for place, rivals in claims.items():
        found.holdings += _winners(place, rivals, facts, found.contested)
    return found


def _of_pod(
    pod: PodDevices, facts: PodFacts | None, gpus: Sequence[Gpu], how: tuple[Naming, FoundPods]
) -> Iterator[Holding]:
    naming, found = how
    started_ms = None if facts is None else facts.started_ms
    for container in pod.containers:
        owner = naming.owner_of(pod, container.name, facts)
        for device, shared in _devices(container.devices, container.claims, gpus, naming):
            if device is None:
                found.unresolved["gpu_id"] += 1
                found.unplaced.add(owner.job_id)
                continue
            share = Share.SHARED if shared or device.replica is not None else Share.SOLE
            yield Holding(device.entity, device.part, owner, share, started_ms, started_ms is not None)


def _devices(
    devices: Iterable[tuple[str, str]],
    claims: Iterable[Claim],
    gpus: Sequence[Gpu],
    naming: Naming,
) -> Iterator[tuple[Device | None, bool]]:
    """Give (device, whether it is only shared) of everything that is a GPU."""
    for resource, name in devices:
        if naming.is_gpu(resource):
            yield device_of(name, gpus), resource.endswith(SHARED_SUFFIX)
    for claim in claims:
        if claim.driver in naming.drivers:
            yield claimed_device(claim.device, claim.cdi_names, gpus), bool(claim.share_id)


def _share_claims(
    pods: Sequence[PodDevices],
    gpus: Sequence[Gpu],
    claims: dict[Key, list[tuple[Holding, PodKey]]],
    naming: Naming,
) -> None:
    """Mark as shared what several pods have through one and the same claim, as its author meant it."""
    users: dict[tuple[str, Key], set[PodKey]] = {}
    for pod in pods:
        for claim in (claim for container in pod.containers for claim in container.claims):
            device = claimed_device(claim.device, claim.cdi_names, gpus) if claim.driver in naming.drivers else None
            if device is not None:
                users.setdefault((claim.claim, device.place), set()).add((pod.namespace, pod.name))
    for (_, place), named in users.items():
        if len(named) > 1:
            claims[place] = [
                (replace(holding, share=Share.SHARED) if key in named else holding, key)
                for holding, key in claims.get(place, [])
            ]


def _winners(
    place: Key,
    rivals: list[tuple[Holding, PodKey]],
    facts: Mapping[PodKey, PodFacts] | None,
    contested: dict[Key, tuple[str, ...]],
) -> list[Holding]:
    """Return the holders that count: of the pods that are known, those that run."""
    if facts is None:
        return [holding for holding, _ in rivals]
    present = [(holding, key) for holding, key in rivals if key in facts]
    running = [(holding, key) for holding, key in present if facts[key].phase == "Running"]
    if present and len(present) < len(rivals):
        contested[place] = tuple(sorted({holding.owner.job_id for holding, _ in rivals}))
    return [holding for holding, _ in running or present]


def _path(*parts: str) -> str:
    return "/".join(part for part in parts if part)
