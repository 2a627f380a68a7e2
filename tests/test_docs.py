"""Documents are true: paths exist, settings and commands are named, and nothing speaks of one machine."""

import dataclasses
import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from secondsight.agent.config import AgentConfig
from secondsight.api.config import ApiConfig
from secondsight.cli import parser
from secondsight.gateway.config import GatewayConfig
from secondsight.process.config import ServeConfig

ROOT = Path(__file__).parents[1]
PATH = re.compile(r"(?<![\w/])(?:src|tests|bench|web|docs|tools)/[A-Za-z0-9_./-]*[A-Za-z0-9_/]")
PARTS = {"agent": AgentConfig, "gateway": GatewayConfig, "processor": ServeConfig, "api": ApiConfig}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"])
def test_every_path_that_is_named_exists(name: str) -> None:
    named = set(PATH.findall((ROOT / name).read_text()))
    assert named
    assert not [path for path in named if "*" not in path and not (ROOT / path).exists() and "static" not in path]


def test_the_map_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) < 200


def test_every_setting_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/configuration.md").read_text()
    missing = [
        f"{part}.{field.name}"
        for part, settings in PARTS.items()
        for field in dataclasses.fields(settings)
        if f"`{field.name}`" not in text
    ]
    assert not missing


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/commands.md").read_text()
    commands = next(action for action in parser()._actions if hasattr(action, "choices") and action.choices)
    assert not [name for name in commands.choices if f"secondsight {name}" not in text]


def test_decisions_are_numbered_once_and_say_why() -> None:
    records = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [record.name[:4] for record in records]
    assert len(set(numbers)) == len(numbers)
    assert not [record.name for record in records if "Decision" not in record.read_text()]


def test_nothing_names_a_package_host() -> None:
    locks = [ROOT / "requirements.lock", ROOT / "web/package-lock.json"]
    assert not [
        lock.name for lock in locks if re.search(r"https?://(?!github|opencollective|tidelift)", lock.read_text())
    ]


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["platform"]]
    asked += project["dependency-groups"]["dev"]
    names = {re.split(r"[=<>\[]", line)[0].lower() for line in asked} - {"secondsight"}
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert names <= locked


def test_nothing_speaks_of_one_machine() -> None:
    own = re.compile(r"(/root/|/home/\w+/|/tmp/[a-z])")
    texts = tracked("*.py", "*.md", "*.ts", "*.tsx", "*.sh", "*.toml", "Makefile")
    found = [path.name for path in texts if path != Path(__file__) and own.search(path.read_text())]
    assert not found


@pytest.mark.parametrize("page", ["configuration", "commands"])
def test_generated_pages_are_fresh(page: str) -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools/reference.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / f"docs/reference/{page}.md").read_text() == getattr(tool, page)(), "run make format"
