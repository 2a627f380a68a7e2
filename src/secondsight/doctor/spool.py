"""Look at the spool folder: whether it can be written, how much room it has, and who holds it."""

import os
from collections.abc import Iterator
from pathlib import Path

from secondsight.agent.config import AgentConfig
from secondsight.agent.health.words import size
from secondsight.doctor.findings import Finding, fault, ok, warning

MIB = 1 << 20
LEAST_FILES = 1000
VOLATILE = frozenset({"tmpfs", "ramfs", "overlay"})
REMOTE = frozenset({"nfs", "nfs4", "cifs", "lustre", "gpfs", "beegfs", "fuse.sshfs", "ceph", "9p"})


def spool(config: AgentConfig, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Check the folder that everything waits in."""
    folder = config.spool_dir
    if not folder.is_dir():
        yield from _missing(folder)
        return
    yield from _writable(folder)
    yield from _room(config)
    yield from _file_system(folder, proc)
    if (folder / "frames" / "cursor").exists():
        yield ok(f"{folder}/frames is of the layout of earlier versions; the agent delivers it first, then removes it")
    holder = lock_holder(folder / "p0" / "lock", proc)
    if holder is not None:
        yield ok(f"process {holder} holds the spool" if holder else "a process in another container holds the spool")
    refused = [path.stat().st_size for path in (folder / "refused").glob("*.frame")]
    if refused:
        remedy = "their names say why; the gateway's log says more. Delete them when you have looked"
        yield warning(f"{len(refused)} frames in {folder}/refused were refused by the gateway for good", remedy)


def _missing(folder: Path) -> Iterator[Finding]:
    parent = next((one for one in folder.parents if one.exists()), Path("/"))
    if os.access(parent, os.W_OK | os.X_OK):
        yield ok(f"{folder} is not there yet, the agent makes it at its start")
        yield from _file_system(parent, Path("/proc"))
    else:
        remedy = f"install -d -o secondsight -g secondsight -m 0750 {folder}"
        yield fault(f"{folder} is not there, and {parent} may not be written by user {os.geteuid()}", remedy)


def _writable(folder: Path) -> Iterator[Finding]:
    probe = folder / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
    except OSError as error:
        remedy = {
            13: f"chown the folder to the agent's user, who is {os.geteuid()} here",
            28: "make room; the agent gives up what it holds, least important first",
            30: "the file system is read-only: see the kernel log for errors of the disk, and remount it",
        }
        yield fault(f"{folder} cannot be written: {error.strerror}", remedy.get(error.errno or 0, "see the kernel log"))
    else:
        yield ok(f"{folder} can be written")
    finally:
        probe.unlink(missing_ok=True)


def _room(config: AgentConfig) -> Iterator[Finding]:
    found = os.statvfs(config.spool_dir)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    floor = min(config.spool_floor_mib * MIB, config.spool_floor_percent / 100 * total)
    limit = config.spool_mib * MIB
    held = sum(path.stat().st_size for path in config.spool_dir.glob("*/*") if path.is_file())
    if free < floor:
        remedy = "make room: below the floor the spool keeps next to nothing"
        yield fault(f"{size(free)} are free at {config.spool_dir}, less than the floor of {size(floor)}", remedy)
    elif free - floor < limit - held:
        could = f"the spool could grow to {size(held + free - floor)} only, not to its {size(limit)}"
        yield warning(f"{size(free)} are free at {config.spool_dir}: {could}", "make room, or lower spool_mib")
    else:
        yield ok(
            f"{size(free)} free, {size(floor)} of it left to others; the spool holds {size(held)} of {size(limit)}"
        )
    if found.f_files and found.f_favail < LEAST_FILES:
        yield fault(f"only {found.f_favail} more files fit on the file system of {config.spool_dir}", "delete files")


def _file_system(folder: Path, proc: Path) -> Iterator[Finding]:
    kind = file_system(folder, proc)
    if kind in VOLATILE:
        remedy = "use a folder on a disk; in a container, a host path"
        yield warning(f"{folder} is on {kind}: what waits there is lost with the host or container", remedy)
    elif kind in REMOTE:
        remedy = "use a local disk"
        yield warning(f"{folder} is on {kind}: when that hangs, the agent can keep nothing", remedy)


def file_system(folder: Path, proc: Path = Path("/proc")) -> str:
    """Return the type of the file system that holds a folder, "" where it cannot be known."""
    try:
        lines = (proc / "self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    resolved = folder.resolve()
    for line in lines:
        _, mount, found, *_ = (*line.split(), "", "", "")
        path = Path(mount.replace("\\040", " "))
        if resolved.is_relative_to(path) and len(path.parts) >= best:
            best, kind = len(path.parts), found
    return kind


def lock_holder(path: Path, proc: Path = Path("/proc")) -> int | None:
    """Return the process that holds a lock on a file, 0 for one that cannot be seen from here, None for nobody.

    The lock itself is not touched, so that an agent that just starts is not kept out.
    """
    try:
        found = path.stat()
        lines = (proc / "locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == place:
            return max(int(words[4]), 0)
    return None
