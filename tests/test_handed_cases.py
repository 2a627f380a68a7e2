"""Every handed case whose area is built stands in tests/cases as it was handed, and a test names it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CORPUS = TESTS.parents[1] / "shared" / "corpus"
LATER = frozenset({"alerts", "billing"})
"""Areas of which some cases are tests already."""


def listed() -> list[tuple[str, str]]:
    """Return (file, area) of every case, as the list of cases names them."""
    text = (CORPUS / "CASES.md").read_text() if CORPUS.is_dir() else ""
    return [
        (f"{number}-{name}", area)
        for number, name, area in re.findall(r"^## (\d{3}) (\S+) \((\w+)\)", text, re.MULTILINE)
    ]


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the corpus is not at {CORPUS}")
def test_the_list_is_read_whole() -> None:
    handed = {path.name for path in (CORPUS / "cases").iterdir() if not path.name.endswith(".expect.md")}
    assert {name for name, _ in listed()} == handed


@pytest.mark.parametrize("name", [name for name, area in listed() if area not in LATER])
def test_case(name: str) -> None:
    (here,) = TESTS.glob(f"cases/*/{name}")
    assert here.read_bytes() == (CORPUS / "cases" / name).read_bytes()
    has_expected = here.with_name(f"{name}.expected.json").exists()
    assert has_expected or any(name in path.read_text() for path in TESTS.glob("test_*.py")), f"no test names {name}"


@pytest.mark.parametrize("name", [name for name, area in listed() if area in LATER])
def test_a_case_of_a_later_area_is_as_it_was_handed(name: str) -> None:
    for here in TESTS.glob(f"cases/*/{name}"):
        assert here.read_bytes() == (CORPUS / "cases" / name).read_bytes()
        assert any(name in path.read_text() for path in TESTS.glob("test_*.py")), f"no test names {name}"
