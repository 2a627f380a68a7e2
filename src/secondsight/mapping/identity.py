"""Turn the labels of a sample into what it is about: entity, part, host, workload, and facts of the entity.

The host is the agent's own unless the target is configured as remote; a GPU is its UUID and never its index; of all
labels only those that the catalogue names become the part. Label names are compared without regard to case, as
relabelling rules like to lower them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from secondsight.catalog.metric import Metric, Source
from secondsight.mapping import partitions
from secondsight.mapping.cells import Attributes, part_text, plain_text
from secondsight.model import EntityKind

Labels = tuple[tuple[str, str], ...]

GPU_INDEX_LABELS = ("gpu", "index", "gpu_index", "gpuindex", "gpu_id")
"""Labels that name a GPU by the driver's index; a minor number is none."""
GPU_ID_LABELS = ("uuid", "gpu_uuid", "hw.id", "hw_id")
HARDWARE_LABELS = ("hw.type", "hw_type")
"""Labels that say what kind of hardware an `hw.id` is of."""
JOB_LABELS = ("hpc_job", "job_id")
"""Labels of a GPU's samples that name the scheduler's job: NVIDIA's exporter, AMD's exporter."""
EXPORTED = "exported_"
EXPORTERS = ("dcgm-exporter", "device-metrics-exporter", "gpu-metrics-exporter")
"""What pods and containers of exporters are called: they hold no GPU."""

HOST_LABELS = (
    "exported_hostname",
    "hostname",
    "k8s.node.name",
    "k8s_node_name",
    "host.name",
    "host_name",
    "host.id",
    "host_id",
    "exported_instance",
    "instance",
    "server.address",
    "net.host.name",
)
"""Labels that name a host, best first; of a pair that a relabelling made, the plain one names the scrape target.

In a pod, `host.name` is the pod's; the node's name says more.
"""
PORT_LABELS = ("exported_instance", "instance", "service.instance.id", "server.port", "net.host.port")
LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "[::1]", "::1"})
"""What every host calls itself: no name of a host."""
PART_VALUE_CHARACTERS = 128
ENTITY_CHARACTERS = 256
ATTRIBUTE_CHARACTERS = 200
REPLICA_CHARACTERS = 12
PORT_DIGITS = 5

NOT_ON_SLICES = frozenset(
    {
        "gpu_utilization_ratio",
        "gpu_memory_copy_utilization_ratio",
        "gpu_encoder_utilization_ratio",
        "gpu_decoder_utilization_ratio",
    }
)
"""Figures that the driver does not have for a MIG slice; an exporter prints 0 for them."""

