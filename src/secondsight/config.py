"""Turn a TOML file and the environment into frozen settings; unknown keys and wrong types are errors.

Every part has a `Config` dataclass of its own. One file may hold a table per part; `SECONDSIGHT_<PART>_<KEY>` in the
environment overrides a key of that part's table.
"""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from secondsight.errors import Rejected

T = TypeVar("T")


def read_settings(path: Path | None, environment: Mapping[str, str], part: str) -> dict[str, Any]:
    """Return the raw settings of one part: its table of the file, overridden by the environment.

    Raises:
        Rejected: `bad_config` when the file is missing or is not TOML.
    """
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            settings = dict(tomllib.loads(path.read_text()).get(part, {}))
        except OSError as error:
            raise Rejected("bad_config", f"cannot read {path}: {error.strerror}", "give --config a file") from error
        except tomllib.TOMLDecodeError as error:
            raise Rejected("bad_config", f"{path} is not TOML: {error}") from error
    prefix = f"SECONDSIGHT_{part.upper()}_"
    overrides = {
        name.removeprefix(prefix).lower(): text for name, text in environment.items() if name.startswith(prefix)
    }
    return settings | overrides


def build(cls: type[T], settings: Mapping[str, Any], where: str) -> T:
    """Return an instance of a settings dataclass.

    Text is accepted for numbers, booleans and paths, so that the environment can give them.

    Raises:
        Rejected: `bad_config` naming the key, the place and what is allowed there.
    """
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls} is not a dataclass")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        raise Rejected("bad_config", f"{where}: unknown key {unknown[0]!r}", f"known keys: {', '.join(sorted(fields))}")
    hints = typing.get_type_hints(cls)
    values = {key: _convert(value, hints[key], f"{where}.{key}") for key, value in settings.items()}
    missing = [name for name, field in fields.items() if name not in values and _is_required(field)]
    if missing:
        raise Rejected("bad_config", f"{where}: {missing[0]!r} is missing")
    return cls(**values)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _convert(value: Any, wanted: Any, where: str) -> Any:
    if isinstance(wanted, types.UnionType):
        return _convert_optional(value, wanted, where)
    if dataclasses.is_dataclass(wanted) and isinstance(value, Mapping):
        return build(typing.cast(type[Any], wanted), value, where)
    if typing.get_origin(wanted) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        return tuple(_convert(item, typing.get_args(wanted)[0], where) for item in items)
    try:
        return _convert_plain(value, wanted)
    except (TypeError, ValueError) as error:
        name = getattr(wanted, "__name__", str(wanted))
        raise Rejected("bad_config", f"{where}: {value!r} is not {name}") from error


def _convert_optional(value: Any, wanted: types.UnionType, where: str) -> Any:
    inner = next(kind for kind in typing.get_args(wanted) if kind is not type(None))
    return None if value is None or value == "" else _convert(value, inner, where)


def _convert_plain(value: Any, wanted: Any) -> Any:
    if wanted is bool:
        return _boolean(value)
    if wanted is Path:
        return Path(value).expanduser()
    if wanted in (int, float):
        if isinstance(value, bool):
            raise TypeError("a boolean is no number")
        return wanted(value)
    if wanted is str and not isinstance(value, str):
        raise TypeError("text is wanted")
    return value


def _boolean(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError("not a boolean")
    return words[str(value).lower()]
