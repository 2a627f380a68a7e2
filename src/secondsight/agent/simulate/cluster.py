"""Turn a seed and a second into everything that a simulated cluster's hosts would measure at that second."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.simulate.incidents import Causes, Incident, causes_at
from secondsight.agent.simulate.jobs import Job, Load, Workload, job_at, load_of
from secondsight.agent.simulate.machines import Board
from secondsight.agent.simulate.physics import Demand, Floats, GpuState, new_state, step

GROUP_HOSTS = 2
SETTLE_SECONDS = 300
NODE_MEMORY_BYTES = 2 * 2**40
XID_ECC_STORM = 92
XID_NVLINK = 74
STORM_PER_SECOND = 1000.0
_NODE_COUNTERS = ("pressure_seconds", "receive_bytes", "transmit_bytes")


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a simulated cluster is made of. The same spec and start give the same samples, second by second.

    Attributes:
        names: Names of its hosts; made from the cluster's name where empty.
    """

    name: str
    hosts: int
    gpus_per_host: int
    board: Board
    seed: int
    incidents: tuple[Incident, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Xid:
    """A driver error of one GPU, by its position in the cluster."""

    gpu: int
    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Second:
    """All that one second of a cluster gives.

    Attributes:
        gpu: Metric -> value per GPU, host-major, in catalogue units.
        node: Metric -> value per host.
        network_receive_bytes, network_transmit_bytes: Counters per host.
        jobs: The job of each host, or None.
        causes: What incidents did.
    """

    second: int
    gpu: dict[str, Floats]
    node: dict[str, Floats]
    network_receive_bytes: Floats
    network_transmit_bytes: Floats
    jobs: tuple[Job | None, ...]
    causes: Causes
    xids: tuple[Xid, ...]


@dataclass(slots=True)
class _NodeState:
    load: Floats
    pressure_seconds: Floats
    receive_bytes: Floats
    transmit_bytes: Floats


@dataclass(slots=True)
class SimulatedCluster:
    """Moves a cluster forward one second at a time.

    Attributes:
        settle_seconds: So long before its start it has been at work, which nobody sees; then it goes on as one that
            started so much earlier does.
    """

    spec: ClusterSpec
    start_second: int
    settle_seconds: int = SETTLE_SECONDS
    _gpus: GpuState = field(init=False)
    _nodes: _NodeState = field(init=False)
    _storming: NDArray[np.bool_] = field(init=False)
    _links_down: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        """Put the cluster at rest, then let it settle: the slowest figure has a lag of a minute."""
        total = self.spec.hosts * self.spec.gpus_per_host
        self._gpus = new_state(self.spec.board, total, self.spec.seed)
        hosts = self.spec.hosts
        self._nodes = _NodeState(np.zeros(hosts), np.zeros(hosts), np.full(hosts, 4e12), np.full(hosts, 2e12))
        self._storming = np.zeros(total, dtype=np.bool_)
        self._links_down = np.zeros(total, dtype=np.bool_)
        for second in range(self.start_second - self.settle_seconds, self.start_second):
            self.advance(second)

    def counters(self) -> dict[str, Floats]:
        """Return what has been counted so far, of GPUs and of hosts."""
        return self._gpus.counters | {name: getattr(self._nodes, name) for name in _NODE_COUNTERS}

    def count_on(self, counters: Mapping[str, Floats]) -> None:
        """Go on counting from what was counted before; what is of another size or unknown counts for nothing."""
        mine = self.counters()
        for name, values in counters.items():
            if name in mine and values.shape == mine[name].shape:
                mine[name][:] = np.maximum(values, mine[name]) if name in _NODE_COUNTERS else values

    def advance(self, second: int) -> Second:
        """Return the measurements of the next epoch second; seconds must come in order."""
        spec = self.spec
        jobs = [job_at(spec.seed, host // GROUP_HOSTS, second) for host in range(spec.hosts)]
        loads = [load_of(job, second) for job in jobs]
        causes = causes_at(spec.incidents, spec.hosts, spec.gpus_per_host, second - self.start_second)
        loads = [replace(load, reading=load.reading * s) for load, s in zip(loads, causes.data_supply, strict=True)]
        gpu = step(self._gpus, _demand(loads, spec.gpus_per_host), causes)
        node = self._step_nodes(loads, jobs)
        return Second(
            second=second,
            gpu=gpu,
            node=node,
            network_receive_bytes=self._nodes.receive_bytes.copy(),
            network_transmit_bytes=self._nodes.transmit_bytes.copy(),
            jobs=tuple(jobs),
            causes=causes,
            xids=self._xids(causes),
        )

    def _step_nodes(self, loads: Sequence[Load], jobs: Sequence[Job | None]) -> dict[str, Floats]:
        rng, hosts, nodes = self._gpus.rng, self.spec.hosts, self._nodes
        activity = np.array([load.activity for load in loads])
        reading = np.array([load.reading + load.writing for load in loads])
        busy = np.clip(0.03 + 0.22 * activity + 0.9 * reading + rng.normal(0, 0.01, hosts), 0.005, 1.0)
        nodes.load += (busy * 192 - nodes.load) / 60
        nodes.pressure_seconds += np.where(busy > 0.5, 0.01 * busy, 0.0)
        nodes.receive_bytes += np.round(2e6 + reading * 4e9 * rng.uniform(0.9, 1.1, hosts))
        nodes.transmit_bytes += np.round(1e6 + activity * 2e8 * rng.uniform(0.9, 1.1, hosts))
        held = np.array([0.06 if job is None else 0.25 + 0.2 * job.memory_ratio for job in jobs])
        available = np.round(NODE_MEMORY_BYTES * (1 - held) / 4096) * 4096
        return {
            "node_gpu_count": np.full(hosts, float(self.spec.gpus_per_host)),
            "node_gpu_pci_count": np.full(hosts, float(self.spec.gpus_per_host)),
            "node_cpu_utilization_ratio": np.round(busy, 4),
            "node_load1": np.round(nodes.load, 2),
            "node_memory_total_bytes": np.full(hosts, float(NODE_MEMORY_BYTES)),
            "node_memory_available_bytes": available,
            "node_boot_time_seconds": np.full(hosts, float(self.start_second // 86_400 * 86_400 - 7 * 86_400)),
        }

    def _xids(self, causes: Causes) -> tuple[Xid, ...]:
        """Return driver errors: one as a storm begins, one as a GPU's links fail, and rare application faults."""
        storming = causes.corrected_ecc_per_second > STORM_PER_SECOND
        links_down = causes.nvlink_up < 1
        named = (
            (storming & ~self._storming, XID_ECC_STORM, "High single-bit ECC error rate"),
            (links_down & ~self._links_down, XID_NVLINK, "NVLink error"),
            (self._gpus.rng.random(storming.size) < 2e-7, 31, "GPU memory page fault"),
        )
        self._storming, self._links_down = storming, links_down
        return tuple(Xid(int(gpu), code, text) for where, code, text in named for gpu in np.flatnonzero(where))


def gpu_uuid(spec: ClusterSpec, host: int, index: int) -> str:
    """Return the fixed UUID of a simulated GPU."""
    return f"GPU-{_uuid(spec, 'gpu', host, index)}"


def boot_id(spec: ClusterSpec, host: int) -> str:
    """Return the fixed boot id of a simulated host."""
    return _uuid(spec, "boot", host, 0)


def host_name(spec: ClusterSpec, host: int) -> str:
    """Return the name of a simulated host."""
    return spec.names[host] if spec.names else f"{spec.name}-{host + 1:04d}"


def rack_name(host: int) -> str:
    """Return the rack of a simulated host; four hosts share one."""
    return f"r{host // 4 + 1:03d}"


def serves(job: Job | None) -> bool:
    """Tell whether a host's job is an inference engine."""
    return job is not None and job.workload is Workload.INFERENCE


def _uuid(spec: ClusterSpec, *parts: object) -> str:
    digest = hashlib.blake2b("/".join(map(str, (spec.name, spec.seed, *parts))).encode(), digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def _demand(loads: Sequence[Load], gpus_per_host: int) -> Demand:
    def per_gpu(name: str) -> Floats:
        return np.repeat(np.array([getattr(load, name) for load in loads], dtype=np.float64), gpus_per_host)

    return Demand(
        activity=per_gpu("activity"),
        tensor_share=per_gpu("tensor_share"),
        memory_ratio=per_gpu("memory_ratio"),
        reading=per_gpu("reading"),
        communicating=per_gpu("communicating"),
        writing=per_gpu("writing"),
    )
