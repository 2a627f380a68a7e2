"""Gaps, ledger and planned work through a real server, and the commands that ask for them."""

import io
import json

import pytest
from sqlalchemy import select

from api_client import serving
from process_rig import CATALOG, T0, Rig, frame_bytes
from secondsight.access.audit import AUDIT
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata, reading
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.gaps import GapPage, MaintenanceList
from secondsight.api.ledger import LedgerPage
from secondsight.api.services import make_services
from secondsight.cli import main
from secondsight.clock import ManualClock
from secondsight.query.custody import print_gaps, print_ledger
from secondsight.query.gapreader import Explained
from secondsight.query.gaps import Gap, Stretch
from secondsight.query.reasons import Reason
from secondsight.query.stories import stories_of
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

POWER = "gpu_power_watts"
END = T0 + 300_000
RANGE = {"from": str(T0), "to": str(END)}


def tell(rig, tenant, host, reported, gpus=2):
    for start, stop in reported:
        for first in range(start, stop, 60):
            ticks = [T0 + 1000 * second for second in range(first, min(first + 60, stop))]
            rows = {
                (f"GPU-{host}-{gpu}", "", place): {POWER: 300_000} for gpu in range(gpus) for place in range(len(ticks))
            }
            body = frame_bytes(rows, ticks, sequence=first + 1, collector=host, host=host)
            rig.clock.step_wall(max(0, (ticks[-1] + 300 - rig.clock.now_ms()) / 1000))
            rig.clock.move(0)
            rig.send(body, ticks[-1] + 300, tenant=tenant)
            rig.processor.step()


class Api:
    def __init__(self, folder):
        self.clock = ManualClock(END + 60_000)
        self.store = ChdbStore(folder / "hot", readers=4)
        migrate(self.store, CATALOG)
        rig = Rig(self.store, T0)
        for tenant, host in (("t1", "h1"), ("t1", "h2"), ("t2", "secret")):
            tell(rig, tenant, host, [(0, 100), (160, 300)] if host != "h2" else [(0, 300)])
        rig.settle()
        self.metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
        self.config = ApiConfig(data=folder, static=folder)
        self.services = make_services(self.config, self.store, self.metadata, CATALOG, self.clock)
        specs = {
            "operator": TokenSpec(Role.OPERATOR, "t1", "operator", grants=(Grant("t1"),)),
            "viewer": TokenSpec(Role.VIEWER, "t1", "viewer", grants=(Grant("t1"),)),
            "other": TokenSpec(Role.OPERATOR, "t2", "other", grants=(Grant("t2"),)),
            "team": TokenSpec(Role.VIEWER, "t1", "team", grants=(Grant("t1", teams=frozenset({"team-a"})),)),
        }
        self.tokens = {name: create_token(self.metadata, spec, END).secret for name, spec in specs.items()}

    def ask(self, method, path, token="operator", body=None, **params):
        from urllib.parse import urlencode

        headers = {"authorization": f"Bearer {self.tokens[token]}", "content-type": "application/json"}
        target = f"{path}?{urlencode(params)}" if params else path
        return self.client.request(method, target, None if body is None else json.dumps(body), headers)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    made = Api(tmp_path_factory.mktemp("custody"))
    with serving(make_app(made.services), made.config) as made.client:
        yield made


@pytest.fixture
def planned(api):
    asked = {
        "cluster": "k1",
        "hosts": ["h1"],
        "start": str(T0 + 90_000),
        "until": str(T0 + 200_000),
        "reason": "new NIC",
    }
    answer = api.ask("POST", "/v1/maintenance", body=asked)
    assert answer.status_code == 201, answer.text
    (window,) = MaintenanceList.model_validate(answer.json()).windows
    api.clock.move(10)
    yield window
    api.ask("DELETE", f"/v1/maintenance/{window.window_id}")
    api.clock.move(10)


def gaps(api, token="operator", **params):
    answer = api.ask("GET", "/v1/telemetry/gaps", token, **(RANGE | params))
    assert answer.status_code == 200, answer.text
    return GapPage.model_validate(answer.json())


def test_gaps_have_the_shape_that_was_promised(api):
    page = gaps(api)
    assert page.total == 2
    assert (page.missing, page.shed, page.reasons) == (120, 0, {"collector_down": 2})
    body = api.ask("GET", "/v1/telemetry/gaps", **RANGE).json()["gaps"][0]
    assert body["clusterId"] == "k1"
    assert (body["hostId"], body["gpuId"]) == ("h1", "GPU-h1-0")
    assert (body["startTime"], body["endTime"]) == ("2023-11-14T22:15:10.000Z", "2023-11-14T22:16:10.000Z")
    assert (body["expectedSamples"], body["receivedSamples"], body["reason"]) == (60, 0, "collector_down")


