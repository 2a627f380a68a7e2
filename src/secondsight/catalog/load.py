"""Turn the catalogue files into a catalogue.

The shipped files hold one entity kind each. Files of an operator add metrics of any kind, named like a shipped file
or with `kind=` in each line; they cannot redefine a shipped metric.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from secondsight.catalog.index import Binding, Catalog, build
from secondsight.catalog.line import metric_of, refused
from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind

__all__ = ["Binding", "Catalog", "load_catalog", "parse"]

_FOLDER = Path(__file__).parent


def load_catalog(extra: Sequence[Path] = ()) -> Catalog:
    """Return the shipped catalogue with the metrics of an operator's files added; cached where there are none.

    Args:
        extra: Further TOML files, added in this order behind the shipped metrics.

    Raises:
        Rejected: `bad_catalog`, naming file, line, metric, what is wrong and what to write instead.
        OSError: A file could not be read.
    """
    if not extra:
        return _shipped()
    added = [metric for path in extra for metric in parse(path.read_text(encoding="utf-8"), path.name)]
    return build([*_shipped().metrics, *added])


def parse(text: str, file_name: str) -> list[Metric]:
    """Return the metrics of one catalogue file in their order.

    Args:
        text: TOML text, one inline table a line.
        file_name: Name for messages; its stem is the entity kind of lines that name none.

    Raises:
        Rejected: `bad_catalog`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refused(file_name, f"no TOML: {error}", "one line is one metric: name = { unit=..., ... }") from None
    kind = file_name.removesuffix(".toml")
    numbers = _line_numbers(text)
    return [_line(name, line, kind, f"{file_name}:{numbers.get(name, 0)}: {name}") for name, line in document.items()]


@cache
def _shipped() -> Catalog:
    files = [f"{kind}.toml" for kind in EntityKind]
    texts = [(name, (_FOLDER / name).read_text(encoding="utf-8")) for name in files]
    return build([metric for name, text in texts for metric in parse(text, name)])


def _line(name: str, line: Any, kind: str, where: str) -> Metric:
    if not isinstance(line, dict):
        raise refused(where, "the line is no table", "write name = { unit=..., type=..., ... }")
    return metric_of(name, line, kind, where)


def _line_numbers(text: str) -> dict[str, int]:
    """Return key -> number of the first line that begins with it."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key = line.partition("=")[0].strip().strip('"')
        found.setdefault(key, number)
    return found
