"""Look at the settings of an agent: whether they can be read, and every key that is none."""

import dataclasses
import difflib
import os
import stat
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secondsight.agent.config import AgentConfig
from secondsight.config import build, read_settings
from secondsight.doctor.findings import Finding, fault, ok, warning
from secondsight.errors import Rejected

TABLES = frozenset({"agent", "gateway", "processor", "rollup", "lake", "retention", "api", "canary", "simulate"})
PREFIX = "SECONDSIGHT_AGENT_"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What could be read of the settings.

    Attributes:
        config: None where they cannot work.
        findings: What was found about them.
    """

    config: AgentConfig | None
    findings: tuple[Finding, ...]


def read(file: Path | None, environment: Mapping[str, str]) -> Settings:
    """Read the settings of an agent, from a file and the environment."""
    found: list[Finding] = []
    if file is not None:
        found += _file(file)
    overrides = sorted(name for name in environment if name.startswith(PREFIX))
    if overrides:
        found.append(ok(f"the environment overrides {', '.join(overrides)}"))
    try:
        raw = read_settings(file, environment, "agent")
    except Rejected as error:
        return Settings(None, (*found, fault(error.message, error.hint or "mend the file")))
    unknown = list(unknown_keys(AgentConfig, raw, "agent"))
    found += [fault(f"{key} is no setting", remedy) for key, remedy in unknown]
    known = _without_unknown(AgentConfig, raw)
    try:
        config = build(AgentConfig, known, "agent")
    except Rejected as error:
        where = f" ({file})" if file else ""
        return Settings(None, (*found, fault(f"{error.message}{where}", error.hint or "mend the settings")))
    if not unknown:
        found.append(ok(f"settings of {config.collector} are good" + (f", {file}" if file else "")))
    return Settings(config, tuple(found))


def _file(file: Path) -> Iterator[Finding]:
    try:
        mode = file.stat().st_mode
        tables = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"chmod go-w {file}"
        yield warning(f"{file} may be changed by others than its owner (mode {stat.S_IMODE(mode):04o})", remedy)
    proxy = str(tables.get("agent", {}).get("proxy", ""))
    if "@" in proxy and mode & (stat.S_IRGRP | stat.S_IROTH):
        remedy = f"chmod go-r {file}, or give it as {PREFIX}PROXY"
        yield warning(f"{file} holds the password of a proxy and may be read by others", remedy)
    for name in sorted(tables.keys() - TABLES):
        if not isinstance(tables[name], dict):
            yield fault(f"{name} in {file} stands in no table", "write it below [agent]")
            continue
        yield warning(f"[{name}] in {file} is the table of no part", _nearest(name, TABLES))
    if "agent" not in tables:
        yield fault(f"{file} has no table [agent]", "write the settings of the agent below [agent]")


def unknown_keys(cls: type[Any], settings: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Give (key, what to do) of every key that a settings dataclass and those inside it do not have."""
    hints = typing.get_type_hints(cls)
    for key, value in settings.items():
        if key not in hints:
            yield f"{where}.{key}", _elsewhere(key, hints, where) or _nearest(key, hints)
            continue
        inner = _dataclass_of(hints[key])
        if inner is not None:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Mapping):
                    yield from unknown_keys(inner, item, f"{where}.{key}")


def _without_unknown(cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without unknown keys, so that what is wrong beside them is found in one go."""
    hints = typing.get_type_hints(cls)
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = _dataclass_of(hints[key]) if key in hints else None
        if inner is not None and isinstance(value, Mapping):
            found[key] = _without_unknown(inner, value)
        elif inner is not None and isinstance(value, list):
            found[key] = [_without_unknown(inner, one) if isinstance(one, Mapping) else one for one in value]
        elif key in hints:
            found[key] = value
    return found


def _dataclass_of(hint: Any) -> type[Any] | None:
    """Return the dataclass that a type is, or may be, or holds."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is tuple:
        return next((found for one in typing.get_args(hint) if (found := _dataclass_of(one)) is not None), None)
    return None


def _elsewhere(key: str, hints: Mapping[str, Any], where: str) -> str:
    """Return the table below that has a key of this name."""
    for name, hint in hints.items():
        inner = _dataclass_of(hint)
        if inner is not None and key in {field.name for field in dataclasses.fields(inner)}:
            return f"write it as {key} in the table [{where}.{name}]"
    return ""


def _nearest(key: str, names: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(names), 1)
    return f"did you mean {close[0]}?" if close else "see docs/reference/configuration.md; delete it if it is old"


def owner_warning(folder: Path) -> Iterator[Finding]:
    """Warn where the agent runs as somebody else than who asks: what may be read then differs."""
    try:
        owner = folder.stat().st_uid
    except OSError:
        return
    if owner != os.geteuid():
        remedy = f"run it as that user for the truth about files: sudo -u '#{owner}' secondsight doctor ..."
        yield warning(f"{folder} belongs to user {owner}, and this runs as user {os.geteuid()}", remedy)
