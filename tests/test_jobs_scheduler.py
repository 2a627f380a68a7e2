"""What Slurm prints, in every form and with every fault that was reported, and the pulls of accounting."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_fixture import http_server
from jobs_fixture import T0, events_of, infos_of, means_of, station_of
from secondsight.agent.jobs.command import output_of
from secondsight.agent.jobs.gres import gres_count, gres_of, hosts_of, indexes_of, tres_count
from secondsight.agent.jobs.sacct import COLUMNS, exit_event, sacct_jobs
from secondsight.agent.jobs.scheduler import SchedulerReader, capacity
from secondsight.agent.jobs.settings import SacctConfig
from secondsight.agent.jobs.slurmjob import JobState, SlurmJob, number_of, state_of, time_ms
from secondsight.agent.jobs.slurmjson import jobs_of_json
from secondsight.agent.jobs.slurmtext import NodeGpus, scontrol_jobs, sinfo_gpus, squeue_jobs
from secondsight.agent.jobs.waits import QUEUES_MAXIMUM, QueueWaits
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable

CASES_FOLDER = Path(__file__).parent / "cases" / "jobs"
CASES: dict[str, Any] = json.loads((CASES_FOLDER / "gres.json").read_text())
FORMS: list[dict[str, Any]] = json.loads((CASES_FOLDER / "slurm_forms.json").read_text())
CAPTURES = Path(__file__).parents[2] / "shared/corpus/captures/sched"
captured = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures to read: {CAPTURES} is not there")
BERLIN = ZoneInfo("Europe/Berlin")
UTC = ZoneInfo("UTC")


@pytest.mark.parametrize("text", CASES["gres"])
def test_gres(text: str) -> None:
    assert [gres_count(text), gres_count(text, "mig")] == CASES["gres"][text]


@pytest.mark.parametrize("text", CASES["tres"])
def test_tres(text: str) -> None:
    assert tres_count(text) == CASES["tres"][text]


@pytest.mark.parametrize("text", CASES["indexes"])
def test_indexes(text: str) -> None:
    assert list(indexes_of(text)) == CASES["indexes"][text]


@pytest.mark.parametrize("text", CASES["hosts"])
def test_hosts(text: str) -> None:
    assert list(hosts_of(text)) == CASES["hosts"][text]


@pytest.mark.parametrize("text", CASES["states"])
def test_states(text: str) -> None:
    state, by = state_of(text)
    assert [state.name, by] == CASES["states"][text]


@pytest.mark.parametrize("case", FORMS, ids=lambda case: case["name"])
def test_a_form_of_an_output(case: dict[str, Any]) -> None:
    readers = {
        "sacct": lambda text: sacct_jobs(text, UTC).jobs,
        "scontrol": lambda text: scontrol_jobs(text, UTC),
        "squeue": lambda text: squeue_jobs(text).jobs,
    }
    jobs = readers[case["tool"]](case["text"])
    found = [
        {name: _plain(getattr(job, name)) for name in wanted} for job, wanted in zip(jobs, case["jobs"], strict=True)
    ]
    assert found == case["jobs"]


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, JobState) else json.loads(json.dumps(value))


@given(st.text(alphabet="gpu:mi,()[]IDX0123-=/ \t", max_size=60))
def test_no_text_breaks_a_parser(text: str) -> None:
    assert all(each.count >= 0 for each in gres_of(text))
    assert len(hosts_of(text)) <= 65_536
    assert tres_count(text) is None or tres_count(text) >= 0
    scontrol_jobs("JobId=1 " + text, UTC)
    squeue_jobs(text)
    sinfo_gpus(text)
    sacct_jobs("JobID|State\n" + text, UTC)


def test_a_hostlist_without_end_is_cut() -> None:
    assert len(hosts_of("n[0-99999999]")) == 65_536


def test_055_gres_of_other_kinds_and_socket_suffixes() -> None:
    text = (CASES_FOLDER / "055-allocgres-removed-and-socket-suffix.txt").read_text()
    lines = text.partition('"%n %G"\n')[2].splitlines()
    assert gpus_by_node(lines) == {"n1": (2, 0), "n2": (4, 0), "n3": (0, 0), "n4": (0, 0), "n5": (4, 0), "n6": (8, 7)}


@captured
def test_captured_sinfo() -> None:
    nodes = sinfo_gpus((CAPTURES / "sinfo_gres_multi_type.txt").read_text())
    assert gpu_totals(nodes) == {"model_a": (20, 0), "model_b": (20, 0)}
    assert sum(node.nodes for node in nodes) == 20


def test_sinfo_may_count_nodes_right_before_their_gpus() -> None:
    counted = ["1058gpu:gb200:4(S:0-3)", "1398 (null)", "1 gpu:a:2(IDX:0,3)", "2 gpu:a:3(IDX:0-2)"]
    lines = [*counted, "3 idle gpu:h:8", "n1 mix gpu:h:8 gpu:h:2"]
    assert gpu_totals(sinfo_gpus("\n".join(lines))) == {"gb200": (4232, 0), "a": (8, 0), "h": (32, 2)}


def test_sinfo_by_node_counts_a_node_once_and_used_gpus_with_their_indexes() -> None:
    text = (
        "n1|mixed|gpu:a:4(S:0-1)|gpu:a:3(IDX:0,2-3)|\nn1|mixed|gpu:a:4(S:0-1)|gpu:a:3(IDX:0,2-3)|\n"
        "n2|idle~|gpu:a:2,gpu:b:2|gpu:a:0(IDX:N/A),gpu:b:1(IDX:0)|\nn3|drained*|gpu:a:4|gpu:a:1(IDX:0)|\n"
        "n4|down*|(null)|(null)|\nn5|allocated|gpu:b:8|gpu:b:8(IDX:0-7)|\n"
    )
    nodes = sinfo_gpus(text)
    assert gpu_totals(nodes) == {"a": (10, 4), "b": (10, 9)}
    assert list(capacity(nodes)) == [
        ("scheduler_gpus_capacity", "", 20),
        ("scheduler_gpus_allocated", "", 13),
        ("scheduler_gpus_idle", "", 4),
        ("scheduler_gpus_down", "reason=drain", 3),
        ("scheduler_gpus_down", "reason=down", 0),
    ]


@captured
def test_captured_scontrol() -> None:
    text = (CAPTURES / "scontrol_show_job_dd.txt").read_text()
    (job,) = scontrol_jobs(text, UTC)
    assert (job.job_id, job.name, job.user_id, job.account, job.partition) == (
        "10804568",
        "train.py-00",
        "10001",
        "team_a",
        "gpu",
    )
    assert job.gpus == 16
    assert job.node_gpus == {"node-001": tuple(range(8)), "node-002": tuple(range(8))}
    assert (job.start_ms, job.end_ms, job.elapsed_seconds) == (1_628_519_418_000, None, 73_650)
    assert "user1" not in repr(job)
    assert "train.slurm" not in repr(job)


def test_numbers_beyond_all_cost_themselves() -> None:
    big = "9" * 5000
    assert (gres_count(f"gpu:{big},gpu:a:2"), tres_count(f"gres/gpu={big}")) == (2, None)
    assert (indexes_of(f"{big},3"), len(hosts_of(f"n[{big}-{big}]"))) == ((3,), 1)
    (job,) = scontrol_jobs(f"JobId=1\n   Restarts={big} StartTime={big} RunTime={big}:00:00 ExitCode={big}:1", UTC)
    assert (job.restarts, job.start_ms, job.elapsed_seconds, job.exit_code) == (None,) * 4
    text = f"JobIDRaw|State|ElapsedRaw|Start|ExitCode\n1|FAILED|{big}|{big}|{big}:9\n2|FAILED|5|7|1:9\n"
    assert [(job.elapsed_seconds, job.exit_code) for job in sacct_jobs(text, UTC).jobs] == [(None, None), (5, 1)]
    with pytest.raises(Rejected):
        jobs_of_json('{"jobs": [{"job_id": 1e999}]}')


@pytest.mark.parametrize(
    ("text", "name", "user"),
    [
        ("JobId=8 JobName=lr=0.1 wd=0\n   UserId=u(5) GroupId=g(5)", "lr=0.1 wd=0", "5"),
        ("JobId=8 JobName=lr=0.1 wd=0 UserId=u(5) GroupId=g(5) JobState=RUNNING", "lr=0.1 wd=0", "5"),
        ("JobId=8 JobName=x JobState=FAILED\n   UserId=u(5)\n   JobState=RUNNING", "x JobState=FAILED", "5"),
        ("JobId=8 JobName=\n   UserId=u(5)", "", "5"),
    ],
)
def test_a_job_s_name_may_hold_anything(text: str, name: str, user: str) -> None:
    (job,) = scontrol_jobs(text, UTC)
    assert (job.name, job.user_id, job.state is JobState.FAILED) == (name, user, False)


def test_scontrol_of_several_jobs_arrays_and_odd_values() -> None:
    text = (
        "JobId=8 ArrayJobId=7 ArrayTaskId=3 JobName=a name = with signs\n"
        "   UserId=u(5) GroupId=g(5) Account=(null)\n   JobState=CANCELLED Reason=x ExitCode=0:15\n"
        "   StartTime=Unknown EndTime=1700000000 RunTime=1-02:03:04\n   NodeList=n1\n"
        "     Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:a:1(IDX:0),gpu:b:2(IDX:2,5)\n"
        "   Comment=JobState=RUNNING Account=evil\n\n"
        "JobId=9 JobName=b\n   JobState=PENDING NodeList=(null)\n   TRES=cpu=1,gres/gpu=4\n"
        "   Command=x JobState=RUNNING\n"
    )
    first, second = scontrol_jobs(text, UTC)
    assert (first.array_id, first.state, first.account, first.signal) == ("7_3", JobState.CANCELLED, "", 15)
    assert (first.start_ms, first.end_ms, first.elapsed_seconds) == (None, 1_700_000_000_000, 93_784)
    assert first.node_gpus == {"n1": (0, 2, 5)}
    assert (second.job_id, second.state, second.gpus) == ("9", JobState.PENDING, None)


@captured
def test_captured_squeue() -> None:
    text = (CAPTURES / "squeue_O_24_11.txt").read_text()
    fields = ("JobID", "Account", "User", "Partition", "State", "NumNodes", "NumCPUs", "tres-alloc")
    found = squeue_jobs(text, fields)
    states = [job.state for job in found.jobs]
    assert (len(states), states.count(JobState.PENDING), states.count(JobState.RUNNING)) == (15, 4, 11)
    assert {job.gpus for job in found.jobs if job.state is JobState.PENDING} == {None}
    assert {job.gpus for job in found.jobs if job.state is JobState.RUNNING} == {0}
    assert {job.user_id for job in found.jobs} == {""}
    assert not found.refused


def test_a_request_is_not_an_allocation() -> None:
    lines = ["1|a|7|p|PENDING|1|4|cpu=4,gres/gpu=8|", "2|a|7|p|RUNNING|1|4|cpu=4,gres/gpu=2|", "x|y", "3|a|b"]
    found = squeue_jobs("\n".join(lines))
    assert [(job.job_id, job.gpus, job.user_id) for job in found.jobs] == [("1", None, "7"), ("2", 2, "7")]
    assert found.refused == {"line": 2}


@captured
def test_captured_json_lines() -> None:
    found = squeue_jobs((CAPTURES / "json_lines_squeue_fallback.txt").read_text())
    assert [job.job_id for job in found.jobs] == ["26515966", "50580016", "51447051", "51447052", "51447053", "18804"]
    assert found.refused == {"line": 3}
    assert {job.account for job in found.jobs} == {"account1"}


def test_a_quote_inside_a_line_costs_that_line() -> None:
    lines = ['{"a": "x", "id": 1, "state": "PENDING", "p": "q", "r": "he said "no""}', '{"id": 2, "state": "RUNNING"}']
    found = squeue_jobs("\n".join(lines))
    assert ([job.job_id for job in found.jobs], found.refused) == (["2"], {"line": 1})


@captured
def test_captured_slurmrestd() -> None:
    (job,) = jobs_of_json((CAPTURES / "slurmrestd_v0_0_37_job.json").read_text())
    assert (job.job_id, job.user_id, job.account, job.partition) == ("26515966", "10005", "account1", "hw-l")
    assert (job.state, job.nodes, job.gpus, job.restarts) == (JobState.RUNNING, ("node-001",), 0, 0)
    assert (job.start_ms, job.end_ms) == (1_684_114_921_000, None)
    assert "user5" not in repr(job)
    assert "sleep" not in repr(job)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ({"set": True, "infinite": False, "number": 7}, 7),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, None),
        ({"number": 7}, None),
        (None, None),
        (True, None),
        ("7", None),
    ],
)
def test_numbers_of_slurm_s_json(value: Any, number: int | None) -> None:
    assert number_of(value) == number


def new_json(**more: Any) -> str:
    def number(value: int | None) -> dict[str, Any]:
        return {"set": value is not None, "infinite": False, "number": value or 0}

    job = {
        "job_id": 9,
        "name": "n",
        "user_id": 5,
        "account": "a",
        "partition": "p",
        "job_state": ["COMPLETING", "FAILED"],
        "nodes": "n[1-2]",
        "tres_alloc_str": "cpu=1,gres/gpu=3,gres/gpu:h100=3",
        "gres_detail": ["gpu:h100:1(IDX:4)", "gpu:h100:2(IDX:0,3)"],
        "start_time": number(1_700_000_000),
        "end_time": number(1_700_000_060),
        "eligible_time": number(None),
        "array_job_id": number(8),
        "array_task_id": number(2),
        "restart_cnt": 4,
        "exit_code": {"status": ["ERROR"], "return_code": number(3), "signal": {"id": number(9), "name": "KILL"}},
    }
    return json.dumps({"jobs": [job | more, 7, {"job_id": None}]})


def test_json_of_newer_versions() -> None:
    (job,) = jobs_of_json(new_json())
    assert (job.state, job.gpus, job.array_id, job.restarts) == (JobState.FAILED, 3, "8_2", 4)
    assert job.node_gpus == {"n1": (4,), "n2": (0, 3)}
    assert (job.start_ms, job.end_ms, job.eligible_ms) == (1_700_000_000_000, 1_700_000_060_000, None)
    assert (job.exit_code, job.signal) == (3, 9)
    (waiting,) = jobs_of_json(new_json(job_state=["PENDING"]))
    assert (waiting.gpus, waiting.start_ms) == (None, None)
    (old,) = jobs_of_json(new_json(job_state="CANCELLED", exit_code=15, end_time=1_700_000_060, array_task_id=None))
    assert (old.state, old.exit_code, old.signal, old.array_id) == (JobState.CANCELLED, 0, 15, "")
    assert [job.job_id for job in squeue_jobs(new_json()).jobs] == ["9"]


@pytest.mark.parametrize("text", ["", "[]", "7", '{"errors": []}', '{"jobs": 7}', "\0"])
def test_what_is_no_list_of_jobs_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        jobs_of_json(text)
    assert refused.value.code == "bad_slurm_json"


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("1700000000", UTC, 1_700_000_000_000),
        ("2024-10-27T01:10:00", BERLIN, 1_729_984_200_000),
        ("2024-10-27T03:30:00", BERLIN, 1_729_996_200_000),
        ("2024-10-27T02:30:00", BERLIN, 1_729_989_000_000),
        ("Unknown", UTC, None),
        ("None", UTC, None),
        ("N/A", UTC, None),
        ("", UTC, None),
        ("0", UTC, None),
        ("2024-13-45T00:00:00", UTC, None),
    ],
)
def test_times(text: str, zone: ZoneInfo, expected: int | None) -> None:
    assert time_ms(text, zone) == expected


@captured
def test_captured_sacct() -> None:
    found = sacct_jobs((CAPTURES / "sacct_P_gpu_states.txt").read_text(), BERLIN)
    jobs = {job.job_id: job for job in found.jobs}
    assert list(jobs) == ["8117657", "8117678", "8117700", "8117701_[4-9%2]", "8117702", "8117703+0", "8117704"]
    assert not found.refused
    ended = ("8117657", "8117678", "8117700", "8117703+0", "8117704")
    assert [jobs[name].gpu_seconds for name in ended] == [3600, 93_784, 19_200, 1200, 1200]
    assert [jobs[name].state for name in ended] == [
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.NODE_FAILURE,
        JobState.OUT_OF_MEMORY,
        JobState.PREEMPTED,
    ]
    cancelled = jobs["8117678"]
    assert (cancelled.cancelled_by, cancelled.signal) == ("1001", 15)
    assert (cancelled.end_ms or 0) - (cancelled.start_ms or 0) == 93_784_000
    assert jobs["8117703+0"].nodes == ("node-005", "node-006")
    assert jobs["8117701_[4-9%2]"].gpus is None
    assert {name for name, job in jobs.items() if exit_event(job, {}) is None} == {"8117701_[4-9%2]", "8117702"}


HEADER = "JobIDRaw|JobID|UID|Account|State|ExitCode|Start|End|ElapsedRaw|AllocTRES|NodeList|JobName"


def account(*rows: str, zone: ZoneInfo = BERLIN) -> Any:
    return sacct_jobs("\n".join([HEADER, *rows]), zone)


def test_an_end_inside_the_hour_that_stands_twice_is_told_by_the_time_it_ran() -> None:
    (job,) = account("1|1|5|a|COMPLETED|0:0|2024-10-27T01:30:00|2024-10-27T02:30:00|7200|gres/gpu=1|n1|x").jobs
    assert (job.end_ms or 0) - (job.start_ms or 0) == 7_200_000
    (job,) = account("1|1|5|a|COMPLETED|0:0|2024-10-27T01:30:00|2024-10-27T02:30:00|3600|gres/gpu=1|n1|x").jobs
    assert (job.end_ms or 0) - (job.start_ms or 0) == 3_600_000


def test_a_name_may_hold_the_delimiter() -> None:
    found = account("1|1|5|a|FAILED|1:0|1700000000|1700000060|60|gres/gpu=1|n1|a|b||c", "2|2|5", "")
    assert [job.name for job in found.jobs] == ["a|b||c"]
    assert found.refused == {"line": 1}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("1|1|5|a|RUNNING|0:0|1700000000|Unknown|60|gres/gpu=1|n1|x", None),
        ("1|1|5|a|PENDING|0:0|Unknown|Unknown|0||None assigned|x", None),
        ("1|1|5|a|NODE_FAIL|0:0|1700000000|Unknown|60|gres/gpu=1|n1|x", (1_700_000_060_000, "estimate")),
        ("1|1|5|a|CANCELLED by 7|0:0|None|1700000060|0||None assigned|x", (1_700_000_060_000, "exact")),
        ("1|1|5|a|COMPLETED|0:0|Unknown|Unknown||gres/gpu=1|n1|x", None),
        ("1|1|5|a|REQUEUED|0:0|1700000000|1700000060|60|gres/gpu=1|n1|x", (1_700_000_060_000, "exact")),
    ],
)
def test_ends(row: str, expected: tuple[int, str] | None) -> None:
    (job,) = account(row).jobs
    event = exit_event(job, {})
    assert (event and (event.time_ms, event.attributes["end"])) == expected


def test_runs_of_a_requeued_job_are_two_ends() -> None:
    found = account(
        "1|1|5|a|NODE_FAIL|0:0|1700000000|1700000060|60|gres/gpu=2|n1|x",
        "1|1|5|a|COMPLETED|0:0|1700000100|1700000200|100|gres/gpu=2|n1|x",
        "1.batch|1.batch||a|COMPLETED|0:0|1700000100|1700000200|100|gres/gpu=2|n1|batch",
    )
    events = [exit_event(job, {"a": "Team"}) for job in found.jobs]
    assert [
        (event.time_ms, event.attributes["reason"], event.attributes["gpu_seconds"]) for event in events if event
    ] == [
        (1_700_000_060_000, "node_fail", "120"),
        (1_700_000_200_000, "completed", "200"),
    ]
    assert len({event.attributes["id"] for event in events if event}) == 2


class Cluster:
    """Programs that print files, and the reader that runs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(T0)
        self.means = means_of(self.clock)
        self.settings: dict[str, Any] = {"sacct": self.program("sacct"), "interval_minutes": 10}
        self.tick_ms = T0
        self.say("sacct", "|".join(COLUMNS))
        self.reader: SchedulerReader | None = None

    def program(self, name: str) -> str:
        path = self.folder / name
        out, calls = self.folder / f"{name}.out", self.folder / f"{name}.calls"
        path.write_text(f'#!/bin/sh\necho "$@ $SLURM_TIME_FORMAT $TZ" >> {calls}\n. {out}.rc\ncat {out}\n')
        path.chmod(0o755)
        self.say(name, "")
        return str(path)

    def say(self, name: str, text: str, before: str = "") -> None:
        (self.folder / f"{name}.out").write_text(text + "\n")
        (self.folder / f"{name}.out.rc").write_text(before + "\n")

    def calls(self, name: str) -> list[str]:
        return (self.folder / f"{name}.calls").read_text().splitlines()

    def read(self) -> Tick:
        if self.reader is None:
            self.reader = SchedulerReader(SacctConfig(**self.settings), station_of(self.folder), self.means)
        tick = self.reader.read(self.tick_ms)
        self.tick_ms += 600_000
        self.clock.move(600)
        return tick


