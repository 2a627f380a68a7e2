"""What doctor finds in settings, files, folders and sources of a host, and what it says to do."""

import fcntl
import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from agent_fixture import answer_over_http, http_server, json_answer
from nvml_rig import needs_compiler
from nvml_stub import build
from nvml_stub.scenario import Machine
from secondsight import cli
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.enrol import EnrolSettings
from secondsight.agent.config import AgentConfig
from secondsight.agent.jobs.settings import KubernetesConfig, SlurmConfig
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.scrape.target import Target
from secondsight.agent.training.config import LogFiles, LogsConfig, TrainingConfig
from secondsight.clock import ManualClock, SystemClock
from secondsight.doctor import gpus as of_gpus
from secondsight.doctor.findings import Finding, Level, examined, ok
from secondsight.doctor.gpus import gpus
from secondsight.doctor.host import host
from secondsight.doctor.identity import identity
from secondsight.doctor.install import install
from secondsight.doctor.platform import platform
from secondsight.doctor.settings import read
from secondsight.doctor.sources import sources
from secondsight.doctor.spool import file_system, lock_holder, spool
from secondsight.selfmetrics import SelfMetrics

SETTINGS = json.loads((Path(__file__).parent / "cases" / "doctor" / "settings.json").read_text())
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")


def wrong(found: Iterable[Finding]) -> list[tuple[str, str]]:
    """Return (level and what, remedy) of everything that is not fine."""
    bad = (Level.WARNING, Level.FAULT)
    return [(f"{one.level} {one.what}", one.remedy) for one in found if one.level in bad]


def assert_found(found: Iterable[Finding], *wanted: tuple[str, str, str]) -> None:
    """Everything that is not fine is, in order, of these (level, part of what, part of the remedy)."""
    bad = wrong(found)
    assert len(bad) == len(wanted), bad
    for (text, remedy), (level, part, todo) in zip(bad, wanted, strict=True):
        assert text.startswith(f"{level} ")
        assert part in text
        assert todo in remedy


def config_of(folder: Path, **changes: Any) -> AgentConfig:
    base = AgentConfig(
        gateway="http://127.0.0.1:9", spool_dir=folder / "spool", token_file=folder / "token", host_id="host-1"
    )
    return replace(base, **changes)