def test_gaps_come_in_pages_and_by_filter(api):
    first = gaps(api, limit="1")
    second = gaps(api, limit="1", cursor=first.next_cursor)
    assert [one.gpu_id for one in (*first.gaps, *second.gaps)] == ["GPU-h1-0", "GPU-h1-1"]
    assert second.next_cursor is None
    assert gaps(api, host="h2").total == 0
    assert [one.gpu_id for one in gaps(api, gpu="GPU-h1-1").gaps] == ["GPU-h1-1"]
    assert gaps(api, reason="maintenance").total == 0
    assert gaps(api, reason="findings").total == 2
    for wrong in ({"reason": "weather"}, {"kind": "cat"}, {"from": "now", "to": "now-1h"}, {"from": "soon"}):
        assert api.ask("GET", "/v1/telemetry/gaps", **(RANGE | wrong)).status_code in (400, 422)


UNKNOWN = [
    ("/v1/telemetry/gaps", {"host": "h3"}, ["there is no host 'h3' that you may see; there are: 'h1', 'h2'"]),
    (
        "/v1/telemetry/gaps",
        {"host": "h3", "filled": "true"},
        ["there is no host 'h3' that you may see; there are: 'h1', 'h2'"],
    ),
    ("/v1/telemetry/gaps", {"gpu": "GPU-h2-0"}, []),
    ("/v1/telemetry/gaps", {"host": "secret"}, ["there is no host 'secret' that you may see; there are: 'h1', 'h2'"]),
    ("/v1/ledger", {"cluster": "k9"}, ["there is no cluster 'k9' that you may see; there are: 'k1'"]),
    ("/v1/ledger", {"collector": "secret"}, ["there is no collector 'secret' that you may see; there are: 'h1', 'h2'"]),
    ("/v1/ledger", {"collector": "h1", "from": str(END + 50_000), "to": str(END + 60_000)}, []),
    ("/v1/gpus", {"team": "te"}, ["there is no team 'te' that you may see"]),
    (
        "/v1/gpus",
        {"host": "h1, h3", "status": "unknown"},
        ["there is no host 'h3' that you may see; there are: 'h1', 'h2'"],
    ),
    ("/v1/gpus", {"host": " h1 ,secret", "status": "silent, lost,reporting"}, []),
]


@pytest.mark.parametrize(("path", "asked", "told"), UNKNOWN)
def test_a_name_of_nothing_is_told_wherever_nothing_is_found(api, path, asked, told):
    ranged = {} if path == "/v1/gpus" else RANGE
    answer = api.ask("GET", path, **(ranged | asked))
    assert answer.status_code == 200, answer.text
    assert answer.json()["warnings"] == told


@pytest.mark.parametrize("path", ["/v1/telemetry/gaps", "/v1/ledger", "/v1/gpus", "/v1/events", "/v1/metrics/query"])
@pytest.mark.parametrize("names", [",", " , ", "x" * 301, ",".join(map(str, range(1001)))])
def test_a_filter_that_names_nothing_or_too_much_is_refused_by_every_list(api, path, names):
    answer = api.ask("GET", path, cluster=names, **({"metric": POWER} if path == "/v1/metrics/query" else {}))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_filter")


SLIPS = [
    ("/v1/fleet?cluster=k1", 422, "bad_request"),
    ("/v1/fleet?", 200, ""),
    ("/v1/gpus/GPU-h1-0?from=now-1h", 422, "bad_request"),
    ("/v1/sql/views?x=1", 422, "bad_request"),
    ("/v1/debug?x=1", 422, "bad_request"),
    ("/v1/gpus?host=h1&host=h2", 422, "bad_request"),
    ("/v1/gpus?limit=1&limit=", 422, "bad_request"),
    (f"/v1/metrics/query?metric={POWER}&metric={POWER}", 422, "bad_request"),
    (f"/v1/metrics/query?metric={POWER}&groupBy=,", 400, "bad_filter"),
    (f"/v1/metrics/query?metric={POWER}&aggregate=%20", 400, "bad_filter"),
    (f"/v1/metrics/query?metric={POWER}&part=a&part=b", 200, ""),
    ("/v1/telemetry/gaps?from=now%2B1h&to=now%2B2h", 400, "bad_range"),
    ("/v1/telemetry/gaps?from=now&to=now-1h", 400, "bad_range"),
    ("/v1/maintenance?from=now&to=now-1h", 400, "bad_range"),
    ("/v1/deadletters?stage=Quarantine", 400, "bad_stage"),
    ("/v1/events?code=%D9%A1", 400, "bad_code"),
    ("/v1/events?metric=%20", 400, "bad_filter"),
    ("/api/v1/metadata?limit=1e9", 400, ""),
    ("/api/v1/query?query=1&time=%D9%A1", 400, ""),
]


