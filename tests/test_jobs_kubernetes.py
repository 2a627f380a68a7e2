"""Who has which GPU by a kubelet: a real gRPC server on a Unix socket, and every fault of it that was reported."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent_fixture import http_server
from jobs_fixture import GPUS, T0, events_of, means_of, mig_uuid, owned, station_of, uuid
from kubelet_server import Kubelet, claim, container, pod, pod_list, serving
from secondsight.agent.jobs.checkpoint import checkpoint_entries, checkpoint_pods
from secondsight.agent.jobs.kubernetes import KubernetesReader, naming_of
from secondsight.agent.jobs.pods import PodFacts, PodKey, holdings_of
from secondsight.agent.jobs.settings import KubernetesConfig
from secondsight.clock import ManualClock
from secondsight.errors import Rejected, Retryable
from secondsight.mapping.allocation import CONFLICT
from secondsight.model import EntityKind

CASES = Path(__file__).parent / "cases" / "jobs"
CAPTURE = Path(__file__).parents[2] / "shared/corpus/captures/sched/kubelet_internal_checkpoint.json"
SOLE_AND = ("sole", T0, None, 1)


class Node:
    """A node with a kubelet, its list of pods over HTTP, and a reader of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "kubelet.sock"
        self.kubelet = Kubelet()
        self.clock = ManualClock(T0)
        self.means = means_of(self.clock)
        self.phases: dict[str, str] = {}
        self.facts: dict[str, Any] = {}
        self.started = ""
        self.settings: dict[str, Any] = {}
        self.tick_ms = T0
        self._reader: KubernetesReader | None = None

    def answer_pods(self, handler: Any, _body: bytes) -> None:
        body = pod_list(self.phases, self.started, **self.facts)
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    @property
    def reader(self) -> KubernetesReader:
        if self._reader is None:
            config = KubernetesConfig(socket=self.socket, interval_ms=5000, **self.settings)
            self._reader = KubernetesReader(config, station_of(self.folder), self.means)
        return self._reader

    def read(self) -> Any:
        try:
            return self.reader.read(self.tick_ms)
        finally:
            self.tick_ms += 5000
            self.clock.move(5)

    def restart(self, after_ms: int = 0) -> None:
        self.reader.close()
        self._reader = None
        self.tick_ms += after_ms


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.reader.close()


@pytest.fixture
def up(node: Node) -> Iterator[Node]:
    with serving(node.kubelet, node.socket):
        yield node


@pytest.fixture
def listed(up: Node) -> Iterator[Node]:
    """Give a node whose list of pods is known as well."""
    with http_server(up.answer_pods) as url:
        up.settings["pods_url"] = url + "/pods"
        yield up


def test_pods_become_intervals(up: Node) -> None:
    up.kubelet.pods = [
        pod("train-0", container("main", uuid(1), uuid(2)), container("side"), namespace="team-a"),
        pod("web", container("c", mig_uuid(1), resource="nvidia.com/mig-1g.10gb")),
        pod("other", container("c", "mlx5_0", resource="rdma/hca"), container("d", resource="cpu")),
    ]
    tick = up.read()
    assert owned(tick) == {
        f"{uuid(1)} team-a/train-0": SOLE_AND,
        f"{uuid(2)} team-a/train-0": SOLE_AND,
        f"{uuid(3)} gi=1 a/web": SOLE_AND,
    }
    attributes = events_of(tick)[0].attributes
    assert {name: attributes[name] for name in ("workload_id", "owner_team", "via", "start")} == {
        "workload_id": "team-a/train-0/main",
        "owner_team": "team-a",
        "via": "kubernetes",
        "start": "estimate",
    }
    assert tick.collector == "kubernetes"
    assert {content.schema.kind for content in tick.contents} == {EntityKind.PROCESS_JOB}
    assert owned(up.read()) == {}
    up.kubelet.pods = up.kubelet.pods[1:]
    assert owned(up.read()) == {
        f"{uuid(1)} team-a/train-0": ("sole", T0, T0 + 10_000, 2),
        f"{uuid(2)} team-a/train-0": ("sole", T0, T0 + 10_000, 2),
    }


def test_several_containers_of_one_pod_are_one_job(up: Node) -> None:
    up.kubelet.pods = [pod("p", container("x", uuid(1)), container("y", uuid(2)))]
    events = events_of(up.read())
    assert {event.attributes["job_id"] for event in events} == {"a/p"}
    assert [event.attributes["workload_id"] for event in events] == ["a/p/x", "a/p/y"]