ROW = "77|70_7|1001|physics|gpu|COMPLETED|0:0|1729999000|1729999100|1729999900|800|gres/gpu=4|n[1-2]|train"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_pull_gives_events_and_facts_once(cluster: Cluster) -> None:
    cluster.settings["teams"] = {"physics": "Team P"}
    cluster.say("sacct", "|".join(COLUMNS) + "\n" + ROW)
    tick = cluster.read()
    (event,) = events_of(tick)
    assert (event.metric, event.entity, event.time_ms, event.code) == ("job_exit", "77", 1_729_999_900_000, 0)
    wanted = {
        "reason": "completed",
        "gpu_seconds": "3200",
        "owner_team": "Team P",
        "user_id": "1001",
        "array_id": "70_7",
    }
    assert {name: event.attributes[name] for name in wanted} == wanted
    (info,) = infos_of(tick)
    assert (info.metric, info.time_ms, info.attributes["name"]) == ("job_info", 1_729_999_100_000, "train")
    again = cluster.read()
    assert (events_of(again), infos_of(again)) == ([], [])
    cluster.reader = None
    assert events_of(cluster.read()) == [event]


def test_windows_are_bounded_and_overlap(cluster: Cluster) -> None:
    cluster.settings |= {"window_hours": 6, "overlap_minutes": 30}
    cluster.read()
    cluster.read()
    cluster.tick_ms += 20 * 3_600_000
    cluster.reader = None
    for _ in range(4):
        cluster.read()
    spans = [
        [word.partition("=")[2][:16] for word in call.split() if "time=" in word] for call in cluster.calls("sacct")
    ]
    assert spans[:3] == [
        ["2024-10-26T21:33", "2024-10-27T03:33"],
        ["2024-10-27T03:03", "2024-10-27T03:43"],
        ["2024-10-27T03:13", "2024-10-27T09:13"],
    ]
    assert spans[-1][1] == "2024-10-28T00:23"
    assert all(call.endswith(" %s UTC") for call in cluster.calls("sacct"))