@pytest.mark.parametrize(("target", "status", "code"), SLIPS)
def test_a_slip_of_the_pen_is_told_and_not_passed_over(api, target, status, code):
    answer = api.ask("GET", target)
    assert answer.status_code == status, answer.text
    assert not code or answer.json()["error"]["code"] == code


def test_gaps_of_a_host_are_one_story(api):
    (story,) = gaps(api, stories="true").stories
    assert (story.level, story.host_id, story.entities, story.expected_samples) == ("host", "h1", 2, 120)


def test_nobody_sees_the_gaps_of_others(api):
    assert [one.host_id for one in gaps(api, "other").gaps] == ["secret", "secret"]
    assert gaps(api, "team").total == 0


def test_coverage_agrees_with_the_gaps(api):
    for resolution in ("1s", "30s", "range"):
        asked = {"metric": POWER, "resolution": resolution, **RANGE}
        coverage = api.ask("GET", "/v1/metrics/query", **asked).json()["coverage"]
        missing = coverage["expectedSamples"] - coverage["storedSamples"]
        assert (missing, coverage["gaps"], coverage["shed"]) == (120, 2, 0), resolution


def test_under_planned_work_nothing_is_expected(api, planned):
    page = gaps(api)
    assert page.reasons == {"maintenance": 2}
    assert all(one.expected for one in page.gaps)
    assert gaps(api, reason="findings").total == 0
    for resolution in ("1s", "30s"):
        asked = {"metric": POWER, "resolution": resolution, **RANGE}
        coverage = api.ask("GET", "/v1/metrics/query", **asked).json()["coverage"]
        assert (coverage["ratio"], coverage["gaps"]) == (1.0, 2), resolution
    assert api.ask("GET", "/v1/maintenance", "viewer").json()["windows"][0]["windowId"] == planned.window_id
    assert api.ask("GET", "/v1/maintenance", "other").json()["windows"] == []


def test_planned_work_is_for_operators_and_audited(api, planned):
    asked = {"cluster": "k1", "minutes": 5, "reason": "x"}
    assert api.ask("POST", "/v1/maintenance", "viewer", asked).status_code == 403
    assert api.ask("DELETE", f"/v1/maintenance/{planned.window_id}", "other").status_code == 404
    refused = (
        {"cluster": "nowhere", "minutes": 5, "reason": "x"},
        {"cluster": "k1", "hosts": ["secret"], "minutes": 5, "reason": "x"},
        {"cluster": "k1", "reason": "x"},
        {"cluster": "k1", "minutes": 5, "until": "now+1h", "reason": "x"},
        {"cluster": "k1", "start": "now-3d", "minutes": 5, "reason": "x"},
        {"cluster": "k1", "until": "now-1h", "reason": "x"},
        {"cluster": "k1", "minutes": 5},
    )
    for body in refused:
        assert api.ask("POST", "/v1/maintenance", body=body).status_code in (400, 404, 422), body
    whole = api.ask("POST", "/v1/maintenance", body=asked | {"start": "now+1h"}).json()["windows"][0]
    assert (whole["hostId"], whole["active"]) == (None, False)
    assert api.ask("DELETE", f"/v1/maintenance/{whole['windowId']}").status_code == 200
    assert api.ask("DELETE", f"/v1/maintenance/{whole['windowId']}").status_code == 404
    with reading(api.metadata) as connection:
        rows = connection.execute(select(AUDIT.c.action, AUDIT.c.detail)).all()
    actions = [row.action for row in rows]
    assert {"maintenance_start", "maintenance_end"} <= set(actions)
    assert any("host h1 in k1" in row.detail and "new NIC" in row.detail for row in rows)


def test_the_ledger_answers_by_minute(api):
    answer = api.ask("GET", "/v1/ledger", **RANGE)
    assert answer.status_code == 200, answer.text
    page = LedgerPage.model_validate(answer.json())
    assert {one.collector_id for one in page.entries} == {"h1", "h2"}
    assert all(one.balanced and one.difference.values == 0 for one in page.entries)
    assert sum(one.stored.values for one in page.entries) == 2 * (240 + 300)
    assert sum(one.produced.rows for one in page.entries) == 2 * (240 + 300)
    few = LedgerPage.model_validate(api.ask("GET", "/v1/ledger", limit="2", host="h1", **RANGE).json())
    assert (len(few.entries), few.next_cursor) == (2, "2")
    assert few.entries[0].minute > few.entries[1].minute
    assert api.ask("GET", "/v1/ledger", "other", **RANGE).json()["entries"][0]["hostId"] == "secret"
    assert api.ask("GET", "/v1/ledger", "team", **RANGE).status_code in (403, 422, 400)
    assert api.ask("GET", "/v1/ledger", unbalanced="true", **RANGE).json()["total"] == 0


