"""A kubelet that behaves, as far as pod-resources goes: a real gRPC server on a Unix socket."""

import json
import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from secondsight.agent.jobs.podresources import SERVICE, message_classes

MESSAGES = message_classes()


def pod(name: str, *containers: dict[str, Any], namespace: str = "a") -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "containers": list(containers)}


def container(name: str, *ids: str, resource: str = "nvidia.com/gpu", claims: Iterable[Any] = ()) -> dict[str, Any]:
    devices = [{"resource_name": resource, "device_ids": list(ids)}] if ids else []
    return {"name": name, "devices": devices, "dynamic_resources": list(claims)}


def claim(name: str, device: str, driver: str = "gpu.nvidia.com", cdi: str = "", share_id: str = "") -> dict[str, Any]:
    one = {"driver_name": driver, "pool_name": "node-a", "device_name": device, "share_id": share_id}
    one["cdi_devices"] = [{"name": cdi}] if cdi else []
    return {"claim_name": name, "claim_namespace": "a", "claim_resources": [one]}


def response(pods: Iterable[dict[str, Any]]) -> Any:
    answer = MESSAGES["ListPodResourcesResponse"]()
    for each in pods:
        fill(answer.pod_resources.add(), each)
    return answer


def fill(message: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    fill(getattr(message, name).add(), item)
                else:
                    getattr(message, name).append(item)
        else:
            setattr(message, name, value)


class Kubelet:
    """What the server answers; `status` makes every call fail, `hang` makes it wait."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.devices: list[tuple[str, str]] | None = None
        self.status: grpc.StatusCode | None = None
        self.hang = threading.Event()
        self.hang.set()
        self.calls: list[str] = []

    def list(self, _request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("List", context)
        return response(self.pods)

    def allocatable(self, _request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("GetAllocatableResources", context)
        if self.devices is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such call")
        answer = MESSAGES["AllocatableResourcesResponse"]()
        for resource, name in self.devices or []:
            answer.devices.add(resource_name=resource, device_ids=[name])
        return answer

    def _begin(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method)
        self.hang.wait(30)
        if self.status is not None:
            context.abort(self.status, "no")


@contextmanager
def serving(kubelet: Kubelet, path: Path) -> Iterator[None]:
    """Serve on a socket until the end of the block, then take it away, as a kubelet that stops does."""
    path.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=[("grpc.max_send_message_length", -1)])
    handlers = {
        "List": _handler(kubelet.list, "ListPodResourcesRequest"),
        "GetAllocatableResources": _handler(kubelet.allocatable, "AllocatableResourcesRequest"),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    assert server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        kubelet.hang.set()
        server.stop(0).wait()
        path.unlink(missing_ok=True)


def _handler(call: Any, request: str) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        call, MESSAGES[request].FromString, lambda message: message.SerializeToString()
    )


def pod_list(phases: dict[str, str], started: str = "", **more: dict[str, Any]) -> bytes:
    """Return the body of a kubelet's /pods for `namespace/name` -> phase; `more` gives metadata by name."""
    items = []
    for path, phase in phases.items():
        namespace, name = path.split("/")
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}"} | more.get(name.replace("-", "_"), {})
        items.append({"metadata": metadata, "status": {"phase": phase, "startTime": started}})
    return json.dumps({"kind": "PodList", "items": items}).encode()
