"""Turn exposition text (Prometheus text 0.0.4, OpenMetrics 1.0) into samples, blanks and refusals, line by line.

A bad line costs that line alone: it is refused with its number and a reason, and everything else is kept. What a
strict reader would refuse and this one lets pass is listed as tolerated. A value that says "no reading" (`N/A`, a
DCGM text sentinel, nothing at all) is a blank of its series, never 0. `openmetrics.py` is the strict reader.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from secondsight.mapping.identity import Labels
from secondsight.mapping.names import BLANK_WORDS, bare
from secondsight.model import Quality

LABEL_CACHE_ENTRIES = 20_000
CACHE_SPARE = 500
"""Caches of a target hold twice its samples and so many more, as names of pods come and go for ever."""
BYTE_ORDER_MARK = "\ufeff"
INTEGER_DIGITS_MAXIMUM = 40
"""Longer integers than any counter's are read as floats."""

TIME_MS_MINIMUM = 100_000_000_000
TIME_MS_MAXIMUM = 100_000_000_000_000
SECONDS_MINIMUM, SECONDS_MAXIMUM = 1e-3, 1e15
"""Other numbers of seconds are no times; their exponents may be beyond all numbers."""


class Syntax(StrEnum):
    """Which of the two formats a text is in."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"


class Sample(NamedTuple):
    """One sample line.

    Attributes:
        line: Line number from 1.
        labels: (name, value) pairs in the order of the line.
        value: An int where the text is a long plain integer, so that nothing is lost to rounding.
        time_ms: The sample's own timestamp as epoch milliseconds, or None.
    """

    line: int
    name: str
    labels: Labels
    value: float
    time_ms: int | None


class Blank(NamedTuple):
    """One sample line whose value is no reading; `quality` says why."""

    line: int
    name: str
    labels: Labels
    quality: Quality


class Rejection(NamedTuple):
    """One line that was refused (or, in `tolerated`, was let pass against the letter of the format)."""

    line: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Exposition:
    """Everything that one text said.

    Attributes:
        types: Family name -> type, from TYPE lines.
        helps: Family name -> help text, from HELP lines, still escaped.
        units: Family name -> unit, from UNIT lines.
        exemplars: (line, text) of every exemplar, kept aside unread.
    """

    syntax: Syntax
    samples: list[Sample] = field(default_factory=list)
    blanks: list[Blank] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    tolerated: list[Rejection] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    exemplars: list[tuple[int, str]] = field(default_factory=list)


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
LABEL_BODY = r'[^"}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"}]*+)*+'
QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
NUMBER = r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"

_PLAIN_LINE = re.compile(
    rf"[ \t]*+({NAME})(?:[ \t]*+\{{({LABEL_BODY})\}}[ \t]*+|[ \t]++)({NUMBER})(?:[ \t]++({NUMBER}))?[ \t]*+"
).fullmatch
_ANY_LINE = re.compile(rf"[ \t]*+({NAME})(?:[ \t]*+\{{({LABEL_BODY})\}}[ \t]*+|[ \t]++|$)(.*)", re.DOTALL).fullmatch
_QUOTED_LINE = re.compile(rf"[ \t]*+\{{[ \t]*+({QUOTED})[ \t]*+(?:,({LABEL_BODY}))?\}}[ \t]*+(.*)", re.DOTALL).fullmatch
_META_LINE = re.compile(
    rf"[ \t]*+#[ \t]++(TYPE|HELP|UNIT)[ \t]++({NAME}|{QUOTED})(?:[ \t]++(.*))?", re.DOTALL
).fullmatch
_EOF_LINE = re.compile(r"[ \t]*+#[ \t]++EOF[ \t]*+").fullmatch
_LABEL = re.compile(rf"[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+|{QUOTED})[ \t]*+=[ \t]*+({QUOTED})[ \t]*+(,|$)", re.DOTALL).match
_EXEMPLAR = re.compile(r"(?:^|[ \t])#[ \t]*\{.*")
_ESCAPE = re.compile(r'\\([\\"n])')
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE).fullmatch

_TYPES = {
    Syntax.TEXT: frozenset({"counter", "gauge", "histogram", "summary", "untyped"}),
    Syntax.OPENMETRICS: frozenset(
        {"counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset", "unknown"}
    ),
}


def syntax_of(content_type: str, text: str) -> Syntax:
    """Choose the format by content type; where that names none, by the `# EOF` at the end."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "application/openmetrics-text":
        return Syntax.OPENMETRICS
    if media_type == "text/plain" and "version=" in content_type.lower():
        return Syntax.TEXT
    return Syntax.OPENMETRICS if text.rstrip().endswith("# EOF") else Syntax.TEXT