def test_two_containers_of_one_pod_on_one_gpu_are_one_holder(up: Node) -> None:
    up.kubelet.pods = [pod("p", container("x", f"{uuid(1)}::0"), container("y", f"{uuid(1)}::1"))]
    events = events_of(up.read())
    assert [(event.attributes["workload_id"], event.attributes["share"]) for event in events] == [("a/p", "shared")]


@pytest.mark.parametrize(
    ("ids", "resource"),
    [
        ((f"{uuid(1)}::0", f"{uuid(1)}::1"), "nvidia.com/gpu"),
        ((f"{uuid(1)}::0", f"{uuid(1)}::1"), "nvidia.com/gpu.shared"),
        ((uuid(1), uuid(1)), "nvidia.com/gpu.shared"),
        (("nvidia4/vgpu0", "nvidia4/vgpu1"), "nvidia.com/gpu"),
    ],
)
def test_a_replica_makes_no_owner(up: Node, ids: tuple[str, str], resource: str) -> None:
    up.kubelet.pods = [pod(name, container("c", each, resource=resource)) for name, each in zip("pq", ids, strict=True)]
    tick = up.read()
    assert owned(tick) == {f"{uuid(1)} a/p": ("shared", T0, None, 1), f"{uuid(1)} a/q": ("shared", T0, None, 1)}
    assert [event.metric for event in events_of(tick)].count(CONFLICT) == 0


def test_one_replica_alone_is_permission_too(up: Node) -> None:
    up.kubelet.pods = [pod("p", container("c", f"{uuid(1)}::0"))]
    assert owned(up.read()) == {f"{uuid(1)} a/p": ("shared", T0, None, 1)}


def test_a_slice_s_replica_is_shared_on_the_slice(up: Node) -> None:
    up.kubelet.pods = [pod("p", container("c", f"{mig_uuid(2)}::3", resource="nvidia.com/mig-1g.10gb.shared"))]
    assert owned(up.read()) == {f"{uuid(3)} gi=2 a/p": ("shared", T0, None, 1)}


def test_claims_of_dynamic_resources(up: Node) -> None:
    up.kubelet.pods = [
        pod("p", container("c", claims=[claim("one", "gpu-4")])),
        pod("q", container("c", claims=[claim("two", "gpu-6", cdi=f"nvidia.com/gpu={mig_uuid(1)}")])),
        pod("r", container("c", claims=[claim("three", "gpu-0", driver="dra.example.com")])),
        pod("s", container("c", claims=[claim("both", "gpu-5")])),
        pod("t", container("c", claims=[claim("both", "gpu-5")])),
        pod("u", container("c", claims=[claim("part", "gpu-0", share_id="x")])),
    ]
    assert owned(up.read()) == {
        f"{uuid(1)} a/p": SOLE_AND,
        f"{uuid(3)} gi=1 a/q": SOLE_AND,
        f"{uuid(2)} a/s": ("shared", T0, None, 1),
        f"{uuid(2)} a/t": ("shared", T0, None, 1),
        f"{uuid(4)} a/u": ("shared", T0, None, 1),
    }


def test_an_id_that_names_no_gpu_here_costs_only_itself(up: Node) -> None:
    up.kubelet.pods = [pod("p", container("c", mig_uuid(99), uuid(1), "nvidia77"))]
    assert owned(up.read()) == {f"{uuid(1)} a/p": SOLE_AND}
    assert up.means.counts.labelled("job_unresolved") == {"gpu_id": 2}


def test_a_kubelet_that_is_away_ends_nothing(node: Node) -> None:
    node.kubelet.pods = [pod("p", container("c", uuid(1))), pod("q", container("c", uuid(2)))]
    with serving(node.kubelet, node.socket):
        assert len(owned(node.read())) == 2
    for _ in range(20):
        with pytest.raises(Retryable, match=r"is not there.*2 allocations are taken to go on"):
            node.read()
    node.kubelet.pods = [pod("p", container("c", uuid(1)))]
    with serving(node.kubelet, node.socket):
        assert owned(node.read()) == {f"{uuid(2)} a/q": ("sole", T0, T0, 2)}
        assert owned(node.read()) == {}


def test_a_kubelet_that_restarts_quickly_is_asked_again(node: Node) -> None:
    node.kubelet.pods = [pod("p", container("c", uuid(1)))]
    for expected in ({f"{uuid(1)} a/p": SOLE_AND}, {}, {}):
        with serving(node.kubelet, node.socket):
            assert owned(node.read()) == expected