def test_055_a_command_that_fails_is_unknown_alone(cluster: Cluster) -> None:
    cluster.settings |= {"sinfo": cluster.program("sinfo"), "squeue": cluster.program("squeue")}
    fatal = 'echo "sacct: fatal: AllocGRES has been removed, please use AllocTRES" >&2; exit 1'
    cluster.say("sacct", "", fatal)
    cluster.say("sinfo", "n1|idle|gpu:a:4|gpu:a:1(IDX:0)|")
    cluster.say("squeue", "7|a|5|gpu|PENDING|1|1||\n8|a|5|gpu|RUNNING|1|1|gres/gpu=1|\n9|a|5|cpu|RUNNING|1|1|cpu=1|")
    tick = cluster.read()
    assert cluster.means.counts.labelled("scheduler_failed") == {"sacct": 1}
    metrics = {column.metric for content in tick.contents for column in content.schema.columns}
    assert metrics == {
        "job_state",
        "scheduler_gpus_allocated",
        "scheduler_gpus_capacity",
        "scheduler_gpus_idle",
        "scheduler_queue_depth",
    }
    parts = {(e.entity, e.part) for content in tick.contents for e in content.entities.entities}
    assert {("slurm/node-a", "queue=gpu"), ("slurm/node-a", "queue=cpu"), ("7", ""), ("8", "")} <= parts
    cluster.say("sacct", "|".join(COLUMNS) + "\n" + ROW)
    cluster.say("sinfo", "", "exit 3")
    cluster.say("squeue", "", "exec sleep 60")
    cluster.settings["timeout_seconds"] = 0.3
    cluster.reader = None
    assert [event.entity for event in events_of(cluster.read())] == ["77"]
    assert cluster.means.counts.labelled("scheduler_failed") == {"sacct": 1, "sinfo": 1, "squeue": 1}


