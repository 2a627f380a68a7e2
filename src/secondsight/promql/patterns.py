"""Match texts with patterns as Prometheus does: by RE2, whose time grows with the text and with no pattern explodes."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from secondsight.errors import Rejected

LENGTH_MAXIMUM = 1_000
_GROUPS_MAXIMUM = 9
"""So many groups a replacement can name."""
_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)
_COMPUTE: Any = pc


def whole(pattern: str) -> str:
    """Return the pattern that matches a text as a whole, line ends and all.

    Raises:
        Rejected(promql_parse): It is none, or too long.
    """
    if len(pattern) > LENGTH_MAXIMUM:
        message = f"a pattern has {len(pattern)} characters"
        raise Rejected("promql_parse", message, f"use {LENGTH_MAXIMUM} at most")
    try:
        _matched([""], pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise Rejected("promql_parse", f"{pattern!r} is no pattern: {_why(error)}", "check its brackets") from None
    return rf"\A(?s:{pattern})\z"


def matches(pattern: str, texts: Sequence[str]) -> dict[str, bool]:
    """Tell of each text whether a pattern of `whole` matches it."""
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, _matched(distinct, pattern), strict=True))


def replacements(pattern: str, template: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what a template of Go's kind becomes for each text that a pattern of `whole` matches.

    `$1`, `${1}` and `${name}` stand for groups, `$$` for a dollar; what no group has is left out.
    """
    found = [text for text, is_match in matches(pattern, texts).items() if is_match]
    written = _REFERENCE.sub(partial(_reference, pattern), template.replace("\\", "\\\\"))
    made = _COMPUTE.replace_substring_regex(pa.array(found, pa.string()), pattern=pattern, replacement=written)
    return dict(zip(found, made.to_pylist(), strict=True))


def _reference(pattern: str, found: re.Match[str]) -> str:
    name = found[1] or found[2]
    if name is None:
        return "$"
    number = int(name) if name.isdigit() and len(name) < 4 else _named(pattern, name)
    return rf"\{number}" if number is not None and _has_group(pattern, number) else ""


def _named(pattern: str, name: str) -> int | None:
    """Return the number of a named group, None where there is none."""
    opened = re.finditer(r"\\.|\[(?:\\.|[^\]])*\]|\((?:\?P?<(\w+)>|(?!\?))", pattern, re.DOTALL)
    names = [one[1] for one in opened if one[0].startswith("(")]
    return names.index(name) + 1 if name in names else None


def _has_group(pattern: str, number: int) -> bool:
    if number > _GROUPS_MAXIMUM:
        return False
    try:
        _COMPUTE.replace_substring_regex(pa.array([""]), pattern=pattern, replacement=rf"\{number}")
    except pa.ArrowInvalid:
        return False
    return True


def _matched(texts: Sequence[str], pattern: str) -> list[bool]:
    fits: list[bool] = _COMPUTE.match_substring_regex(pa.array(texts, pa.string()), pattern=pattern).to_pylist()
    return fits


def _why(error: Exception) -> str:
    return str(error).removeprefix("Invalid regular expression: ").partition(":")[0]
