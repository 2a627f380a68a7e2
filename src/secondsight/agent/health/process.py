"""Tell processes and boots of this machine apart; needs the standard library alone, as probes ask often."""

from pathlib import Path


def this_boot(proc: Path = Path("/proc")) -> str:
    """Return the kernel's id of this boot, "" where there is none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return when a process started, in ticks since the boot, which tells it from others of its number; or None."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def pid_namespace(proc: Path = Path("/proc")) -> str:
    """Return what tells this namespace of process numbers from others, "" where nothing does."""
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return ""
