"""What operators install: the unit is valid and hardened, the settings in the manifest are settings of the agent."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from secondsight.agent.config import AgentConfig
from secondsight.config import build

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = "secondsight-agent.service"
EXPOSURE_LIMIT = 3.0
"""On the scale of systemd-analyze, 0 to 10, where a service without any hardening has 9.6."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@needs_systemd
@pytest.mark.parametrize("drop_in", [None, "slurm.conf"])
def test_the_unit_is_valid_and_hardened(tmp_path: Path, drop_in: str | None) -> None:
    program = tmp_path / "secondsight"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / "systemd" / UNIT).read_text().replace("/opt/secondsight/bin/secondsight", str(program))
    (tmp_path / UNIT).write_text(text)
    if drop_in is not None:
        (tmp_path / f"{UNIT}.d").mkdir()
        shutil.copy(DEPLOY / "systemd" / drop_in, tmp_path / f"{UNIT}.d")
    _analyze("verify", str(tmp_path / UNIT))
    words = _analyze("security", "--offline=yes", "--no-pager", str(tmp_path / UNIT))
    found = re.search(r"exposure level for \S+: ([0-9.]+)", words)
    assert found is not None, words
    assert float(found[1]) <= EXPOSURE_LIMIT


def _analyze(*words: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("path", ["kubernetes/agent.yaml", "agent.toml"])
def test_settings_are_those_of_the_agent(path: str) -> None:
    text = (DEPLOY / path).read_text()
    if path.endswith(".yaml"):
        text = _block(text, "agent.toml: |")
    config = build(AgentConfig, tomllib.loads(text)["agent"], "agent")
    assert config.gateway.startswith("https://")


def _block(text: str, head: str) -> str:
    """Return the literal block of YAML that follows a head."""
    lines = text[text.index(head) + len(head) + 1 :].splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    block = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        block.append(line[indent:])
    return "\n".join(block)


def test_every_mount_of_the_manifest_has_its_volume() -> None:
    text = (DEPLOY / "kubernetes" / "agent.yaml").read_text()
    mounted = set(re.findall(r"\{name: ([a-z-]+), mountPath:", text))
    volumes = set(re.findall(r"^        - name: ([a-z-]+)$", text[text.index("      volumes:") :], re.MULTILINE))
    assert mounted == volumes
