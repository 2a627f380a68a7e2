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


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """Jobs of this node, from what Slurm leaves on it.

    Attributes:
        interval_ms: How often the node is looked at.
        hooks_dir: Folder that `secondsight agent job` writes to from prolog and epilog; the exact source.
        gpu_jobs_dir: Folder of an exporter's job files, one a GPU (`3`, or `3.1` for a slice), with job ids as lines.
        gpu_json_dir: Folder of an AMD prolog's JSON files, one a GPU.
        numbers: What Slurm's GPU numbers mean: `minor` for N of /dev/nvidiaN, or `index` as the driver counts.
        scontrol: Program that is asked once for a job whose GPUs are not to be had otherwise; never if empty.
        teams: Account -> team; an account that is not named is its own team.
        model_variable: Variable in a job's environment that names the AI model that it runs.
    """

    interval_ms: int = 5000
    hooks_dir: Path | None = None
    gpu_jobs_dir: Path | None = None
    gpu_json_dir: Path | None = None
    numbers: str = "minor"
    scontrol: str = ""
    teams: Mapping[str, str] = field(default_factory=dict)
    model_variable: str = "SECONDSIGHT_MODEL_ID"

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        _check_interval("agent.slurm", self.interval_ms)
        if self.numbers not in ("minor", "index"):
            raise Rejected("bad_config", f"agent.slurm: numbers is minor or index, not {self.numbers!r}")


@dataclass(frozen=True, slots=True)
class SacctConfig:
    """Jobs of the cluster, by accounting; for one agent of a cluster, on a host that has Slurm's programs.

    Attributes:
        interval_minutes: How often accounting is asked; each time starts one process after the other.
        sacct: Program of accounting.
        squeue: Program that lists the queue; not asked if empty.
        sinfo: Program that lists nodes; not asked if empty.
        jobs_url: Address of slurmrestd's jobs (`http://127.0.0.1:6820/slurm/v0.0.40/jobs`), in place of squeue.
        token_file: File with slurmrestd's token; read anew for every request.
        window_hours: Most that one pull covers; after an outage, pulls follow until all is there.
        overlap_minutes: How far a pull reaches back behind the last one: jobs are accounted for late.
        timeout_seconds: For each process.
        teams: Account -> team; an account that is not named is its own team.
    """

    interval_minutes: float = 10.0
    sacct: str = "sacct"
    squeue: str = ""
    sinfo: str = ""
    jobs_url: str = ""
    token_file: Path | None = None
    window_hours: float = 24.0
    overlap_minutes: float = 60.0
    timeout_seconds: float = 60.0
    teams: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.interval_minutes < 1 or self.timeout_seconds <= 0:
            raise Rejected("bad_config", "agent.sacct: interval_minutes is at least 1, timeout_seconds over 0")
        if self.overlap_minutes < 0 or self.window_hours * 60 <= self.overlap_minutes:
            raise Rejected("bad_config", "agent.sacct: window_hours is more than overlap_minutes, which is 0 or more")


@dataclass(frozen=True, slots=True)
class LifecycleConfig:
    """State changes of instances, as their cloud announces them.

    Attributes:
        file: One JSON object a line (EC2 instance state changes as EventBridge gives them); whoever receives them
            appends to it.
        interval_ms: How often the file is looked at.
        hosts: Instance -> host id, where they differ.
    """

    file: Path
    interval_ms: int = 10_000
    hosts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        _check_interval("agent.lifecycle", self.interval_ms)


def _check_interval(where: str, interval_ms: int) -> None:
    if interval_ms < 1000:
        raise Rejected("bad_config", f"{where}: interval_ms is at least 1000")