def test_a_pull_that_failed_is_made_again_from_where_the_last_one_ended(cluster: Cluster) -> None:
    cluster.read()
    cluster.say("sacct", "garbage")
    cluster.read()
    cluster.say("sacct", "|".join(COLUMNS))
    cluster.read()
    starts = [next(word for word in call.split() if "starttime" in word) for call in cluster.calls("sacct")]
    assert starts[1] == starts[2]


def test_programs_that_are_not_there_are_counted(cluster: Cluster) -> None:
    cluster.settings["sacct"] = "/no/such/sacct"
    assert events_of(cluster.read()) == []
    assert cluster.means.counts.labelled("scheduler_failed") == {"sacct": 1}


def test_slurmrestd_in_place_of_squeue(cluster: Cluster, tmp_path: Path) -> None:
    seen: list[str] = []

    def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        seen.append(f"{handler.path} {handler.headers['X-SLURM-USER-TOKEN']}")
        handler.send_response(200 if len(seen) == 1 else 500)
        body = new_json(job_state=["PENDING"]).encode()
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    (tmp_path / "token").write_text("abc\n")
    with http_server(respond) as url:
        cluster.settings |= {"jobs_url": url + "/slurm/v0.0.40/jobs?x=1", "token_file": tmp_path / "token"}
        tick = cluster.read()
        cluster.read()
    metrics = {column.metric for content in tick.contents for column in content.schema.columns}
    assert {"job_state", "job_restarts_total", "scheduler_queue_depth"} <= metrics
    assert seen[0] == "/slurm/v0.0.40/jobs?x=1 abc"
    assert cluster.means.counts.labelled("scheduler_failed") == {"squeue": 1}
    assert cluster.reader is not None
    cluster.reader.close()