def test_a_kubelet_that_hangs_is_left_and_asked_again(up: Node) -> None:
    up.settings["interval_ms"] = 1000
    up.kubelet.pods = [pod("p", container("c", uuid(1)))]
    config = KubernetesConfig(socket=up.socket, interval_ms=1000)
    reader = KubernetesReader(config, station_of(up.folder), up.means)
    up.kubelet.hang.clear()
    with pytest.raises(Retryable, match="does not answer in time"):
        reader.read(T0)
    up.kubelet.hang.set()
    assert owned(reader.read(T0 + 1000)) == {f"{uuid(1)} a/p": ("sole", T0 + 1000, None, 1)}
    reader.close()
    reader.close()
    del up.settings["interval_ms"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "refuses"),
        (grpc.StatusCode.UNIMPLEMENTED, "Kubernetes 1.23"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "resource_exhausted"),
        (grpc.StatusCode.INTERNAL, "internal"),
    ],
)
def test_a_refusal_is_said_and_ends_nothing(up: Node, status: grpc.StatusCode, text: str) -> None:
    up.kubelet.pods = [pod("p", container("c", uuid(1)))]
    up.read()
    up.kubelet.status = status
    with pytest.raises(Retryable, match=f"{text}.*1 allocations"):
        up.read()
    up.kubelet.status = None
    assert owned(up.read()) == {}


def test_a_path_that_is_no_socket_is_named(node: Node) -> None:
    node.socket.write_text("")
    with pytest.raises(Retryable, match="is no socket"):
        node.read()


def test_a_thousand_pods(up: Node) -> None:
    up.kubelet.pods = [pod(f"p{number}", container("c", f"{uuid(1)}::{number}")) for number in range(1000)]
    assert len(owned(up.read())) == 1000
    up.kubelet.pods = up.kubelet.pods[1:]
    assert owned(up.read()) == {f"{uuid(1)} a/p0": ("shared", T0, T0 + 5000, 2)}


def test_a_restart_of_the_agent_goes_on_where_it_was(up: Node) -> None:
    up.kubelet.pods = [pod("p", container("c", uuid(1))), pod("q", container("c", uuid(2)))]
    up.read()
    up.restart(after_ms=600_000)
    up.kubelet.pods = [pod("p", container("c", uuid(1)))]
    tick = up.read()
    assert owned(tick) == {f"{uuid(1)} a/p": SOLE_AND, f"{uuid(2)} a/q": ("sole", T0, T0, 2)}
    assert {event.attributes.get("end") for event in events_of(tick)} == {None, "estimate"}


def test_gpus_given_and_free(up: Node) -> None:
    up.kubelet.devices = [("nvidia.com/gpu", uuid(number)) for number in (1, 2, 4)] + [
        ("nvidia.com/mig-1g", mig_uuid(1))
    ]
    up.kubelet.devices += [("rdma/hca", "mlx5_0")]
    up.kubelet.pods = [pod("p", container("c", uuid(1)))]
    tick = up.read()
    platform = next(content for content in tick.contents if content.schema.kind is EntityKind.PLATFORM)
    names = [column.metric for column in platform.schema.columns]
    assert platform.scalars is not None
    assert dict(zip(names, platform.scalars.groups[0].values[:, 0].tolist(), strict=True)) == {
        "scheduler_gpus_capacity": 4,
        "scheduler_gpus_allocated": 1,
        "scheduler_gpus_idle": 3,
    }
    assert [entity.entity for entity in platform.entities.entities] == ["kubelet/node-a"]


def test_051_terminated_pod_still_listed(listed: Node) -> None:
    case = json.loads((CASES / "051-terminated-pod-still-listed.json").read_text())
    listed.kubelet.pods, listed.phases = case["list"], case["pod_phase"]
    tick = listed.read()
    assert owned(tick) == {f"{uuid(1)} a/job-new": SOLE_AND}
    assert [event.metric for event in events_of(tick)] == ["job_gpu_allocation"]