_READING = re.compile(r"[+-]?(\d+\.\d+([eE][+-]?\d+)?|\d+[eE][+-]\d+) ?(%|[a-zA-Z]?W|MiB|GiB|C)?").fullmatch
"""What prints a float prints a point or a signed exponent; some print its unit too."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE).fullmatch


class GpuNames(Protocol):
    """Knows which GPU of a host has which PCI address."""

    def learn(self, uuid: str, index: str = "", address: str = "") -> None:
        """Take that a GPU has this index and PCI address, as far as they are named."""
        ...

    def uuid_of(self, *, index: str = "", address: str = "") -> str:
        """Return the UUID of the GPU at an address or, failing that, at an index; "" if nobody has said."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a text of samples came from.

    Attributes:
        host_id: Host that the samples are about.
        target: Name of the target, the entity of platform rows that name no component.
        port: Port of the target; tells engines of one host apart.
        remote: True if labels may name other hosts.
        gpus: Index -> UUID, for exporters that print no UUID.
        model: AI model of inference samples that name none.
        attribution: True if workload labels of GPU samples become allocations.
        known: GPUs of this host as other sources of the agent name them, for samples that have a PCI address and no
            UUID; learns from samples that have both.
        host_labels: Further labels that name the host, looked at before the usual ones.
    """

    host_id: str
    target: str = ""
    port: int = 0
    remote: bool = False
    gpus: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    attribution: bool = True
    known: GpuNames | None = None
    host_labels: tuple[str, ...] = ()


class Workload(NamedTuple):
    """Who used a GPU, by the labels of its samples; all empty is "unattributed"."""

    namespace: str
    pod: str
    container: str
    job: str = ""

    @property
    def is_known(self) -> bool:
        """Tell whether any label named a workload."""
        return bool(self.pod or self.job)


def lowered(labels: Labels) -> dict[str, str]:
    """Return labels by lower-case name, without those of empty value, which are as good as absent.

    An empty `exported_*` stays: it says that a relabelling has moved the label that names the workload, and found none.
    """
    return {name.lower(): value for name, value in labels if value or name.lower().startswith(EXPORTED)}


def host_of(labels: Mapping[str, str], origin: Origin) -> str:
    """Return the host that a sample is about, "" where the samples of a remote origin do not tell."""
    if not origin.remote:
        return origin.host_id
    for name in (*origin.host_labels, *HOST_LABELS):
        host = _without_port(labels.get(name, ""))
        if host and host.lower() not in LOCAL_NAMES:
            return host
    return origin.host_id


def entity_of(kind: EntityKind, labels: Mapping[str, str], origin: Origin, host: str) -> str:
    """Return the entity that a sample is about, or "" where its labels do not tell."""
    match kind:
        case EntityKind.GPU:
            return _gpu(labels, origin, host)
        case EntityKind.NODE:
            return host
        case EntityKind.INFERENCE:
            return _engine(labels, origin, host)
        case EntityKind.FABRIC_PORT:
            device = _first(labels, "device", "hca", "nvswitch")
            return f"{host}/{device}/{labels.get('port', '0')}" if device else ""
        case EntityKind.PROCESS_JOB | EntityKind.TRAINING:
            pid = labels.get("pid", "")
            return _first(labels, "job_id", "jobid", "hpc_job") or (f"{host}/{pid}" if pid.isdigit() else "")
        case EntityKind.PLATFORM:
            return labels.get("component", origin.target)


def is_usable(identifier: str) -> bool:
    """Tell whether a host or an entity can be named so in a frame."""
    return 0 < len(identifier) <= ENTITY_CHARACTERS and identifier.isprintable()


def gpu_id(text: str) -> str:
    """Return the UUID of a physical GPU in one spelling, or "" if the text names none."""
    lower = text.lower()
    if lower.startswith("gpu-"):
        return "GPU-" + lower[4:]
    if lower.startswith("mig-"):
        return ""
    return "GPU-" + lower if _UUID(text) else text


def part_of(metric: Metric, source: Source, labels: Mapping[str, str]) -> str:
    """Return the part that a sample of this source is about.

    Raises:
        ValueError: A label value is a reading, or too long to name a part; the message is the reason's code.
    """
    pairs = dict(source.part)
    if "gi" in metric.labels and partitions.partition_of(labels):
        pairs["gi"] = partitions.partition_of(labels)
    if metric.kind is EntityKind.PROCESS_JOB and "gpu" in metric.labels:
        pairs["gpu"] = gpu_id(_first(labels, *GPU_ID_LABELS))
    for label, name in source.rename:
        value = labels.get(label.lower())
        if value is not None and name in metric.labels and name not in pairs:
            pairs[name] = value
    if any(len(value) > PART_VALUE_CHARACTERS for value in pairs.values()):
        raise ValueError("label_too_long")
    if any(_READING(value) for value in pairs.values()):
        raise ValueError("label_reading")
    return part_text(pair for pair in pairs.items() if pair[0] in metric.labels)


def is_on_slice(labels: Mapping[str, str]) -> bool:
    """Tell whether a sample is of a MIG slice."""
    return "gpu_i_id" in labels or partitions.partition_of(labels) not in ("", "0")


def attributes_of(kind: EntityKind, labels: Mapping[str, str], part: str) -> Attributes:
    """Return facts for the entity table."""
    if kind is EntityKind.INFERENCE:
        return _present(("model_id", model_of(labels)))
    if kind is not EntityKind.GPU:
        return ()
    if part:
        return _present(("mig_profile", labels.get("gpu_i_profile", "")))
    return _present(
        ("gpu_model", _first(labels, "modelname", "model_name", "card_model")),
        ("index", index_of(labels)),
        ("pci_bus_id", labels.get("pci_bus_id", "")),
    )


def workload_of(labels: Mapping[str, str]) -> Workload:
    """Return the workload; `exported_*` is it where present, as the plain label then names the scrape target.

    A label `podname` comes from relabelling and names the exporter's own pod: it is never used, nor is the exporter
    where a plain label names it.
    """
    job = _first(labels, *JOB_LABELS)
    if any(f"{EXPORTED}{name}" in labels for name in ("namespace", "pod", "container")):
        namespace, pod, container = (labels.get(f"exported_{name}", "") for name in ("namespace", "pod", "container"))
        return Workload(namespace, pod, container, job)
    pod, container = _first(labels, "pod", "pod_name"), _first(labels, "container", "container_name")
    if any(exporter in name for name in (pod, container) for exporter in EXPORTERS):
        return Workload("", "", "", job)
    return Workload(_first(labels, "namespace", "pod_namespace"), pod, container, job)


def model_of(labels: Mapping[str, str]) -> str:
    """Return the AI model that an inference sample is about."""
    return _first(labels, "model_name", "model", "model_id")


def index_of(labels: Mapping[str, str]) -> str:
    """Return the driver's index of a GPU, "" where no label says it."""
    return next((labels[name] for name in GPU_INDEX_LABELS if labels.get(name, "").isdigit()), "")


