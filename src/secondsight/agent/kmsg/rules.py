"""Find the rule that knows a line of the kernel log. Rules are data: `rules.toml`, in the order of trial.

A rule names words of which one must be in the line (a cheap test that most lines fail) and a pattern; its named groups
become attributes of the event. Groups of several forms of a line are numbered: `device1` and `device2` are `device`.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import digits


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        code: Stable number, the code of `node_kernel_event`; never given to another rule.
        name: Stable word for people and alerts.
        severity: info, warning, error, critical or fatal.
        words: One of these is in every line that the pattern finds.
        key: Named groups of which each value is an event of its own; others are collapsed.
    """

    code: int
    name: str
    severity: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    key: tuple[str, ...] = ()


LOST = Rule(1, "kernel_log_lost", "warning", (), re.compile("$^"))
"""Lines were overwritten before they were read."""

FLOOD = Rule(2, "kernel_log_flood", "warning", (), re.compile("$^"))
"""More different things happened at once than are told apart."""


@cache
def rules() -> tuple[Rule, ...]:
    """Return the shipped rules in their order."""
    text = resources.files("secondsight.agent.kmsg").joinpath("rules.toml").read_text(encoding="utf-8")
    return tuple(_rule(name, line) for name, line in tomllib.loads(text).items())


def rule_of(text: str) -> tuple[Rule, tuple[tuple[str, str], ...]] | None:
    """Return the first rule that knows a line, with the values of its named groups; None if none does."""
    for rule in rules():
        for word in rule.words:
            if word in text:
                found = rule.pattern.search(text)
                if found is not None:
                    fields = ((name.rstrip(digits), value) for name, value in found.groupdict().items() if value)
                    return rule, tuple(fields)
                break
    return None


def _rule(name: str, line: dict[str, object]) -> Rule:
    match line:
        case {"code": int(code), "severity": str(severity), "words": list(words), "pattern": str(pattern)}:
            key = line.get("key", [])
            keys = tuple(str(part) for part in key) if isinstance(key, list) else ()
            return Rule(code, name, severity, tuple(map(str, words)), re.compile(pattern), keys)
        case _:
            raise ValueError(f"rules.toml: {name} lacks code, severity, words or pattern")