@pytest.mark.parametrize(
    ("phases", "owners", "conflicts"),
    [
        ({"a/old": "Failed", "a/new": "Running"}, {"a/new": "sole"}, 0),
        ({"a/old": "Succeeded", "a/new": "Pending"}, {"a/new": "sole"}, 0),
        ({"a/old": "Running", "a/new": "Pending"}, {"a/old": "sole"}, 0),
        ({"a/old": "Running", "a/new": "Running"}, {"a/old": "ambiguous", "a/new": "ambiguous"}, 1),
        ({"a/old": "Unknown", "a/new": "Pending"}, {"a/old": "ambiguous", "a/new": "ambiguous"}, 1),
        ({"a/old": "Unknown", "a/new": "Running"}, {"a/new": "sole"}, 0),
        ({"a/old": "Succeeded", "a/new": "Failed"}, {}, 0),
        ({"a/new": "Running"}, {"a/new": "sole"}, 1),
        ({}, {}, 0),
    ],
)
def test_of_two_pods_the_running_one_has_the_gpu(
    listed: Node, phases: dict[str, str], owners: dict[str, str], conflicts: int
) -> None:
    listed.phases = phases
    listed.kubelet.pods = [pod(name, container("c", uuid(1))) for name in ("old", "new")]
    tick = listed.read()
    shares = {
        e.attributes["job_id"]: e.attributes.get("share", "sole") for e in events_of(tick) if e.metric != CONFLICT
    }
    assert shares == owners
    assert [event.metric for event in events_of(tick)].count(CONFLICT) == conflicts


def test_without_the_state_of_pods_two_owners_are_none_until_one_is_gone(up: Node) -> None:
    up.kubelet.pods = [pod("old", container("c", uuid(1)))]
    assert owned(up.read()) == {f"{uuid(1)} a/old": SOLE_AND}
    up.kubelet.pods += [pod("new", container("c", uuid(1)))]
    tick = up.read()
    assert owned(tick) == {
        f"{uuid(1)} a/old": ("ambiguous", T0 + 5000, None, 1),
        f"{uuid(1)} a/new": ("ambiguous", T0 + 5000, None, 1),
    }
    ended = [(e.time_ms, e.end_ms) for e in events_of(tick) if e.end_ms is not None]
    assert ended == [(T0, T0 + 5000)]
    assert [event.code for event in events_of(tick) if event.metric == CONFLICT] == [2]
    assert events_of(up.read()) == []
    up.kubelet.pods = up.kubelet.pods[1:]
    assert owned(up.read()) == {
        f"{uuid(1)} a/new": ("sole", T0 + 5000, None, 2),
        f"{uuid(1)} a/old": ("ambiguous", T0 + 5000, T0 + 15_000, 2),
    }


def test_labels_and_owners_name_jobs_teams_and_models(listed: Node) -> None:
    listed.settings |= {"team_label": "team", "model_label": "model", "teams": {"b": "Team B"}}
    listed.phases = {"a/job-x7k": "Running", "a/own-1": "Running", "b/plain": "Running"}
    listed.facts = {
        "job_x7k": {"labels": {"batch.kubernetes.io/job-name": "job", "team": "vision", "model": "tern"}},
        "own_1": {"ownerReferences": [{"kind": "ReplicaSet", "name": "rs"}, {"kind": "PyTorchJob", "name": "own"}]},
    }
    listed.kubelet.pods = [
        pod("job-x7k", container("c", uuid(1))),
        pod("own-1", container("c", uuid(2))),
        pod("plain", container("c", uuid(4)), namespace="b"),
    ]
    found = {
        e.attributes["job_id"]: (e.attributes["owner_team"], e.attributes["model_id"]) for e in events_of(listed.read())
    }
    assert found == {"a/job": ("vision", "tern"), "a/own": ("a", ""), "b/plain": ("Team B", "")}


def test_a_pattern_names_jobs_by_the_pod_s_name(up: Node) -> None:
    up.settings["job_pattern"] = r"(.+)-\d+$"
    up.kubelet.pods = [pod("train-17", container("c", uuid(1))), pod("web", container("c", uuid(2)))]
    assert {event.attributes["job_id"] for event in events_of(up.read())} == {"a/train", "a/web"}


def test_a_pod_made_anew_under_the_same_name_is_another_interval(listed: Node) -> None:
    listed.phases = {"a/train-0": "Running"}
    listed.kubelet.pods = [pod("train-0", container("c", uuid(1)))]
    listed.started = "2024-10-27T03:33:00Z"
    first_ms = 1_729_999_980_000
    assert owned(listed.read()) == {f"{uuid(1)} a/train-0": ("sole", first_ms, None, 1)}
    listed.started = "2024-10-27T03:33:23+00:00"
    intervals = [(e.time_ms, e.end_ms, e.version) for e in events_of(listed.read())]
    assert intervals == [(first_ms, first_ms + 23_000, 2), (first_ms + 23_000, None, 1)]