def _gpu(labels: Mapping[str, str], origin: Origin, host: str) -> str:
    """Return the UUID of a sample's GPU, by its labels, by the settings, or by its PCI address.

    An index alone is looked up in the settings only: an exporter in a container counts the GPUs that it was given.
    """
    if any(labels.get(name, "gpu") != "gpu" for name in HARDWARE_LABELS):
        return ""
    index, address = index_of(labels), labels.get("pci_bus_id", "")
    named = gpu_id(_first(labels, *GPU_ID_LABELS))
    is_here = origin.known is not None and host == origin.host_id
    if named:
        if is_here and is_usable(named) and origin.known is not None:
            origin.known.learn(named, address=address)
        return named
    if index in origin.gpus:
        return origin.gpus[index]
    return origin.known.uuid_of(address=address) if is_here and origin.known is not None else ""


def _engine(labels: Mapping[str, str], origin: Origin, host: str) -> str:
    """Return host:port/model, and after `#` what tells engines behind one port apart.

    That is the number of a data-parallel engine other than 0, the replica or worker of Ray, and a version of a model
    other than 1.
    """
    number = _first(labels, "engine", "dp_rank")
    replica = _first(labels, "replicaid", "replica", "workerid").rpartition("#")[2][-REPLICA_CHARACTERS:]
    version = labels.get("version", "")
    told = [number if number.isdecimal() and number != "0" else "", replica]
    told.append(f"v{version}" if version.isdecimal() and version != "1" else "")
    suffix = "-".join(filter(None, told))
    port = origin.port or port_of(labels)
    return f"{host}:{port}/{model_of(labels) or origin.model}" + (f"#{suffix}" if suffix else "")


def port_of(labels: Mapping[str, str]) -> int:
    """Return the port that the labels of a sample name, 0 where none does."""
    found = (labels.get(name, "").rpartition(":")[2] for name in PORT_LABELS)
    return next((int(text) for text in found if text.isdecimal() and len(text) <= PORT_DIGITS), 0)


def _without_port(name: str) -> str:
    return re.sub(r":\d+$", "", name)


def _first(labels: Mapping[str, str], *names: str) -> str:
    return next((labels[name] for name in names if name in labels), "")


def _present(*pairs: tuple[str, str]) -> Attributes:
    return tuple((name, plain_text(value, ATTRIBUTE_CHARACTERS)) for name, value in pairs if value)