def run_row(job: str, eligible: int | str, start: int | str, queue: str = "gpu", state: str = "RUNNING") -> str:
    """Return a run's row; times in seconds after T0."""
    times = [at if isinstance(at, str) else str(T0 // 1000 + at) for at in (eligible, start)]
    return f"{job}|{job}|1001|physics|{queue}|{state}|0:0|{times[0]}|{times[1]}|Unknown|10|gres/gpu=4|n1|x"


def waits_of(tick: Tick) -> dict[str, tuple[int, float, int]]:
    """Return part -> (count, sum in seconds, when counting began) of the histograms of a tick."""
    return {
        content.entities.entities[index].part: (int(rows.buckets[row].sum()), float(rows.sums[row]), int(since))
        for content in tick.contents
        for rows in content.histograms
        if content.schema.histograms[rows.column].metric == "scheduler_queue_wait_seconds"
        for row, (index, since) in enumerate(zip(rows.entity_index.tolist(), rows.start_times_ms.tolist(), strict=True))
    }


def test_how_long_runs_waited_counts_once_each_by_queue_and_goes_on_after_a_restart(cluster: Cluster) -> None:
    rows = [run_row("1", -500, -400), run_row("2", -30, -30, "cpu"), run_row("3", 0, "Unknown", state="PENDING")]
    cluster.say("sacct", "\n".join(["|".join(COLUMNS), *rows, run_row("9", -90_000, -89_000)]))
    day_ms = 24 * 3_600_000
    assert waits_of(cluster.read()) == {"queue=gpu": (1, 100, T0 - day_ms), "queue=cpu": (1, 0, T0 - day_ms)}
    cluster.reader = None
    again = [run_row("3", 0, 250), run_row("1", 300, 304), run_row("5", "Unknown", 310), run_row("6", 400, 320)]
    cluster.say("sacct", "\n".join(["|".join(COLUMNS), *rows[:2], *again]))
    for _ in range(3):
        tick = cluster.read()
    assert waits_of(tick) == {"queue=gpu": (3, 354, T0 - day_ms), "queue=cpu": (1, 0, T0 - day_ms)}
    cluster.say("sacct", "garbage")
    assert waits_of(cluster.read()) == {}


RUN = st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 30), st.sampled_from(["a", "b"]))


