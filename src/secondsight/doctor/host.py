"""Look at what the agent wants of its host: the kernel log, sockets and folders that settings name, and the time."""

import errno
import glob
import os
import socket
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from secondsight.agent.config import AgentConfig
from secondsight.agent.health.judge import State
from secondsight.agent.health.words import short
from secondsight.agent.host.adjtimex import kernel_clock_offset_seconds
from secondsight.doctor.findings import Finding, fault, ok, skipped, warning

CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYSLOG": 34}
SOCKET_SECONDS = 5.0
FILES_LOOKED_AT = 500
OFFSET_SECONDS = 0.1


def host(config: AgentConfig, state: State | None) -> Iterator[Finding]:
    """Check what settings name on this host.

    Args:
        config: Settings of the agent.
        state: What a running agent says of itself; its user may read what this one may not.
    """
    if config.kernel_log.enabled:
        yield _kernel_log(config, state)
    if config.kubernetes is not None:
        yield _kubelet(config.kubernetes.socket, config.kubernetes.checkpoint)
    if config.slurm is not None:
        yield from _slurm(config, state)
    if config.training is not None:
        yield _training(config.training.socket, is_served=state is not None)
    for one in config.logs.files if config.logs is not None else ():
        yield _logs(one.glob)
    yield _time()


def _kernel_log(config: AgentConfig, state: State | None) -> Finding:
    path = config.root / config.kernel_log.path.relative_to("/")
    reader = next((one for one in (state or {}).get("readers", ()) if one["name"] == "kernel_log"), None)
    if reader is not None and not reader["isFailing"] and reader["lastAgeSeconds"] is not None:
        return ok(f"the running agent reads {path}")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        remedy = "give the agent CAP_SYSLOG and the device: the systemd unit does; a container must be privileged, or"
        remedy += " set agent.kernel_log.path to a file of kernel messages. Xids are not seen until then"
        return fault(f"{path} cannot be read: {error.strerror}", remedy)
    return ok(f"{path} can be read")


def _kubelet(path: Path, checkpoint: Path | None) -> Finding:
    remedies = {
        errno.ENOENT: "mount /var/lib/kubelet/pod-resources into the container; in k3s and others the folder differs",
        errno.EACCES: "the agent must run as root to use it, or the socket's group must allow it",
        errno.ECONNREFUSED: "the kubelet does not run, or the socket is of an earlier one: restart the agent's pod",
    }
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.settimeout(SOCKET_SECONDS)
    try:
        one.connect(str(path))
    except OSError as error:
        words = f"the kubelet's socket {path} is not reached: {error.strerror or error}"
        if checkpoint is not None and os.access(checkpoint, os.R_OK):
            return warning(f"{words}; its checkpoint {checkpoint} is read instead", remedies.get(error.errno or 0, ""))
        return fault(words, remedies.get(error.errno or 0, "see the kubelet's log"))
    finally:
        one.close()
    return ok(f"the kubelet takes connections at {path}")


def _slurm(config: AgentConfig, state: State | None) -> Iterator[Finding]:
    slurm = config.slurm
    if slurm is None:
        return
    named = {"hooks_dir": slurm.hooks_dir, "gpu_jobs_dir": slurm.gpu_jobs_dir, "gpu_json_dir": slurm.gpu_json_dir}
    folders = {name: folder for name, folder in named.items() if folder is not None}
    for name, folder in folders.items():
        if not folder.is_dir():
            remedy = f"install -d -o root -g secondsight -m 2770 {folder}, and let prolog and epilog write there"
            yield fault(f"agent.slurm.{name} {folder} is not there", remedy)
        elif not os.access(folder, os.R_OK | os.X_OK):
            yield fault(f"agent.slurm.{name} {folder} may not be read", f"chmod o+rx {folder}")
        else:
            yield ok(f"agent.slurm.{name} {folder} can be read")
    if folders:
        return
    pid = os.getpid() if state is None else int(state["pid"])
    lacking = [name for name in ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH") if not _has(pid, name)]
    if lacking:
        remedy = "install deploy/systemd/slurm.conf as a drop-in, or let prolog and epilog tell (agent.slurm.hooks_dir)"
        yield fault(f"jobs' environments cannot be read without {' and '.join(lacking)}", remedy)
    else:
        yield ok("environments of job steps can be read")


def _has(pid: int, capability: str) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    held = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(held >> CAPABILITIES[capability] & 1)


def _training(path: Path, *, is_served: bool) -> Finding:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if os.access(path.parent, os.W_OK | os.X_OK):
            return skipped(f"{path} is made by the agent at its start")
        remedy = f"the unit's RuntimeDirectory makes {path.parent}; else make it for the agent's user"
        return fault(f"{path} is not there, and {path.parent} may not be written", remedy)
    except OSError as error:
        return fault(f"{path} cannot be reached: {error.strerror}", "jobs must be able to reach it too")
    if not stat.S_ISSOCK(mode):
        return fault(f"{path} is no socket", "delete it, and start the agent anew")
    if not is_served:
        return warning(
            f"{path} is there and no agent runs: jobs that tell their steps are not heard", "start the agent"
        )
    return ok(f"jobs tell their steps at {path}, mode {stat.S_IMODE(mode):04o}")


def _logs(pattern: str) -> Finding:
    found = list(islice(glob.iglob(pattern, recursive=True), FILES_LOOKED_AT))  # noqa: PTH207 # absolute patterns
    closed = [path for path in found if not os.access(path, os.R_OK)]
    if not found:
        return warning(
            f"no file is named {pattern} yet", "nothing to do, if jobs that write there just did not run yet"
        )
    if closed:
        remedy = "let the agent's user read them: a group of its own, or the capability CAP_DAC_READ_SEARCH"
        return fault(f"{len(closed)} of {len(found)} files {pattern} may not be read, {closed[0]} for one", remedy)
    return ok(f"{len(found)} files {pattern} can be read")


def _time() -> Finding:
    offset = kernel_clock_offset_seconds()
    remedy = "install and start chrony: correlating hosts to the second needs it"
    if offset is None:
        return warning("no time daemon keeps this host's clock", remedy)
    if abs(offset) > OFFSET_SECONDS:
        return warning(f"the time daemon says the clock is off by {short(abs(offset))}", "see chronyc tracking")
    return ok(f"the clock is kept, off by {short(abs(offset))}")
