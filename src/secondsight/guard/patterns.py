"""Tell whether a pattern, a format or a separator is one that the engine never fails on.

The engine reads patterns when the first row meets them, so a broken one would tell whether there was such a row.
"""

import re

_ESCAPES = frozenset("dwsbDWSBnt0123456789")
_REPEATED = re.compile(r"[*+?}][*+]|\{\d{3,}|,\d{3,}\}")
_GROUP = re.compile(r"\(\?(?!:|i\))")
_FORMATS = frozenset("aAbcCdDeFGghHiIjkKlLmMnpPQrRSstTuVwWyYzf%")


def is_like(pattern: str) -> bool:
    """Tell whether it is a pattern of LIKE: no escape at its end."""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 0


def groups_of(pattern: str) -> int | None:
    """Return how many groups a regular expression has, or None where it is not of the simple kind that is offered.

    Offered are literals, classes, groups, alternation, greedy and lazy repetition, and anchors.
    """
    escaped = re.findall(r"\\(.?)", pattern, re.DOTALL)
    if any(letter == "" or (letter.isalnum() and letter not in _ESCAPES) or letter.isdigit() for letter in escaped):
        return None
    if "[[" in pattern or _REPEATED.search(pattern) or _GROUP.search(pattern):
        return None
    if re.search(r"&&|\|\||--|~~", pattern) and "[" in pattern:
        return None
    try:
        return re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError):
        return None


def is_replacement(text: str, groups: int) -> bool:
    """Tell whether a replacement names only groups that its pattern has."""
    named = re.findall(r"\\(.?)", text, re.DOTALL)
    return all(letter == "\\" or (letter.isdigit() and int(letter) <= groups) for letter in named)


def is_format(text: str) -> bool:
    """Tell whether it is a format of times without anything unknown."""
    return all(letter in _FORMATS for letter in re.findall(r"%(.?)", text, re.DOTALL) or "%")


def is_token(text: str) -> bool:
    """Tell whether it is one word, without anything that separates words."""
    return text.isascii() and text.isalnum()