def run(api, tmp_path, *words):
    token = tmp_path / "token"
    token.write_text(api.tokens["operator"])
    return main([*words, "--server", f"http://127.0.0.1:{api.client.port}", "--token-file", str(token)])


def test_commands_show_what_the_answers_say(api, planned, tmp_path, capsys):
    times = ("--from", str(T0), "--to", str(END))
    assert run(api, tmp_path, "gaps", *times) == 0
    shown = capsys.readouterr().out
    assert "maintenance" in shown
    assert "2 of 2; 120 slots missing" in shown
    assert run(api, tmp_path, "gaps", "--stories", *times) == 0
    assert "k1 / r1 / h1" in capsys.readouterr().out
    assert run(api, tmp_path, "gaps", "--json", *times) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 2
    assert run(api, tmp_path, "ledger", *times) == 0
    assert "all add up" in capsys.readouterr().out
    assert run(api, tmp_path, "maintenance", "list") == 0
    assert "new NIC" in capsys.readouterr().out
    words = ("maintenance", "start", "--cluster", "k1", "--host", "h2", "--minutes", "5", "--reason", "fan")
    assert run(api, tmp_path, *words) == 0
    window = capsys.readouterr().out.partition(":")[0]
    assert run(api, tmp_path, "maintenance", "end", window) == 0


def test_of_a_name_of_nothing_no_ledger_adds_up():
    told = {"entries": [], "total": 0, "warnings": ["there is no cluster 'c11' that you may see"]}
    out = io.StringIO()
    assert print_ledger(told, out, as_json=False) == 1
    assert "nothing was told; there is no cluster 'c11'" in " ".join(out.getvalue().split())
    assert print_ledger({**told, "warnings": []}, io.StringIO(), as_json=False) == 0
    gaps = {"gaps": [], "stories": None, "total": 0, "reasons": {}, "warnings": told["warnings"]}
    assert [print_gaps(gaps, io.StringIO(), as_json=as_json) for as_json in (False, True)] == [1, 1]
    assert print_gaps({**gaps, "warnings": []}, io.StringIO(), as_json=False) == 0


def test_a_ledger_that_does_not_add_up_is_seen_at_once():
    count = {"rows": 1, "values": 9}
    entry = {
        "minute": "2023-11-14T22:15:00.000Z", "clusterId": "k", "collectorId": "c", "produced": count, "stored": count,
        "inFlight": count, "shed": [{"reason": "floor", **count}], "quarantined": [], "deadLettered": [],
        "difference": count, "incidents": 2, "balanced": False,
    }  # fmt: skip
    out = io.StringIO()
    assert print_ledger({"entries": [entry], "waiting": [], "total": 1}, out, as_json=False) == 1
    assert "UNEXPLAINED:" in out.getvalue()
    assert "9 shed: floor" in out.getvalue()


@pytest.mark.parametrize(
    ("silent", "level", "hosts"),
    [({"a1"}, "host", 1), ({"a1", "a2"}, "rack", 2), ({"a1", "a2", "b1"}, "cluster", 3)],
)
def test_a_story_is_told_at_the_level_that_it_befell(silent, level, hosts):
    names = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b"}
    planned, found = {}, []
    for host, rack in names.items():
        for gpu in range(2):
            key = "\0".join(("t", "k", host, f"GPU-{host}-{gpu}", ""))
            planned[key] = [Stretch(key, T0, END, 1000, host, rack)]
            if host in silent:
                gap = Gap(key, T0 + 10_000 + 1000 * gpu, T0 + 60_000, 1000, 50, False, host, rack)
                found.append(Explained(gap, Reason.NETWORK))
    (story,) = stories_of(found, planned)
    assert (story.level, story.hosts, story.entities, story.start_ms) == (level, hosts, 2 * len(silent), T0 + 10_000)


def test_a_gpu_alone_is_a_story_of_its_own():
    key = "\0".join(("t", "k", "h", "GPU-0", ""))
    planned = {key.replace("GPU-0", f"GPU-{n}"): [Stretch(key, T0, END, 1000, "h", "r")] for n in range(4)}
    gap = Gap(key, T0, T0 + 60_000, 1000, 60, True, "h", "r")
    (story,) = stories_of([Explained(gap, Reason.SOURCE)], planned)
    assert (story.level, story.entity, story.is_open) == ("entity", "GPU-0", True)