def parse(text: str, syntax: Syntax, cache: dict[str, Labels] | None = None) -> Exposition:
    """Read a whole exposition; never raises.

    Args:
        text: The body; lines end in a line feed. Bytes that were not UTF-8 must have become surrogates
            (`surrogateescape`): their lines are refused.
        syntax: The format to read it in.
        cache: Label text -> labels, kept by a caller that reads the same target again and again.
    """
    exposition = _Parser(syntax, {} if cache is None else cache).parse(text)
    if cache is not None and len(cache) > 2 * len(exposition.samples) + CACHE_SPARE:
        cache.clear()
    return exposition


def type_of(exposition: Exposition, sample_name: str) -> str:
    """Return the type of the family that a sample name belongs to; `untyped` if no TYPE line covers it."""
    types = exposition.types
    if sample_name in types:
        return types[sample_name]
    for suffix in ("_total", "_created", "_bucket", "_sum", "_count", "_gcount", "_gsum", "_info"):
        if sample_name.endswith(suffix) and sample_name.removesuffix(suffix) in types:
            return types[sample_name.removesuffix(suffix)]
    return "untyped"


def parse_labels(body: str) -> Labels:
    """Read the text between the braces of a label set.

    Raises:
        ValueError: The text is malformed or names a label twice; the message says what.
    """
    pairs: list[tuple[str, str]] = []
    position = 0
    while body[position:].strip(" \t"):
        found = _LABEL(body, position)
        if found is None:
            raise ValueError(f"label set is malformed near {body[position : position + 40]!r}")
        pairs.append((_name(found[1]), unescape(found[2][1:-1])))
        position = found.end()
    if not all(name for name, _ in pairs):
        raise ValueError("a label has an empty name")
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError(f"label named twice: {_first_repeated([name for name, _ in pairs])}")
    return tuple(pairs)