@given(st.lists(RUN, max_size=12), st.lists(st.integers(1, 15), min_size=1, max_size=8))
def test_waits_are_those_of_one_pull_however_accounting_is_read(runs: list[Any], steps: list[int]) -> None:
    """Windows overlap; what began and was accounted for within the overlap counts once, over restarts too."""
    jobs = [
        SlurmJob(str(job), partition=queue, state=JobState.RUNNING, eligible_ms=1000 * (at - wait), start_ms=1000 * at)
        for job, at, wait, queue in {(run[0], run[1]): run for run in runs}.values()
    ]
    metric, end_ms = means_of().catalog.get("scheduler_queue_wait_seconds"), 1000 * sum(steps)
    once, pulled = QueueWaits(), QueueWaits()
    once.take([job for job in jobs if (job.start_ms or 0) < end_ms], (0, end_ms), 0)
    at_ms = 0
    for step in steps:
        span = (max(at_ms - 5000, 0), at_ms + 1000 * step)
        pulled.take([job for job in jobs if (job.start_ms or 0) < span[1]], span, 5000)
        at_ms = span[1]
        kept = json.loads(json.dumps(pulled.kept()))
        pulled = QueueWaits()
        pulled.restore(kept)
    assert sorted(pulled.points(metric, "c")) == sorted(once.points(metric, "c"))


