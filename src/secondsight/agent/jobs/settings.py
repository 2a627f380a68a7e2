"""Settings of the readers of allocators; kept apart from the readers, which are imported where they are configured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    """Pods of this node, from its kubelet.

    Attributes:
        socket: The kubelet's pod-resources socket.
        checkpoint: The kubelet's device checkpoint, read in place of the socket where that cannot be had.
        interval_ms: How often the kubelet is asked.
        resources: Patterns of resource names that are GPUs; `.shared` behind them is understood.
        drivers: Drivers of dynamic resource allocation whose devices are GPUs.
        teams: Namespace -> team; a namespace that is not named is its own team.
        job_pattern: Expression whose first group is the job, matched against the pod's name, `(.+)-[0-9]+$` for one.
        pods_url: Address of the kubelet's list of pods (`https://127.0.0.1:10250/pods`), for phases and labels; none
            if empty.
        token_file: File with a bearer token for it; read anew for every request.
        ca_file: Certificates to trust for it instead of the system's.
        job_labels: Labels of a pod that name its job; the first present counts.
        team_label: Label of a pod that names its team.
        model_label: Label of a pod that names the AI model that it runs.
    """

    socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    checkpoint: Path | None = None
    interval_ms: int = 5000
    resources: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu")
    drivers: tuple[str, ...] = ("gpu.nvidia.com",)
    teams: Mapping[str, str] = field(default_factory=dict)
    job_pattern: str = ""
    pods_url: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None
    job_labels: tuple[str, ...] = (
        "training.kubeflow.org/job-name",
        "batch.kubernetes.io/job-name",
        "job-name",
        "ray.io/cluster",
    )
    team_label: str = ""
    model_label: str = ""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        _check_interval("agent.kubernetes", self.interval_ms)
        try:
            groups = re.compile(self.job_pattern).groups
        except re.error as error:
            raise Rejected("bad_config", f"agent.kubernetes: job_pattern: {error}") from error
        if self.job_pattern and not groups:
            raise Rejected("bad_config", "agent.kubernetes: job_pattern has no group", "put the job into ( )")


def _check_interval(where: str, interval_ms: int) -> None:
    if interval_ms < 1000:
        raise Rejected("bad_config", f"{where}: interval_ms is at least 1000")