def unescape(text: str) -> str:
    r"""Resolve the escapes `\\`, `\"` and `\n`; any other backslash stands for itself."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def whole_ms(seconds: str) -> int:
    """Return the milliseconds of a written number of seconds; finer digits are cut off, never rounded up."""
    rough = float(seconds)
    if not SECONDS_MINIMUM <= abs(rough) < SECONDS_MAXIMUM:
        return int(min(max(rough, -SECONDS_MAXIMUM), SECONDS_MAXIMUM)) * 1000
    return int(Decimal(seconds) * 1000)


def _name(written: str) -> str:
    """Return a name that may be written in quotes, as those of other characters than the classic ones are."""
    return unescape(written[1:-1]) if written.startswith('"') else written


def _first_repeated(names: list[str]) -> str:
    return next(name for position, name in enumerate(names) if name in names[:position])


class _Parser:
    """Holds what has been read so far."""

    def __init__(self, syntax: Syntax, cache: dict[str, Labels]) -> None:
        self._out = Exposition(syntax)
        self._syntax = syntax
        self._cache = cache
        self._ended = False

    def parse(self, text: str) -> Exposition:
        lines = text.removeprefix(BYTE_ORDER_MARK).split("\n")
        for number, line in enumerate(lines, 1):
            found = _PLAIN_LINE(line)
            if found is None or self._ended:
                self._read_other(number, line)
            else:
                self._read_plain(number, found)
        if self._syntax is Syntax.OPENMETRICS and not self._ended:
            self._tolerate(len(lines), "eof_missing", "the text does not end in # EOF: it may be cut short")
        return self._out

    def _read_plain(self, number: int, found: re.Match[str]) -> None:
        name, body, value_text, time_text = found.groups()
        labels: Labels = ()
        if body:
            known = self._cache.get(body)
            if known is None:
                known = self._new_labels(number, body)
                if known is None:
                    return
            labels = known
        time_ms = None
        if time_text is not None:
            time_ms = self._time_ms(number, time_text)
            if time_ms is None:
                return
        is_long = 16 <= len(value_text) <= INTEGER_DIGITS_MAXIMUM and value_text.isdigit()
        value = int(value_text) if is_long else float(value_text)
        self._out.samples.append(Sample(number, name, labels, value, time_ms))

    def _new_labels(self, number: int, body: str) -> Labels | None:
        if not _is_utf8(body):
            self._reject(number, "not_utf8", "the line is not UTF-8")
            return None
        try:
            labels = parse_labels(body)
        except ValueError as error:
            self._reject(number, "labels", str(error))
            return None
        if len(self._cache) >= LABEL_CACHE_ENTRIES:
            self._cache.clear()
        self._cache[body] = labels
        return labels

    def _time_ms(self, number: int, text: str) -> int | None:
        if self._syntax is Syntax.TEXT:
            if not text.lstrip("+-").isdigit():
                self._reject(number, "timestamp", f"timestamp {text!r} is not a whole number of milliseconds")
                return None
            time_ms = int(text[:INTEGER_DIGITS_MAXIMUM])
        else:
            time_ms = whole_ms(text)
        if TIME_MS_MINIMUM <= time_ms < TIME_MS_MAXIMUM:
            return time_ms
        expected = "milliseconds" if self._syntax is Syntax.TEXT else "seconds"
        self._reject(number, "timestamp_unit", f"timestamp {text} is no plausible time in {expected} since 1970")
        return None

    def _read_other(self, number: int, line: str) -> None:
        if not line or line.isspace():
            return
        if self._ended:
            self._reject(number, "after_eof", "text after # EOF")
        elif line.lstrip(" \t").startswith("#"):
            self._read_comment(number, line.rstrip("\r"))
        else:
            self._read_odd_sample(number, line)

    def _read_comment(self, number: int, line: str) -> None:
        found = _META_LINE(line)
        if found is None:
            self._ended = self._syntax is Syntax.OPENMETRICS and _EOF_LINE(line) is not None
            return
        keyword, name, text = found[1], _name(found[2]), found[3]
        if keyword == "TYPE":
            self._read_type(number, name, (text or "").strip())
        elif keyword == "HELP":
            self._out.helps[name] = text or ""
        else:
            self._out.units[name] = (text or "").strip()

    def _read_type(self, number: int, name: str, type_text: str) -> None:
        kind = type_text.lower()
        if kind not in _TYPES[Syntax.TEXT] | _TYPES[Syntax.OPENMETRICS]:
            self._reject(number, "type", f"{type_text!r} is no type of a metric")
        elif name in self._out.types:
            self._tolerate(number, "type_repeated", f"second TYPE line for {name}: the first one stands")
        else:
            self._out.types[name] = kind
            if kind not in _TYPES[self._syntax]:
                self._tolerate(number, "type_foreign", f"type {kind} belongs to the other format")

    def _read_odd_sample(self, number: int, line: str) -> None:
        found = _ANY_LINE(line) or _QUOTED_LINE(line)
        if found is None or not _name(found[1]):
            self._reject(number, "malformed", f"no metric name and label set: {line[:60]!r}")
            return
        name, body, rest = _name(found[1]), found[2], found[3]
        if not _is_utf8(name):
            self._reject(number, "not_utf8", "the line is not UTF-8")
            return
        labels = self._cache.get(body or "") if body else ()
        if labels is None:
            labels = self._new_labels(number, body)
        if labels is not None:
            self._read_value(number, name, labels, rest.strip(" \t\r"))

    def _read_value(self, number: int, name: str, labels: Labels, rest: str) -> None:
        exemplar = _EXEMPLAR.search(rest)
        if exemplar is not None:
            rest = rest[: exemplar.start()].rstrip(" \t")
            self._keep_exemplar(number, exemplar[0].lstrip(" \t#"))
        quality = BLANK_WORDS.get(bare(rest))
        words = rest.split()
        if quality is None and len(words) == 2:
            quality = BLANK_WORDS.get(bare(words[0]))
        if quality is not None:
            self._read_blank(number, name, labels, quality, rest)
        elif len(words) > 2 or not _is_number(words[0]):
            self._out.blanks.append(Blank(number, name, labels, Quality.BAD_PARSE))
            self._reject(number, "value", f"no number: {rest[:60]!r}")
        else:
            self._read_timed(number, name, labels, words)

    def _keep_exemplar(self, number: int, exemplar: str) -> None:
        self._out.exemplars.append((number, exemplar))
        if self._syntax is Syntax.TEXT:
            self._tolerate(number, "exemplar", "the text format has no exemplars: dropped, the value is kept")

    def _read_blank(self, number: int, name: str, labels: Labels, quality: Quality, rest: str) -> None:
        self._out.blanks.append(Blank(number, name, labels, quality))
        if rest:
            self._tolerate(number, "no_reading", f"{rest[:60]!r} stands for no reading")
        else:
            self._reject(number, "value_missing", f"{name} has no value")

    def _read_timed(self, number: int, name: str, labels: Labels, words: list[str]) -> None:
        time_ms = None
        if len(words) == 2:
            if not re.fullmatch(NUMBER, words[1]):
                self._reject(number, "timestamp", f"timestamp {words[1]!r} is no number")
                return
            time_ms = self._time_ms(number, words[1])
            if time_ms is None:
                return
        self._out.samples.append(Sample(number, name, labels, float(words[0]), time_ms))

    def _reject(self, number: int, code: str, reason: str) -> None:
        self._out.rejections.append(Rejection(number, code, reason))

    def _tolerate(self, number: int, code: str, reason: str) -> None:
        self._out.tolerated.append(Rejection(number, code, reason))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(text: str) -> bool:
    return _SPECIAL(text) is not None or re.fullmatch(NUMBER, text) is not None