@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: case["name"])
def test_settings(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    if case["toml"] is not None:
        file.write_text(case["toml"])
    found = read(file, case.get("environment", {}))
    assert (found.config is not None) is case["good"]
    for level, name in ((Level.FAULT, "faults"), (Level.WARNING, "warnings")):
        texts = [(one.what, one.remedy) for one in found.findings if one.level is level]
        wanted = case.get(name, [])
        assert len(texts) == len(wanted), texts
        for what, remedy in wanted:
            assert [text for text in texts if what in text[0] and remedy in text[1]], texts
    good = [one.what for one in found.findings if one.level is Level.OK]
    assert set(case.get("oks", [])) <= set(good)
    assert "hunter2" not in str(found.findings)


def test_settings_that_anybody_may_change(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(SETTINGS[0]["toml"])
    file.chmod(0o666)
    assert_found(read(file, {}).findings, ("warning", "(mode 0666)", "chmod go-w"))


def test_packages_that_are_not_there_are_named_with_the_way_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(install(None))
    monkeypatch.setattr("secondsight.doctor.install.BASE", (("numpy", "numpy"), ("no_such_module_x", "no-such")))
    assert_found(install(None), ("fault", "no-such cannot be imported", "-m pip install 'secondsight'"))


@pytest.mark.parametrize(
    ("text", "mode", "wanted"),
    [
        ("secret-abc\n", 0o600, None),
        ("secret-abc\n", 0o640, None),
        ("secret-abc\n", 0o644, ("warning", "open to others (mode 0644)", "chmod g-w,o-rwx")),
        ("\n", 0o600, ("fault", "is empty", "write the token")),
        ("token = secret-abc\n", 0o600, ("fault", "holds more than the token", "alone, in one line")),
        ("sécret\n", 0o600, ("fault", "holds more than the token", "alone, in one line")),
        (None, 0o600, ("fault", "is not there", "write the token of this collector")),
    ],
)
def test_a_token_file(tmp_path: Path, text: str | None, mode: int, wanted: tuple[str, str, str] | None) -> None:
    config = config_of(tmp_path)
    if text is not None and config.token_file is not None:
        config.token_file.write_text(text)
        config.token_file.chmod(mode)
    found = list(identity(config, ManualClock()))
    assert_found(found, *([wanted] if wanted else []))
    assert "secret-abc" not in str(found)


def test_enrolment_from_nothing_to_overdue(tmp_path: Path) -> None:
    clock, join = ManualClock(), tmp_path / "join"
    config = config_of(tmp_path, token_file=None, enrol=EnrolSettings(join))
    config.spool_dir.mkdir()
    not_yet = ("warning", "host-1 is not enrolled yet", "at its start")
    assert_found(identity(config, clock), not_yet, ("fault", "the join token is not there", "tokens join create"))
    join.write_text("join-secret\n")
    join.chmod(0o600)
    assert_found(identity(config, clock), not_yet)
    (config.spool_dir / "token").write_text("own-secret\n")
    (config.spool_dir / "token").chmod(0o600)
    (config.spool_dir / "token.expiry").write_text(json.dumps({"renewMs": clock.now_ms() + 86_400_000}))
    assert_found(identity(config, clock))
    clock.move(3 * 86_400)
    assert_found(identity(config, clock), ("warning", "should have been renewed 2 d ago", "start the agent"))
    join.unlink()
    overdue = ("warning", "should have been renewed", "start the agent")
    assert_found(identity(config, clock), overdue, ("warning", "could not enrol again", "leave it there"))
    assert "secret" not in str(list(identity(config, clock)))


def test_a_spool_with_room_and_one_without(tmp_path: Path) -> None:
    config = config_of(tmp_path, spool_mib=1, spool_floor_mib=1)
    config.spool_dir.mkdir()
    assert_found(one for one in spool(config) if "tmpfs" not in one.what and "overlay" not in one.what)
    large = replace(config, spool_mib=1 << 30)
    assert_found([one for one in spool(large) if "could grow" in one.what], ("warning", "could grow to", "spool_mib"))
    floor = replace(config, spool_floor_mib=1 << 40, spool_floor_percent=1e6)
    assert_found([one for one in spool(floor) if "floor" in one.what], ("fault", "less than the floor", "make room"))
    (config.spool_dir / "refused").mkdir()
    (config.spool_dir / "refused" / "1-2-unit_mismatch.frame").write_bytes(b"x")
    (config.spool_dir / "frames").mkdir()
    (config.spool_dir / "frames" / "cursor").write_bytes(b"x")
    found = list(spool(config))
    assert [one for one in found if "1 frames" in one.what and one.level is Level.WARNING]
    assert [one for one in found if "layout of earlier versions" in one.what and one.level is Level.OK]
    assert sorted(path.name for path in config.spool_dir.iterdir()) == ["frames", "refused"]


@as_user
def test_a_spool_that_may_not_be_written(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config.spool_dir.mkdir(mode=0o500)
    assert [one for one in spool(config) if "cannot be written" in one.what and "chown" in one.remedy]


def test_who_holds_a_lock_is_seen_without_touching_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    with path.open("w") as file:
        assert lock_holder(path) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_the_file_system_of_a_folder_is_that_of_its_deepest_mount(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    lines = ["/dev/a / ext4 rw 0 0", f"tmp {tmp_path} tmpfs rw 0 0", f"srv {tmp_path}/sp\\040ace nfs4 rw 0 0", "bad"]
    (tmp_path / "self" / "mounts").write_text("\n".join(lines))
    assert file_system(tmp_path / "sp ace" / "x", tmp_path) == "nfs4"
    assert file_system(tmp_path / "other", tmp_path) == "tmpfs"
    assert file_system(Path("/elsewhere"), tmp_path) == "ext4"
    config = config_of(tmp_path)
    config.spool_dir.mkdir()
    assert [one for one in spool(config, tmp_path) if "is lost with the host or container" in one.what]


def pci(root: Path, *functions: tuple[str, str]) -> None:
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    for number, (vendor, kind) in enumerate(functions):
        folder = root / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir()
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")


GPU = ("0x10de", "0x030200")


def test_gpus_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_gpus, "is_there", lambda *_: False)
    config = config_of(tmp_path, root=tmp_path)
    assert_found(gpus(config, SystemClock(), {}))
    pci(tmp_path, GPU, GPU, ("0x10de", "0x068000"), ("0x8086", "0x030000"))
    wanted = ("fault", "2 NVIDIA GPU(s) on the PCI bus, and no libnvidia-ml.so.1", "install the driver")
    assert_found(gpus(config, SystemClock(), {}), wanted)
    named = replace(config, nvml=NvmlSettings(library=tmp_path / "no.so"))
    assert_found(gpus(named, SystemClock(), {}), ("fault", "no.so is not there", "mend the path"))
    off = replace(config, nvml=NvmlSettings(enabled="off"))
    assert [one.level for one in gpus(off, SystemClock(), {})] == [Level.SKIPPED]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "machine", "host h100 2")
    for name, value in made.environment(build.library()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(of_gpus, "SETTLED_TICKS", 1)
    return made


@needs_compiler
def test_gpus_that_answer_are_counted_against_the_bus(tmp_path: Path, machine: Machine) -> None:
    config = config_of(tmp_path, root=tmp_path)
    found = list(gpus(config, SystemClock(), os.environ))
    assert_found(found)
    assert [one for one in found if "2 GPU(s): " in one.what]
    pci(tmp_path, GPU, GPU, GPU)
    wanted = ("fault", "2 GPU(s)", "fell off the bus")
    assert_found(gpus(config, SystemClock(), os.environ), wanted)


@needs_compiler
def test_a_driver_that_refuses_and_one_that_hangs_end_in_time(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, root=tmp_path)
    machine.append("call nvmlInitWithFlags return 9")
    wanted = ("fault", "the driver refuses with NVML code 9", "the driver is not loaded")
    assert_found(gpus(config, SystemClock(), os.environ), wanted)
    machine.replace("host h100 2", "call nvmlInitWithFlags delay 60000")
    monkeypatch.setattr(of_gpus, "WAIT_SECONDS", 2.0)
    assert_found(gpus(config, SystemClock(), os.environ), ("fault", "the driver ", "kernel log"))
    machine.replace("host h100 2")


def alive(*readers: dict[str, Any]) -> dict[str, Any]:
    return {"pid": os.getpid(), "readers": list(readers)}


KERNEL_LOG = {"name": "kernel_log", "isFailing": False, "lastAgeSeconds": 0.5}


def of_host(found: Iterable[Finding]) -> list[Finding]:
    """Leave out the clock, which is as this machine keeps it."""
    return [one for one in found if "clock" not in one.what]


def test_the_kernel_log_is_judged_by_who_reads_it(tmp_path: Path) -> None:
    config = config_of(tmp_path, root=tmp_path)
    wanted = ("fault", "/dev/kmsg cannot be read", "CAP_SYSLOG")
    assert_found(of_host(host(config, None)), wanted)
    assert_found(of_host(host(config, alive(KERNEL_LOG))))
    assert_found(of_host(host(config, alive(KERNEL_LOG | {"isFailing": True}))), wanted)
    off = replace(config, kernel_log=KernelLogConfig(enabled=False))
    assert_found(of_host(host(off, None)))


def test_sockets_and_folders_that_settings_name(tmp_path: Path) -> None:
    base = config_of(tmp_path, kernel_log=KernelLogConfig(enabled=False))
    path = tmp_path / "kubelet.sock"
    config = replace(base, kubernetes=KubernetesConfig(socket=path))
    assert_found(of_host(host(config, None)), ("fault", "is not reached: No such file", "mount /var/lib/kubelet"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert_found(of_host(host(config, None)), ("fault", "refused", "restart the agent's pod"))
        server.listen()
        assert_found(of_host(host(config, None)))
    (tmp_path / "checkpoint").write_text("{}")
    other = KubernetesConfig(socket=tmp_path / "none", checkpoint=tmp_path / "checkpoint")
    assert_found(of_host(host(replace(base, kubernetes=other), None)), ("warning", "is read instead", "mount"))
    hooks = replace(base, slurm=SlurmConfig(hooks_dir=tmp_path / "jobs"))
    assert_found(of_host(host(hooks, None)), ("fault", "hooks_dir", "install -d"))
    (tmp_path / "jobs").mkdir()
    assert_found(of_host(host(hooks, None)))


def test_the_training_socket_and_logs(tmp_path: Path) -> None:
    base = config_of(tmp_path, kernel_log=KernelLogConfig(enabled=False))
    path = tmp_path / "training.sock"
    config = replace(base, training=TrainingConfig(socket=path))
    assert_found(of_host(host(config, None)))
    path.write_text("")
    assert_found(of_host(host(config, None)), ("fault", "is no socket", "delete it"))
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        assert_found(of_host(host(config, None)), ("warning", "no agent runs", "start the agent"))
        assert_found(of_host(host(config, alive())))
    logs = replace(base, logs=LogsConfig((LogFiles(f"{tmp_path}/*.out"),)))
    assert_found(of_host(host(logs, None)), ("warning", "no file is named", "did not run yet"))
    (tmp_path / "a.out").write_text("")
    assert_found(of_host(host(logs, None)))


EXPOSITIONS = {
    "/good": b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 41\nodd_thing 3\n',
    "/unnamed": b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 41\n',
    "/odd": b"odd_thing 3\n",
}


def test_targets_are_scraped_and_their_samples_counted(tmp_path: Path) -> None:
    def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        body = EXPOSITIONS.get(handler.path)
        answer_over_http(handler, Answer(404 if body is None else 200, {}, body or b""))

    assert [one.level for one in sources(config_of(tmp_path), SystemClock())] == [Level.SKIPPED]
    with http_server(respond) as url:
        names = ("good", "unnamed", "odd", "missing")
        targets = [Target(name, f"{url}/{name}", 10_000) for name in names]
        config = config_of(tmp_path, scrape=(*targets, Target("closed", "http://127.0.0.1:9/metrics")))
        found = list(sources(config, SystemClock()))
    assert "1 samples have a place, 1 have none" in found[0].what
    assert_found(
        found,
        ("warning", "GPUs of some are not named", "nvidia-smi -L"),
        ("fault", "odd answered without a sample that the catalogue knows", "adding-a-metric"),
        ("fault", "missing answered 404", "is it running"),
        ("fault", "Connection refused", "is it running"),
    )


@contextmanager
def made_up_platform(folder: Path, backlog: int, ready: int = 200, more: str = "") -> Iterator[Path]:
    """A data folder with what a running platform leaves there, and a server that stands for its parts."""

    def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        metrics = Answer(200, {}, f"gateway_backlog_bytes {backlog}\n{more}".encode())
        status = ready if handler.path == "/readyz" else 200
        answer_over_http(handler, metrics if handler.path == "/metrics" else json_answer(status, {"status": "ok"}))

    (folder / "run").mkdir()
    (folder / "logs").mkdir()
    (folder / "metadata.sqlite").write_bytes(b"")
    with http_server(respond) as url, (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "ready").write_text(url + "\n")
        (folder / "run" / "config.toml").write_text(f'[api]\ngateway = "{url}"\n')
        yield folder


def room(found: Iterable[Finding]) -> list[Finding]:
    """Leave out the disk, which is as this machine has it."""
    return [one for one in found if " are free at " not in one.what]


def test_a_platform_by_its_folder(tmp_path: Path) -> None:
    assert_found(platform(tmp_path, SystemClock()), ("fault", "there is no platform in", "--data"))
    with made_up_platform(tmp_path, backlog=1000):
        assert_found(room(platform(tmp_path, SystemClock())))
        (tmp_path / "logs" / "gateway.log").write_text("2026-01-01 00:00:00,1 ERROR secondsight.x broken\nlast words\n")
        wanted = ("warning", "gateway.log has errors; its last words: ", "tail ")
        assert_found(room(platform(tmp_path, SystemClock())), wanted)
        (tmp_path / "logs" / "gateway.log").unlink()
        (tmp_path / "ready").unlink()
        assert_found(room(platform(tmp_path, SystemClock())), ("fault", "is not ready", "logs"))
    assert_found(room(platform(tmp_path, SystemClock())), ("fault", "no platform runs on", "secondsight up --data"))


def test_a_platform_that_is_behind_with_a_store_that_is_away(tmp_path: Path) -> None:
    with made_up_platform(tmp_path, backlog=1 << 30, ready=503):
        assert_found(
            room(platform(tmp_path, SystemClock())),
            ("fault", "the store behind the api", ""),
            ("fault", "answers are not to be had", "processor.log"),
            ("fault", "the gateway at", ""),
            ("warning", "1.0 GiB of the log wait", "senders are asked to wait"),
        )


def test_tenants_that_send_more_than_they_may_are_named(tmp_path: Path) -> None:
    shown = SelfMetrics()
    for tenant, reason, age in (("acme", "values_quota", 5.0), ("acme", "backlog", 7.0), ("old", "values_quota", 1e4)):
        shown.gauge("gateway_tenant_wait_age_seconds", age, tenant=tenant, reason=reason)
    shown.count("gateway_tenant_refused_total", 12, tenant="acme", code="series_quota")
    with made_up_platform(tmp_path, backlog=0, more=shown.render()):
        assert_found(
            room(platform(tmp_path, SystemClock())),
            ("warning", "tenant acme was asked to come back later 7.0 s ago: backlog", "processor"),
            ("warning", "tenant acme was asked to come back later 5.0 s ago: values_quota", "--values-per-second"),
            ("warning", "12 frames or series of tenant acme were refused: series_quota", "quota --tenant acme"),
        )


def test_a_check_that_breaks_is_a_finding_and_others_go_on() -> None:
    def broken() -> Iterator[Finding]:
        yield ok("so far")
        raise ZeroDivisionError

    found = list(examined([("a", broken), ("b", lambda: [ok("fine")])]))
    assert [(one.group, one.finding.level.value) for one in found] == [("a", "ok"), ("a", "fault"), ("b", "ok")]


def test_the_command_prints_what_is_wrong_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("very-secret\n")
    (tmp_path / "token").chmod(0o600)
    file = tmp_path / "agent.toml"
    lines = ['gateway = "http://127.0.0.1:9"', f'spool_dir = "{tmp_path}/spool"', f'token_file = "{tmp_path}/token"']
    file.write_text("[agent]\n" + "\n".join(lines) + '\n[agent.nvml]\nenabled = "off"\n')
    assert cli.main(["doctor", "--config", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    faults = [one for one in told["findings"] if one["level"] == "fault"]
    assert len(faults) == told["faults"]
    assert any(one["group"] == "gateway" and "nothing listens there" in one["remedy"] for one in faults)
    assert all(one["remedy"] for one in faults)
    assert cli.main(["doctor", "--config", str(file), "--quiet"]) == 1
    shown = capsys.readouterr().out
    assert "  FAULT   the gateway 127.0.0.1:9 is not reached: Connection refused\n          -> " in shown
    assert "very-secret" not in shown + json.dumps(told)
    assert " ok " not in shown
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--nonsense"])
    assert ended.value.code == 2


def test_no_settings_at_all_are_a_fault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secondsight.doctor.command.USUAL_CONFIG", Path("/nowhere/agent.toml"))
    for name in [name for name in os.environ if name.startswith("SECONDSIGHT_AGENT_")]:
        monkeypatch.delenv(name)
    assert cli.main(["doctor"]) == 1
    assert "there are no settings in /nowhere/agent.toml" in capsys.readouterr().out