def test_a_list_of_pods_that_fails_leaves_them_unknown(up: Node) -> None:
    up.settings["pods_url"] = "http://127.0.0.1:9/pods"
    up.kubelet.pods = [pod("p", container("c", uuid(1)))]
    assert owned(up.read()) == {f"{uuid(1)} a/p": SOLE_AND}
    assert up.means.counts.get("pod_list_failed") == 1


def test_053_one_card_two_pods_in_the_checkpoint(tmp_path: Path) -> None:
    text = (CASES / "053-one-card-two-pods-checkpoint.json").read_text()
    facts = running_only(json.loads(text)["running_pod_uids"])
    found = holdings_of(checkpoint_pods(checkpoint_entries(text), facts), facts, GPUS, naming_of(KubernetesConfig()))
    assert [(each.entity, each.owner.job_id) for each in found.holdings] == [(uuid(1), "368e63c4-new")]
    assert found.contested == {(uuid(1), ""): ("368e63c4-new", "9a422c32-old")}


def test_the_checkpoint_in_place_of_the_socket(node: Node) -> None:
    path = node.folder / "kubelet_internal_checkpoint"
    path.write_text((CASES / "053-one-card-two-pods-checkpoint.json").read_text())
    node.settings["checkpoint"] = path
    node.phases, node.facts = {"b/new": "Running"}, {"new": {"uid": "368e63c4-new"}}
    with http_server(node.answer_pods) as url:
        node.settings["pods_url"] = url
        tick = node.read()
    assert owned(tick) == {f"{uuid(1)} b/new": SOLE_AND}
    assert [event.code for event in events_of(tick) if event.metric == CONFLICT] == [2]
    path.write_text('{"Data": ')
    with pytest.raises(Rejected, match="bad_checkpoint"):
        node.read()
    path.unlink()
    with pytest.raises(Retryable, match="1 allocations are taken to go on"):
        node.read()


@pytest.mark.skipif(not CAPTURE.is_file(), reason="no captures here")
def test_a_captured_checkpoint() -> None:
    entries = checkpoint_entries(CAPTURE.read_text())
    assert len(entries) == 4
    assert [devices for _, _, _, devices in entries] == [(uuid(1),), (uuid(2), uuid(3)), (uuid(4),), ("OTHER-1",)]
    found = holdings_of(checkpoint_pods(entries, None), None, GPUS, naming_of(KubernetesConfig()))
    assert len(found.holdings) == 4
    assert sum(found.unresolved.values()) == 0
    running = running_only(["00000000-0000-0000-0000-0000000000a2"])
    found = holdings_of(checkpoint_pods(entries, running), running, GPUS, naming_of(KubernetesConfig()))
    assert [each.entity for each in found.holdings] == [uuid(2), uuid(3)]


@pytest.mark.parametrize(
    "entry",
    [
        {"PodUID": "u", "ContainerName": "c", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"-1": ["G"], "0": ["H"]}},
        {"PodUID": "u", "ContainerName": "c", "ResourceName": "nvidia.com/gpu", "DeviceIDs": ["G", 7, "H", None]},
        {
            "PodUID": "u",
            "ContainerName": "c",
            "ResourceName": "nvidia.com/gpu",
            "DeviceIDs": {"0": ["G", "H"], "1": None},
        },
    ],
)
def test_forms_of_device_ids(entry: dict[str, Any]) -> None:
    others: list[Any] = [None, 7, {"PodUID": 3}, {}]
    text = json.dumps({"Data": {"PodDeviceEntries": [*others, entry]}})
    assert checkpoint_entries(text) == [("u", "c", "nvidia.com/gpu", ("G", "H"))]


@pytest.mark.parametrize("text", ["", "[]", "7", '{"Data": null}', '{"Data": {"PodDeviceEntries": 7}}', "\0"])
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        checkpoint_entries(text)
    assert refused.value.code == "bad_checkpoint"


@pytest.mark.parametrize("settings", [{"interval_ms": 10}, {"job_pattern": "("}, {"job_pattern": "x"}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        KubernetesConfig(**settings)
    assert refused.value.code == "bad_config"


def running_only(uids: Collection[str]) -> dict[PodKey, PodFacts]:
    """Return the state of pods where only the UIDs of running ones are known."""
    return {("", uid): PodFacts("", uid, uid, "Running") for uid in uids}
