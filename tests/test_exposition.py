"""Exposition text in, samples and refusals out: cases of our own, and the public captures where they are at hand."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.agent.scrape.exposition import Exposition, Syntax, parse, parse_labels, syntax_of, type_of
from secondsight.agent.scrape.openmetrics import parse_strict
from secondsight.errors import Rejected
from secondsight.model import Quality

CASES = Path(__file__).parent / "cases" / "exposition"
CAPTURES = Path(__file__).parents[1].parent / "shared" / "corpus" / "captures" / "prom"
NO_CAPTURES = f"the public captures are not at {CAPTURES}"


def texts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in (".prom", ".openmetrics"))


def value_text(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def said(exposition: Exposition) -> dict[str, Any]:
    return {
        "syntax": exposition.syntax.value,
        "samples": [[s.line, s.name, dict(s.labels), value_text(s.value), s.time_ms] for s in exposition.samples],
        "blanks": [[b.line, b.name, dict(b.labels), b.quality.name.lower()] for b in exposition.blanks],
        "rejected": [[r.line, r.code] for r in exposition.rejections],
        "tolerated": [[r.line, r.code] for r in exposition.tolerated],
        "types": dict(exposition.types),
    }


@pytest.mark.parametrize("path", texts(CASES), ids=lambda path: path.name)
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_bytes().decode(errors="surrogateescape")
    content_type = "application/openmetrics-text" if path.suffix == ".openmetrics" else ""
    found = said(parse(text, syntax_of(content_type, text)))
    expected = path.with_name(path.name + ".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(expected.read_text())


def expectation(path: Path) -> dict[str, str]:
    note = path.with_name(path.name + ".expect.md").read_text()
    return dict(re.findall(r"^- ([^:\n]+): (.*)$", note, re.MULTILINE))


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=NO_CAPTURES)
@pytest.mark.parametrize("path", texts(CAPTURES), ids=lambda path: path.name)
def test_capture(path: Path) -> None:
    text = path.read_text()
    exposition = parse(text, syntax_of("", text))
    expected = expectation(path)
    assert len(exposition.samples) == int(expected["samples"])
    assert len({sample.name for sample in exposition.samples}) == int(expected["distinct sample names"])
    kinds = Counter(exposition.types.values())
    counted = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    assert f"{len(exposition.types)} ({counted})" == expected["TYPE lines"]
    labels = sorted({name for sample in exposition.samples for name, _ in sample.labels})
    assert (", ".join(labels) or "(none)") == expected["label names"]
    timed = sum(sample.time_ms is not None for sample in exposition.samples)
    assert f"{timed}; with exemplar: {len(exposition.exemplars)}" == expected["samples with own timestamp"]
    refused = re.findall(r"line (\d+)", expected["lines a strict text-0.0.4 parser must reject"])
    assert [rejection.line for rejection in exposition.rejections] == [int(line) for line in refused]
    for line, name, value in re.findall(r"line (\d+) (\S+) = ([^;\s]+)", expected.get("special values", "")):
        sample = next(sample for sample in exposition.samples if sample.line == int(line))
        assert (sample.name, str(sample.value)) == (name, str(float(value)))


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=NO_CAPTURES)
def test_openmetrics_conformance() -> None:
    lines = (CAPTURES / "openmetrics_conformance.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    accepted = [case["name"] for case in cases if is_accepted(case["text"])]
    assert accepted == [case["name"] for case in cases if case["should_parse"]]
    assert (len(accepted), len(cases)) == (22, 106)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=NO_CAPTURES)
@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.openmetrics")), ids=lambda path: path.name)
def test_strict_and_lenient_readers_agree_on_good_text(path: Path) -> None:
    strict = parse_strict(path.read_text())
    lenient = parse(path.read_text(), Syntax.OPENMETRICS)
    assert [(s.name, s.labels, repr(s.value)) for s in strict] == [
        (s.name, s.labels, repr(s.value)) for s in lenient.samples
    ]
    assert lenient.tolerated == []


def is_accepted(text: str) -> bool:
    try:
        parse_strict(text)
    except Rejected as error:
        return error.code != "openmetrics"
    return True


BAD_OPENMETRICS = json.loads((CASES / "openmetrics_refused.json").read_text())
GOOD_OPENMETRICS = json.loads((CASES / "openmetrics_accepted.json").read_text())


@pytest.mark.parametrize("text", BAD_OPENMETRICS)
def test_strict_reader_refuses(text: str) -> None:
    assert not is_accepted(text)


@pytest.mark.parametrize("text", GOOD_OPENMETRICS)
def test_strict_reader_accepts(text: str) -> None:
    assert is_accepted(text)


def test_counters_of_openmetrics_stay_counters() -> None:
    text = (CASES / "009-openmetrics-read-as-classic.openmetrics").read_text()
    exposition = parse(text, syntax_of("", text))
    assert {type_of(exposition, sample.name) for sample in exposition.samples} == {"counter"}


@pytest.mark.parametrize(
    ("content_type", "text", "syntax"),
    [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "a 1\n", Syntax.OPENMETRICS),
        ("text/plain; version=0.0.4", "a 1\n# EOF\n", Syntax.TEXT),
        ("text/plain", "a 1\n# EOF\n", Syntax.OPENMETRICS),
        ("", "a 1\n", Syntax.TEXT),
    ],
)
def test_syntax_by_content_type_then_by_end(content_type: str, text: str, syntax: Syntax) -> None:
    assert syntax_of(content_type, text) is syntax


@pytest.mark.parametrize("word", ["N/A", "[N/A]", "[n/a]", "[Not Supported]", "<<<NOT_SUPPORTED>>>"])
def test_words_for_not_supported(word: str) -> None:
    exposition = parse(f"a 1\nb {word}\nc 2\n", Syntax.TEXT)
    assert [sample.name for sample in exposition.samples] == ["a", "c"]
    assert [blank.quality for blank in exposition.blanks] == [Quality.ABSENT_NOT_SUPPORTED]
    assert exposition.rejections == []


@pytest.mark.parametrize("value", ["1_000", "0x10", "1e", "--1", "1.2.3", "١٢", "1 2 3", "abc"])
def test_no_number_is_a_refused_line_and_a_bad_cell(value: str) -> None:
    exposition = parse(f"a 1\nb {value}\nc 2\n", Syntax.TEXT)
    assert [sample.name for sample in exposition.samples] == ["a", "c"]
    assert [(r.line, r.code) for r in exposition.rejections] == [(2, "value")]
    assert [blank.quality for blank in exposition.blanks] == [Quality.BAD_PARSE]


@pytest.mark.parametrize(
    ("text", "time_ms", "codes"),
    [
        ("1700000000", None, ["timestamp_unit"]),
        ("1700000000000", 1_700_000_000_000, []),
        ("1700000000000000", None, ["timestamp_unit"]),
        ("1700000000000000000", None, ["timestamp_unit"]),
        ("12345", None, ["timestamp_unit"]),
        ("-5", None, ["timestamp_unit"]),
        ("1700000000000.5", None, ["timestamp"]),
    ],
)
def test_units_of_time_are_checked_and_never_guessed(text: str, time_ms: int | None, codes: list[str]) -> None:
    exposition = parse(f"a 1 {text}\n", Syntax.TEXT)
    assert [r.code for r in exposition.rejections] == codes
    assert [sample.time_ms for sample in exposition.samples] == ([] if codes else [time_ms])


def test_long_integers_are_exact() -> None:
    assert parse("a 18446744073709551615\n", Syntax.TEXT).samples[0].value == 2**64 - 1


def test_bytes_that_are_not_utf8_cost_their_line() -> None:
    text = b'a{x="\xff"} 1\nb{x="\xc3\xa9"} 2\n'.decode(errors="surrogateescape")
    exposition = parse(text, Syntax.TEXT)
    assert [(r.line, r.code) for r in exposition.rejections] == [(1, "not_utf8")]
    assert [sample.labels for sample in exposition.samples] == [(("x", "é"),)]


def test_a_label_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        parse_labels('zone="a",zone="b"')


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,12}", fullmatch=True)
LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(st.floats(allow_nan=False), st.integers(-(2**70), 2**70))


def written(name: str, labels: dict[str, str], value: float) -> str:
    escaped = {key: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, text in labels.items()}
    body = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{body}}} {value}\n"


@given(st.lists(st.tuples(NAMES, st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=4), VALUES), max_size=8))
def test_what_is_written_is_read(rows: list[tuple[str, dict[str, str], float]]) -> None:
    exposition = parse("".join(written(*row) for row in rows), Syntax.TEXT)
    assert [(s.name, dict(s.labels), float(s.value)) for s in exposition.samples] == [
        (name, labels, float(value)) for name, labels, value in rows
    ]
    assert exposition.rejections == []


@given(st.lists(st.one_of(st.text(max_size=60), st.text('a{}="\\,# 1\t', max_size=40)), max_size=6))
def test_any_lines_cost_only_themselves(lines: list[str]) -> None:
    bad = "".join(line.replace("\n", " ") + "\n" for line in lines)
    for syntax in Syntax:
        exposition = parse(f'good_one{{a="b"}} 1\n{bad}good_two 2\n', syntax)
        first = [sample.name for sample in exposition.samples][:1]
        assert first == ["good_one"]
        ended = any(re.fullmatch(r"[ \t]*#[ \t]+EOF[ \t]*", line) for line in bad.split("\n"))
        assert exposition.samples[-1].name == "good_two" or (syntax is Syntax.OPENMETRICS and ended)


@given(st.text('abc{}="\\,# 1\n\tEOF', max_size=80))
def test_strict_reader_answers_or_refuses(text: str) -> None:
    is_accepted(text + "\n# EOF\n")