def test_waits_are_bounded() -> None:
    waits = QueueWaits()
    jobs = [
        SlurmJob(str(n), partition=str(n), state=JobState.RUNNING, eligible_ms=1000, start_ms=2000)
        for n in range(QUEUES_MAXIMUM + 3)
    ]
    waits.take(jobs, (0, 3000), 3000)
    assert len(list(waits.points(means_of().catalog.get("scheduler_queue_wait_seconds"), "c"))) == QUEUES_MAXIMUM
    assert (waits.take_refused(), waits.take_refused()) == ({"parts_limit": 3}, {})


OTHER_BOUNDS = {"queues": {"a": [[1], 2]}, "counted": [["1", T0 - 400_000]], "since_ms": 7}


@pytest.mark.parametrize(
    ("said", "hours"), [(7, 24), ({"through_ms": []}, 24), ({"through_ms": T0, "waits": OTHER_BOUNDS}, 1)]
)
def test_a_state_that_is_of_no_use_begins_anew(cluster: Cluster, said: Any, hours: int) -> None:
    station = station_of(cluster.folder)
    station.state_dir.mkdir(parents=True)
    (station.state_dir / "sacct.json").write_text(json.dumps(said))
    cluster.say("sacct", "|".join(COLUMNS) + "\n" + run_row("1", -500, -400))
    assert waits_of(cluster.read()) == {"queue=gpu": (1, 100, T0 - hours * 3_600_000)}


