"""Settings of an agent; `secondsight.config.build` makes them from a table of TOML, where unknown keys are errors."""

import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.agent.client.connection import ClientCertificate, parse_proxy
from secondsight.agent.client.enrol import TOKEN_FILE, EnrolSettings
from secondsight.agent.dcgm.config import DcgmSettings
from secondsight.agent.fabric.config import FabricConfig
from secondsight.agent.host.processes import ProcessesConfig
from secondsight.agent.host.storage import StorageProbeConfig
from secondsight.agent.jobs.settings import KubernetesConfig, LifecycleConfig, SacctConfig, SlurmConfig
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.plan.settings import SamplingSettings
from secondsight.agent.scrape.target import Target
from secondsight.agent.simulate.asked import SimulatedGpus
from secondsight.agent.smi.config import SmiSettings
from secondsight.agent.training.config import LogsConfig, TrainingConfig
from secondsight.errors import Rejected

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}").fullmatch


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Settings of an agent.

    Attributes:
        gateway: Address of the gateway, http or https.
        spool_dir: Folder for what is not delivered yet, and for what the agent keeps of itself.
        token_file: File that holds the bearer token; read anew for every request. Without it the agent enrols.
        host_id: Stable id of this host; the host's name if empty.
        collector_id: Id that the token allows; the host id if empty.
        rack: Where the host stands, for its entities.
        interval_ms: Cadence of the host's and the agent's own rows.
        host_metrics: Read this host's /proc and /sys.
        root: Folder that holds proc and sys, when they are mounted elsewhere.
        processes: Tell which programs use this host's CPUs and memory, by name; off if absent.
        storage_probe: Measure how long storage takes; off if absent.
        fabric: Which InfiniBand and RoCE ports to read.
        kernel_log: What to read of the kernel log.
        scrape: Exporters and engines to read.
        simulate: GPUs to make up in this host; none if absent.
        nvml: Read GPUs through the driver's library.
        dcgm: Read a DCGM host engine through the Python bindings that DCGM ships.
        smi: Read a running nvidia-smi, on hosts that have nothing better.
        kubernetes: Pods to take allocations of GPUs from; none if absent.
        slurm: Slurm jobs of this host to take allocations of GPUs from; none if absent.
        sacct: Slurm's accounting, queue and nodes, for one agent of a cluster; none if absent.
        lifecycle: State changes of instances that their cloud announces; none if absent.
        training: Socket that training jobs tell their steps to; none if absent.
        logs: Logs of training jobs and engines to follow; none if absent.
        spool_mib: Most that the spool may hold; beyond, the least important and oldest goes.
        spool_hours: Age beyond which what is not delivered is given up.
        spool_floor_mib: Free space of the file system that is left to others; the spool gives way.
        spool_floor_percent: The same as a share of the file system; the lesser of the two counts.
        aside_mib: Most that is kept of what the gateway refused.
        batch_seconds: How long ticks wait for company: in memory and in a journal, which outlives the process but no
            power cut.
        ca_file: Certificates to trust instead of the system's.
        client_certificate, client_key: PEM files that show the gateway which host this is; both or neither. They may be
            replaced while the agent runs.
        proxy: HTTP proxy on the way to the gateway, `http://[USER:PASSWORD@]HOST:PORT`; proxies that the environment
            names are not used.
        catalog_files: Further catalogue files of the operator.
        sampling: How the gateway's plan is followed.
        enrol: How the agent gets a token of its own; none if absent.
        stop_seconds: Longest that a clean stop goes on delivering.
    """

    gateway: str
    spool_dir: Path
    token_file: Path | None = None
    host_id: str = ""
    collector_id: str = ""
    rack: str = ""
    interval_ms: int = 1000
    host_metrics: bool = True
    root: Path = Path("/")
    processes: ProcessesConfig | None = None
    storage_probe: StorageProbeConfig | None = None
    fabric: FabricConfig = field(default_factory=FabricConfig)
    kernel_log: KernelLogConfig = field(default_factory=KernelLogConfig)
    scrape: tuple[Target, ...] = ()
    simulate: SimulatedGpus | None = None
    nvml: NvmlSettings = field(default_factory=NvmlSettings)
    dcgm: DcgmSettings | None = None
    smi: SmiSettings | None = None
    kubernetes: KubernetesConfig | None = None
    slurm: SlurmConfig | None = None
    sacct: SacctConfig | None = None
    lifecycle: LifecycleConfig | None = None
    training: TrainingConfig | None = None
    logs: LogsConfig | None = None
    spool_mib: int = 512
    spool_hours: float = 168.0
    spool_floor_mib: int = 512
    spool_floor_percent: float = 5.0
    aside_mib: int = 16
    batch_seconds: float = 5.0
    ca_file: Path | None = None
    proxy: str = ""
    client_certificate: Path | None = None
    client_key: Path | None = None
    catalog_files: tuple[Path, ...] = ()
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    enrol: EnrolSettings | None = None
    stop_seconds: float = 5.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if (self.token_file is None) == (self.enrol is None):
            raise Rejected("bad_config", "agent: one of token_file and enrol is needed", "say enrol.join_token_file")
        if self.proxy:
            parse_proxy(self.proxy)
        if (self.client_certificate is None) != (self.client_key is None):
            raise Rejected("bad_config", "agent: client_certificate and client_key go together")
        names = [target.name for target in self.scrape]
        for name in (*names, self.collector, self.host):
            if not _ID(name):
                raise Rejected("bad_config", f"agent: {name!r} is no id", "letters, digits, '.', '_' and '-'")
        if len(set(names)) != len(names):
            raise Rejected("bad_config", "agent: two targets of scrape have one name", "give each a name of its own")
        intervals = [self.interval_ms, *(target.interval_ms for target in self.scrape)]
        if min(intervals) < 100 or self.spool_mib < 1 or self.batch_seconds < 0:
            raise Rejected("bad_config", "agent: intervals are at least 100 ms, spool_mib at least 1")

    @property
    def token_path(self) -> Path:
        """Return the file of the token that goes with every request."""
        return self.token_file or self.spool_dir / TOKEN_FILE

    @property
    def client(self) -> ClientCertificate | None:
        """Return what shows the gateway which host this is, None for nothing."""
        if self.client_certificate is None or self.client_key is None:
            return None
        return ClientCertificate(self.client_certificate, self.client_key)

    @property
    def host(self) -> str:
        """Return the host's id."""
        return self.host_id or socket.gethostname()

    @property
    def collector(self) -> str:
        """Return the collector's id."""
        return self.collector_id or self.host
