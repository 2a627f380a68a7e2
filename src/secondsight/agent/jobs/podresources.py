"""Ask the kubelet which devices each container has: pod-resources v1 over its Unix socket.

The messages are described here, field by field, as the kubelet's API documents them; fields that nobody reads are left
out, and protobuf skips them. Needs `grpcio` and `protobuf`, which are imported when a client is made.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondsight.errors import Rejected, Retryable

SERVICE = "v1.PodResourcesLister"
ANSWER_MAXIMUM_BYTES = 16 << 20
RECONNECT_MS = 500

_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "ListPodResourcesRequest": (),
    "AllocatableResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "*PodResources"),),
    "AllocatableResourcesResponse": (("devices", 1, "*ContainerDevices"),),
    "PodResources": (("name", 1, "text"), ("namespace", 2, "text"), ("containers", 3, "*ContainerResources")),
    "ContainerResources": (
        ("name", 1, "text"),
        ("devices", 2, "*ContainerDevices"),
        ("dynamic_resources", 5, "*DynamicResource"),
    ),
    "ContainerDevices": (("resource_name", 1, "text"), ("device_ids", 2, "*text")),
    "DynamicResource": (
        ("claim_name", 2, "text"),
        ("claim_namespace", 3, "text"),
        ("claim_resources", 4, "*ClaimResource"),
    ),
    "ClaimResource": (
        ("cdi_devices", 1, "*CDIDevice"),
        ("driver_name", 2, "text"),
        ("pool_name", 3, "text"),
        ("device_name", 4, "text"),
        ("share_id", 5, "text"),
    ),
    "CDIDevice": (("name", 1, "text"),),
}
"""Message -> (field, number, kind); `*` marks a repeated field."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One device of a claim of dynamic resource allocation.

    Attributes:
        claim: Namespace and name of the claim; pods that name the same claim share its devices.
    """

    claim: str
    driver: str
    pool: str
    device: str
    cdi_names: tuple[str, ...] = ()
    share_id: str = ""


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """What one container of a pod has.

    Attributes:
        devices: (resource name, device id).
    """

    name: str
    devices: tuple[tuple[str, str], ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class PodDevices:
    """What one pod has, as the kubelet lists it, whether it still runs or not."""

    namespace: str
    name: str
    containers: tuple[ContainerDevices, ...] = ()


def message_classes() -> dict[str, Any]:
    """Return message name -> class, made from the table above.

    Raises:
        Rejected: `missing_package`.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise _missing(error) from error
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            made = message.field.add(name=field_name, number=number)
            made.label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
            made.type = field.TYPE_STRING if kind.endswith("text") else field.TYPE_MESSAGE
            if made.type == field.TYPE_MESSAGE:
                made.type_name = f".v1.{kind.removeprefix('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _MESSAGES}


class PodResourcesClient:
    """Calls one kubelet. One thread uses it; after `close`, or a failure, the next call connects anew."""

    def __init__(self, socket: Path) -> None:
        """Prepare calls; nothing is connected yet.

        Raises:
            Rejected: `missing_package`.
        """
        try:
            import grpc
        except ImportError as error:
            raise _missing(error) from error
        self._grpc = grpc
        self._socket = socket
        self._messages = message_classes()
        self._channel: Any = None

    def pods(self, timeout_seconds: float) -> tuple[PodDevices, ...]:
        """Return what every pod on this node has.

        Raises:
            Retryable: The kubelet is away, hangs or refuses; the text says what to do.
        """
        answer = self._call("List", "ListPodResources", timeout_seconds)
        return tuple(map(_pod, answer.pod_resources))

    def allocatable(self, timeout_seconds: float) -> tuple[tuple[str, str], ...]:
        """Return (resource name, device id) of every device that may be given, given or not.

        Raises:
            Retryable: As in `pods`.
        """
        answer = self._call("GetAllocatableResources", "AllocatableResources", timeout_seconds)
        return tuple((each.resource_name, name) for each in answer.devices for name in each.device_ids)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _call(self, method: str, messages: str, timeout_seconds: float) -> Any:
        if self._channel is None:
            self._channel = self._connect()
        parse: Callable[[bytes], Any] = self._messages[f"{messages}Response"].FromString
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}", request_serializer=_serialized, response_deserializer=parse
        )
        try:
            return call(self._messages[f"{messages}Request"](), timeout=timeout_seconds)
        except self._grpc.RpcError as error:
            self.close()
            raise Retryable(f"pod-resources {method}: {self._reason(error)}") from error

    def _connect(self) -> Any:
        options = [
            ("grpc.max_receive_message_length", ANSWER_MAXIMUM_BYTES),
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        return self._grpc.insecure_channel(f"unix:{self._socket}", options=options)

    def _reason(self, error: Any) -> str:
        """Return why a call failed, and what to do."""
        code = error.code()
        status = self._grpc.StatusCode
        if code is status.DEADLINE_EXCEEDED:
            return f"the kubelet at {self._socket} does not answer in time"
        if code is status.UNIMPLEMENTED:
            return "the kubelet does not offer this call; it needs Kubernetes 1.23 or newer"
        if code is status.PERMISSION_DENIED:
            return f"the kubelet refuses: {error.details()}"
        return _socket_fault(self._socket) or f"{code.name.lower()}: {error.details()}"


def _socket_fault(path: Path) -> str:
    """Return what is wrong with a socket's file, or "" if nothing that can be seen."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"{path} is not there: no kubelet runs, or its folder is not mounted into this container"
    except PermissionError:
        return f"{path} may not be looked at: run the agent as root, or give its user the folder"
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not stat.S_ISSOCK(mode):
        return f"{path} is no socket"
    if not os.access(path, os.R_OK | os.W_OK):
        return f"{path} may not be opened: run the agent as root, or give its user the socket"
    return ""


def _missing(error: ImportError) -> Rejected:
    return Rejected(
        "missing_package",
        f"agent.kubernetes needs the package {error.name or 'grpcio'}",
        "install secondsight[kubernetes]",
    )


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _pod(pod: Any) -> PodDevices:
    return PodDevices(pod.namespace, pod.name, tuple(map(_container, pod.containers)))


def _container(container: Any) -> ContainerDevices:
    devices = tuple((each.resource_name, name) for each in container.devices for name in each.device_ids)
    claims = tuple(_claim(of, each) for of in container.dynamic_resources for each in of.claim_resources)
    return ContainerDevices(container.name, devices, claims)


def _claim(of: Any, device: Any) -> Claim:
    names = tuple(each.name for each in device.cdi_devices)
    name = f"{of.claim_namespace}/{of.claim_name}"
    return Claim(name, device.driver_name, device.pool_name, device.device_name, names, device.share_id)
