"""A Slurm node made of files: control groups of either version, /proc, hooks; as far as its reader looks."""

import os
from pathlib import Path

BOOT_SECONDS = 1_729_000_000
TICKS = os.sysconf("SC_CLK_TCK")


class SlurmNode:
    """Jobs come and go as folders; every process of theirs has an environment."""

    def __init__(self, root: Path, version: int = 2) -> None:
        self.root = root
        self.version = version
        self._next_pid = 1000
        (root / "proc").mkdir(parents=True)
        (root / "proc/stat").write_text(f"cpu 1 2 3\nbtime {BOOT_SECONDS}\n")
        base = "sys/fs/cgroup/system.slice/slurmstepd.scope" if version == 2 else "sys/fs/cgroup/devices/slurm"
        self.base = root / base
        self.base.mkdir(parents=True)

    def folder(self, job: int, uid: int = 1001) -> Path:
        return self.base / f"job_{job}" if self.version == 2 else self.base / f"uid_{uid}" / f"job_{job}"

    def start(
        self, job: int, *environments: dict[str, str], uid: int = 1001, devices: str = "a *:* rwm", at: int = 0
    ) -> list[int]:
        """Start a job with a process for each environment; return the pids."""
        folder = self.folder(job, uid)
        for step in ("step_extern", "step_batch"):
            (folder / step / "user/task_0").mkdir(parents=True, exist_ok=True)
            (folder / step / "user/task_0/cgroup.procs").write_text("")
        if self.version == 1:
            (folder / "devices.list").write_text(devices + "\n")
        pids = [self.process({"SLURM_JOB_ID": str(job)} | each, at) for each in environments]
        (folder / "step_batch/user/task_0/cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return pids

    def process(self, environment: dict[str, str], at: int = 0) -> int:
        self._next_pid += 1
        folder = self.root / "proc" / str(self._next_pid)
        folder.mkdir()
        texts = [f"{name}={text}" for name, text in environment.items()]
        (folder / "environ").write_bytes("\0".join([*texts, "SECRET=x", "broken", ""]).encode())
        fields = ["S", *["0"] * 18, str(at * TICKS), *["0"] * 5]
        (folder / "stat").write_text(f"{self._next_pid} (my (odd) name) {' '.join(fields)}\n")
        return self._next_pid

    def end(self, job: int, uid: int = 1001) -> None:
        for path, folders, files in os.walk(self.folder(job, uid), topdown=False):
            for name in files:
                (Path(path) / name).unlink()
            for name in folders:
                (Path(path) / name).rmdir()
        self.folder(job, uid).rmdir()
