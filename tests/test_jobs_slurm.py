"""Which job has which GPU on a Slurm node: control groups of both versions, hooks, files, and all that is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs_fixture import GPUS, T0, events_of, means_of, owned, station_of, uuid
from secondsight.agent.jobs.cgroups import job_folders, minors_of, processes
from secondsight.agent.jobs.devices import Gpu
from secondsight.agent.jobs.environment import placed, process_environment
from secondsight.agent.jobs.hooks import Hook, read_hooks, runs_of, write_hook
from secondsight.agent.jobs.settings import SlurmConfig
from secondsight.agent.jobs.slurm import SlurmReader
from secondsight.clock import ManualClock
from secondsight.errors import Rejected, Retryable
from secondsight.mapping.allocation import CONFLICT
from slurm_node import BOOT_SECONDS, SlurmNode

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases/jobs/slurm_gpus.json").read_text())
JOB = {"SLURM_JOB_UID": "1001", "SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_NAME": "train", "SLURM_JOB_USER": "someone"}


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["name"])
def test_the_gpus_of_a_job(case: dict[str, Any]) -> None:
    found = placed(case["environments"], case.get("minors"), GPUS, by=case.get("by", "minor"))
    named = [" ".join(text for text in (str(int(entity[-4:])), part) if text) for entity, part in found.places]
    assert (named, found.reason) == (case["places"], case.get("reason", ""))


def test_a_minor_is_told_from_an_index() -> None:
    """Device node 0 is index 6, and 4 is index 0."""
    gpus = (Gpu(uuid(7), 6, 0), Gpu(uuid(1), 0, 4))
    assert placed([], [0], gpus).places == ((uuid(7), ""),)
    assert placed([{"SLURM_JOB_GPUS": "4"}], None, gpus).places == ((uuid(1), ""),)


@pytest.mark.parametrize(
    ("lines", "minors"),
    [
        (["a *:* rwm"], None),
        (["c 195:* rw"], None),
        (["c *:* m", "c 195:0 rw", "c 195:255 rw", "c 195:254 rw", "c 1:3 rwm", "b 8:0 r"], None),
        (["c 195:0 rw", "c 195:255 rw", "c 195:4 rw", "c 1:3 rwm", "b 8:0 r"], (0, 4)),
        (["c 1:3 rwm"], ()),
        (["nonsense", ""], ()),
    ],
)
def test_the_minors_of_a_device_list(lines: list[str], minors: tuple[int, ...] | None) -> None:
    assert minors_of(lines) == minors


class Site:
    """A node and its reader; a tick is 5 s."""

    def __init__(self, folder: Path, version: int = 2) -> None:
        self.folder = folder
        self.node = SlurmNode(folder / "root", version)
        self.hooks = folder / "hooks"
        self.settings: dict[str, Any] = {"hooks_dir": self.hooks}
        self.clock = ManualClock(T0)
        self.means = means_of(self.clock)
        self.tick_ms = T0
        self._reader: SlurmReader | None = None

    @property
    def reader(self) -> SlurmReader:
        if self._reader is None:
            station = station_of(self.folder, self.node.root)
            self._reader = SlurmReader(SlurmConfig(**self.settings), station, self.means)
        return self._reader

    def read(self, ticks: int = 1) -> Any:
        for _ in range(ticks):
            try:
                tick = self.reader.read(self.tick_ms)
            finally:
                self.tick_ms += 5000
                self.clock.move(5)
        return tick

    def restart(self, after_ms: int) -> None:
        self._reader = None
        self.tick_ms += after_ms
        self.clock.move(after_ms / 1000)

    def hook(self, word: str, job: int, at_ms: int, **variables: str) -> None:
        write_hook(self.hooks, word, {"SLURM_JOB_ID": str(job)} | JOB | variables, at_ms)


@pytest.fixture(params=[1, 2])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path, request.param)


@pytest.fixture
def node2(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_job_comes_and_goes(site: Site) -> None:
    assert owned(site.read()) == {}
    site.node.start(77, JOB | {"SLURM_JOB_GPUS": "4,0", "SLURM_JOB_START_TIME": str(T0 // 1000 + 3)})
    tick = site.read()
    assert owned(tick) == {f"{uuid(number)} 77": ("sole", T0 + 3000, None, 1) for number in (1, 4)}
    attributes = events_of(tick)[0].attributes
    names = ("workload_id", "owner_team", "user_id", "start", "via")
    assert [attributes[name] for name in names] == ["train", "physics", "1001", "exact", "slurm"]
    assert "someone" not in json.dumps(dict(attributes))
    assert owned(site.read(10)) == {}
    site.node.end(77)
    assert owned(site.read()) == {f"{uuid(number)} 77": ("sole", T0 + 3000, T0 + 60_000, 2) for number in (1, 4)}


def test_the_start_of_the_first_process_is_a_guess(site: Site) -> None:
    at = T0 // 1000 - BOOT_SECONDS - 40
    site.node.start(77, JOB | {"SLURM_JOB_GPUS": "4"}, at=at)
    tick = site.read()
    assert owned(tick) == {f"{uuid(1)} 77": ("sole", T0 - 40_000, None, 1)}
    assert events_of(tick)[0].attributes["start"] == "estimate"


def test_a_job_is_seen_before_its_processes_are(site: Site) -> None:
    site.node.start(77)
    assert owned(site.read()) == {}
    site.node.start(77, JOB | {"SLURM_JOB_GPUS": "4"})
    assert set(owned(site.read())) == {f"{uuid(1)} 77"}


def test_an_environment_of_another_job_is_not_believed(site: Site) -> None:
    site.node.start(77, {"SLURM_JOB_ID": "78", "SLURM_JOB_GPUS": "4"})
    assert owned(site.read()) == {}


def test_devices_of_the_control_group_come_first(tmp_path: Path) -> None:
    site = Site(tmp_path, version=1)
    site.node.start(77, JOB | {"CUDA_VISIBLE_DEVICES": "0"}, devices="c 195:0 rw\nc 195:255 rw")
    tick = site.read()
    assert set(owned(tick)) == {f"{uuid(4)} 77"}


def test_two_jobs_of_one_gpu_own_nothing(site: Site) -> None:
    for job in (77, 78):
        site.node.start(job, JOB | {"SLURM_JOB_GPUS": "4"})
    tick = site.read()
    assert {share for share, *_ in owned(tick).values()} == {"ambiguous"}
    assert [event.code for event in events_of(tick) if event.metric == CONFLICT] == [2]


def test_shares_of_a_gpu_own_nothing(site: Site) -> None:
    for job in (77, 78):
        site.node.start(job, JOB | {"SLURM_JOB_GPUS": "4", "SLURM_SHARDS_ON_NODE": "8"})
    tick = site.read()
    assert {share for share, *_ in owned(tick).values()} == {"shared"}
    assert [event for event in events_of(tick) if event.metric == CONFLICT] == []


def test_teams_and_models(node2: Site) -> None:
    node2.settings |= {"teams": {"physics": "Team P"}, "model_variable": "MODEL"}
    node2.node.start(77, JOB | {"SLURM_JOB_GPUS": "4", "MODEL": "tern"})
    attributes = events_of(node2.read())[0].attributes
    assert (attributes["owner_team"], attributes["model_id"]) == ("Team P", "tern")


def test_the_user_s_id_is_in_the_path_of_version_1(tmp_path: Path) -> None:
    site = Site(tmp_path, version=1)
    site.node.start(77, {"SLURM_JOB_GPUS": "4"}, uid=2002)
    assert events_of(site.read())[0].attributes["user_id"] == "2002"


def test_what_may_not_be_looked_at_is_said(node2: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    node2.node.start(77, JOB | {"SLURM_JOB_GPUS": "4"})

    def refused(*_arguments: object) -> dict[str, str]:
        raise PermissionError

    monkeypatch.setattr("secondsight.agent.jobs.node.process_environment", refused)
    assert owned(node2.read()) == {}
    assert node2.means.counts.labelled("job_unresolved") == {"no_permission": 1}


def test_no_control_groups_is_no_end(node2: Site) -> None:
    node2.settings = {}
    node2.node.start(77, JOB | {"SLURM_JOB_GPUS": "4"})
    node2.read()
    (node2.node.root / "sys").rename(node2.folder / "away")
    for _ in range(9):
        with pytest.raises(Retryable, match=r"mount the host's /sys/fs/cgroup.*1 allocations"):
            node2.read()
    (node2.folder / "away").rename(node2.node.root / "sys")
    assert owned(node2.read()) == {}


def test_gpus_that_are_not_known_for_a_while_are_no_end(node2: Site) -> None:
    node2.node.start(77, JOB | {"SLURM_JOB_GPUS": "4"})
    node2.read()
    node2.means.gpus.present = ()
    assert owned(node2.read(3)) == {}
    node2.means.gpus.present = GPUS
    assert owned(node2.read()) == {}


def test_an_agent_that_was_down_closes_what_ended_at_the_last_sight(node2: Site) -> None:
    for job, gpu in ((77, "4"), (78, "5")):
        node2.node.start(job, JOB | {"SLURM_JOB_GPUS": gpu, "SLURM_JOB_START_TIME": str(T0 // 1000)})
    node2.read()
    node2.node.end(77)
    node2.restart(3_600_000)
    tick = node2.read()
    assert owned(tick) == {f"{uuid(1)} 77": ("sole", T0, T0, 2), f"{uuid(2)} 78": ("sole", T0, None, 1)}
    assert {e.attributes.get("end") for e in events_of(tick)} == {"estimate", None}


def test_hooks_tell_exact_times(site: Site) -> None:
    site.hook("start", 77, T0 - 1234, SLURM_JOB_GPUS="4")
    assert owned(site.read()) == {f"{uuid(1)} 77": ("sole", T0 - 1234, None, 1)}
    site.node.start(77, JOB | {"SLURM_JOB_GPUS": "4", "SLURM_JOB_START_TIME": str(T0 // 1000 - 1)})
    assert owned(site.read(3)) == {}
    site.hook("end", 77, T0 + 17_321)
    tick = site.read()
    assert owned(tick) == {f"{uuid(1)} 77": ("sole", T0 - 1234, T0 + 17_321, 2)}
    assert events_of(tick)[0].attributes["end"] == "exact"
    assert owned(site.read(5)) == {}
    assert list(site.hooks.iterdir()) == []
    site.node.end(77)
    assert owned(site.read(5)) == {}


def test_a_job_whose_prolog_and_epilog_ran_between_two_looks(site: Site) -> None:
    site.hook("start", 77, T0 - 4000, SLURM_JOB_GPUS="4")
    site.hook("end", 77, T0 - 1000)
    assert owned(site.read()) == {f"{uuid(1)} 77": ("sole", T0 - 4000, T0 - 1000, 2)}
    assert owned(site.read()) == {}


def test_what_ended_while_the_agent_was_down_has_the_epilog_s_time(site: Site) -> None:
    site.hook("start", 77, T0, SLURM_JOB_GPUS="4")
    site.read()
    site.hook("end", 77, T0 + 100_000)
    site.hook("start", 78, T0 + 101_000, SLURM_JOB_GPUS="4")
    site.hook("end", 78, T0 + 102_000)
    site.hook("start", 79, T0 + 103_000, SLURM_JOB_GPUS="4")
    site.node.start(79, JOB)
    site.restart(600_000)
    assert owned(site.read()) == {
        f"{uuid(1)} 77": ("sole", T0, T0 + 100_000, 2),
        f"{uuid(1)} 78": ("sole", T0 + 101_000, T0 + 102_000, 2),
        f"{uuid(1)} 79": ("sole", T0 + 103_000, None, 1),
    }


def test_a_job_that_is_requeued_has_two_intervals(site: Site) -> None:
    site.hook("start", 77, T0, SLURM_JOB_GPUS="4")
    site.read()
    site.hook("end", 77, T0 + 6000)
    site.hook("start", 77, T0 + 8000, SLURM_JOB_GPUS="5")
    assert owned(site.read()) == {
        f"{uuid(1)} 77": ("sole", T0, T0 + 6000, 2),
        f"{uuid(2)} 77": ("sole", T0 + 8000, None, 1),
    }
    site.hook("end", 77, T0 + 9000)
    assert owned(site.read()) == {f"{uuid(2)} 77": ("sole", T0 + 8000, T0 + 9000, 2)}


def test_an_end_without_a_start_ends_what_is_known(site: Site) -> None:
    site.node.start(77, JOB | {"SLURM_JOB_GPUS": "4", "SLURM_JOB_START_TIME": str(T0 // 1000)})
    site.read()
    site.hook("end", 77, T0 + 3333)
    assert owned(site.read()) == {f"{uuid(1)} 77": ("sole", T0, T0 + 3333, 2)}
    assert owned(site.read(4)) == {}


def test_a_prolog_whose_epilog_never_ran(site: Site) -> None:
    site.hook("start", 77, T0, SLURM_JOB_GPUS="4")
    site.node.start(77, JOB | {"SLURM_JOB_GPUS": "4"})
    site.read()
    site.node.end(77)
    assert owned(site.read(12)) == {}
    assert owned(site.read()) == {f"{uuid(1)} 77": ("sole", T0, T0, 2)}
    assert site.means.counts.get("job_hook_stale") == 1
    site.read()
    assert list(site.hooks.iterdir()) == []


def test_a_prolog_of_an_earlier_boot(site: Site) -> None:
    site.hook("start", 77, BOOT_SECONDS * 1000 - 1, SLURM_JOB_GPUS="4")
    assert owned(site.read()) == {}
    assert site.means.counts.get("job_hook_stale") == 1


def test_hooks_alone_need_no_control_groups(node2: Site) -> None:
    (node2.node.root / "sys").rename(node2.folder / "away")
    node2.hook("start", 77, T0 - 100_000, SLURM_JOB_GPUS="4")
    assert set(owned(node2.read())) == {f"{uuid(1)} 77"}
    assert owned(node2.read(30)) == {}
    node2.hooks.rename(node2.folder / "hooks-away")
    assert owned(node2.read(5)) == {}
    (node2.folder / "hooks-away").rename(node2.hooks)
    node2.hook("end", 77, T0 + 160_000)
    assert owned(node2.read())[f"{uuid(1)} 77"][2] == T0 + 160_000


@pytest.mark.parametrize(
    "text",
    [
        "SLURM_JOB_ID=77\nSLURM_JOB_GPUS=4\nSLURM_JOB_USER=someone\n",
        "export SLURM_JOB_ID=77\nSLURM_JOB_GPUS=4\nTIME_MS=1730000001000\nHOME=/nowhere\n",
        '{"time_ms": 1730000001000, "variables": {"SLURM_JOB_ID": "77", "SLURM_JOB_GPUS": "4"}}',
    ],
)
def test_a_hook_written_by_a_shell(node2: Site, text: str) -> None:
    node2.hooks.mkdir()
    path = node2.hooks / "77.start"
    path.write_text(text)
    os.utime(path, (T0 / 1000 + 1, T0 / 1000 + 1))
    node2.read()
    hooks, refused = read_hooks(node2.hooks)
    assert [(hook.job_id, hook.time_ms, dict(hook.variables)) for hook in hooks] == [
        ("77", T0 + 1000, {"SLURM_JOB_ID": "77", "SLURM_JOB_GPUS": "4"})
    ]
    assert refused == 0


def test_files_that_are_no_hooks_are_counted_and_left(node2: Site) -> None:
    node2.hooks.mkdir()
    for name, text in (("a.start", "nonsense"), ("b.end", "{"), ("c.start", '{"time_ms": null}'), ("readme", "x")):
        (node2.hooks / name).write_text(text)
    (node2.hooks / ".77.start.9").write_text("half")
    node2.hook("start", 78, T0, SLURM_JOB_GPUS="4")
    assert set(owned(node2.read())) == {f"{uuid(1)} 78"}
    assert node2.means.counts.get("job_hook_unreadable") == 3


def test_runs_of_hooks() -> None:
    def hook(job: str, word: str, at: int) -> Hook:
        return Hook(job, word == "start", at, {}, Path(f"{job}-{at}.{word}"))

    hooks = [
        hook("1", "start", 1),
        hook("2", "end", 2),
        hook("1", "start", 5),
        hook("1", "end", 9),
        hook("3", "start", 9),
    ]
    runs, lonely = runs_of(hooks)
    assert [(run.start.job_id, run.start.time_ms, run.end_ms) for run in runs] == [
        ("1", 1, 5),
        ("1", 5, 9),
        ("3", 9, None),
    ]
    assert [each.job_id for each in lonely] == ["2"]


def test_a_folder_of_job_files(node2: Site) -> None:
    folder = node2.folder / "gpus"
    folder.mkdir()
    node2.settings = {"gpu_jobs_dir": folder}
    for name, text in (("0", "77\n"), ("1", ""), ("2.1", "78\n"), ("3", "79\n80\n"), ("99", "81\n"), ("notes", "82")):
        (folder / name).write_text(text)
        os.utime(folder / name, (T0 / 1000, T0 / 1000))
    assert owned(node2.read()) == {
        f"{uuid(1)} 77": ("sole", T0, None, 1),
        f"{uuid(3)} gi=1 78": ("sole", T0, None, 1),
        f"{uuid(4)} 79": ("shared", T0, None, 1),
        f"{uuid(4)} 80": ("shared", T0, None, 1),
    }
    (folder / "0").write_text("")
    assert owned(node2.read()) == {f"{uuid(1)} 77": ("sole", T0, T0 + 5000, 2)}
    folder.rename(node2.folder / "away")
    (node2.node.root / "sys").rename(node2.folder / "sys")
    assert owned(node2.read()) == {}
    assert node2.means.counts.get("job_files_failed") == 1


def test_a_folder_of_json_files(node2: Site) -> None:
    folder = node2.folder / "gpus"
    folder.mkdir()
    node2.settings = {"gpu_json_dir": folder}
    job = {"SLURM_JOB_ID": 77, "SLURM_JOB_USER": "someone", "SLURM_JOB_PARTITION": "p", "SLURM_JOB_ACCOUNT": "acc"}
    for name, text in (("128", json.dumps(job)), ("1", "{"), ("2", ""), ("3", "[]")):
        (folder / name).write_text(text)
    tick = node2.read()
    assert set(owned(tick)) == {f"{uuid(1)} 77"}
    assert events_of(tick)[0].attributes["owner_team"] == "acc"
    assert "someone" not in json.dumps(dict(events_of(tick)[0].attributes))
    (folder / "128").unlink()
    assert owned(node2.read())[f"{uuid(1)} 77"][2] is not None


def test_scontrol_is_asked_once_for_a_job_whose_gpus_are_not_to_be_had(node2: Site) -> None:
    program, calls = node2.folder / "scontrol", node2.folder / "calls"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        "echo 'JobId=77 JobName=x'\necho '   JobState=RUNNING'\n"
        "echo '     Nodes=node-[a,b] CPU_IDs=0 Mem=1 GRES=gpu:h100:2(IDX:0,4)'\n"
    )
    program.chmod(0o755)
    node2.settings["scontrol"] = str(program)
    node2.node.start(77, JOB | {"CUDA_VISIBLE_DEVICES": "0,1", "SLURMD_NODENAME": "node-a"})
    assert set(owned(node2.read())) == {f"{uuid(1)} 77", f"{uuid(4)} 77"}
    node2.read(5)
    assert calls.read_text() == "--details show job 77\n"


def test_a_scontrol_that_fails_is_counted(node2: Site) -> None:
    node2.settings["scontrol"] = "/nowhere/scontrol"
    node2.node.start(77, JOB | {"CUDA_VISIBLE_DEVICES": "0"})
    assert owned(node2.read()) == {}
    assert node2.means.counts.labelled("job_unresolved") == {"scontrol_failed": 1}


def test_only_what_is_used_of_an_environment_is_kept(node2: Site) -> None:
    pid = node2.node.process({"SLURM_JOB_ID": "7", "AWS_SECRET_ACCESS_KEY": "x", "SLURM_JOB_USER": "someone"})
    assert process_environment(node2.node.root, pid) == {"SLURM_JOB_ID": "7"}


def test_folders_that_are_no_jobs(site: Site) -> None:
    (site.node.base / "system").mkdir()
    (site.node.base / "job_x").mkdir()
    assert job_folders(site.node.root) == {}
    assert job_folders(site.folder / "nowhere") is None
    site.node.start(5, JOB)
    found = job_folders(site.node.root)
    assert found is not None
    assert list(found) == ["5"]
    assert len(processes(found["5"].path)) == 1


@pytest.mark.parametrize("settings", [{"interval_ms": 1}, {"numbers": "uuid"}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        SlurmConfig(**settings)
    assert refused.value.code == "bad_config"


@pytest.mark.parametrize(
    ("arguments", "variables", "files"),
    [
        (["start", "--dir", "hooks"], {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "someone", "SLURM_JOB_GPUS": "4"}, 1),
        (["end", "--dir", "hooks"], {"SLURM_JOB_ID": "7"}, 1),
        (["start", "--dir", "hooks"], {}, 0),
        (["start", "--dir", "/proc/no/such/folder"], {"SLURM_JOB_ID": "7"}, 0),
        (["start"], {"SLURM_JOB_ID": "7"}, 0),
        (["stop", "--dir", "hooks"], {"SLURM_JOB_ID": "7"}, 0),
    ],
)
def test_the_hook_never_fails_a_job(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], files: int
) -> None:
    environment = {"PATH": os.environ["PATH"]} | variables
    done = subprocess.run(
        [sys.executable, "-m", "secondsight", "agent", "job", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert (done.stderr == "") == bool(files)
    hooks = read_hooks(tmp_path / "hooks")[0] if files else []
    assert [hook.job_id for hook in hooks] == ["7"] * files
    assert all("SLURM_JOB_USER" not in hook.variables for hook in hooks)