def test_a_program_that_prints_too_much_is_stopped() -> None:
    with pytest.raises(Retryable, match="more than 1 MiB"):
        output_of(["/usr/bin/yes"], {}, timeout_seconds=30, limit_bytes=1 << 20)


@pytest.mark.parametrize(
    "settings", [{"interval_minutes": 0}, {"timeout_seconds": 0}, {"window_hours": 1}, {"overlap_minutes": -1}]
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        SacctConfig(**settings)
    assert refused.value.code == "bad_config"


def gpus_by_node(lines: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return node -> (GPUs, MIG slices) of `sinfo -o "%n %G"`; a node is listed once for each of its partitions."""
    nodes: dict[str, tuple[int, int]] = {}
    for line in lines:
        name, _, text = line.strip().partition(" ")
        if name:
            nodes[name] = (gres_count(text), gres_count(text, "mig"))
    return nodes


def gpu_totals(nodes: Sequence[NodeGpus]) -> dict[str, tuple[int, int]]:
    """Return type -> (GPUs, of which in use)."""
    totals: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for node in nodes:
        for type_, count in node.total.items():
            totals[type_] += node.nodes * count
        for type_, count in node.used.items():
            used[type_] += node.nodes * count
    return {type_: (count, used[type_]) for type_, count in totals.items()}
