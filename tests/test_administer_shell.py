"""Commands at a shell: rows as tables or one below the other, and options that are given by mistake."""

import sys
from pathlib import Path

import pytest

from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import list_tokens
from secondsight.administer.shell import show
from secondsight.cli import main

ROWS = [
    {"id": "1f", "oldestTime": "2026-11-30T09:00:00.000Z", "message": "a metric that nobody\nknows \x1b[31m"},
    {"id": "2e", "oldestTime": "", "message": "x" * 60},
]
NAMES = ("id", "oldestTime", "message")


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert show(ROWS, NAMES, as_json=False) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_table_where_there_is_room(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120" if is_terminal else "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    heading, first, second = shown(capsys)
    assert heading == "ID  OLDEST_TIME               MESSAGE"
    assert first == "1f  2026-11-30T09:00:00.000Z  a metric that nobody?knows ?[31m"
    assert second == f"2e  -                         {'x' * 60}"


def test_words_stay_whole_where_a_text_takes_several_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert shown(capsys)[2:5] == [
        "MESSAGE      a metric that nobody?knows",
        "             ?[31m",
        "",
    ]


def test_rows_below_each_other_where_a_terminal_is_too_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert shown(capsys) == [
        "ID           1f",
        "OLDEST_TIME  2026-11-30T09:00:00.000Z",
        "MESSAGE      a metric that nobody?knows ?[31m",
        "",
        "ID           2e",
        f"MESSAGE      {'x' * 60}",
        "",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--role admin --cluster cedar", "--cluster"),
        ("--role admin --team a", "--team"),
        ("--role viewer --region eu", "--region"),
        ("--role operator --collector host-*", "--collector"),
        ("--role collector --cluster a --cluster b --collector *", "--cluster"),
        ("--role collector --cluster a --collector * --team t", "--team"),
        ("--role viewer --expires 0d", "0d"),
        ("--role viewer --expires 90", "90"),
        ("--role viewer --expires \u00b2d", "\u00b2d"),
        ("--role viewer --expires 99999999999999d", "99999999999999d"),
    ],
)
def test_a_token_that_would_give_more_than_was_asked_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, named: str
) -> None:
    metadata = open_metadata(str(tmp_path / "metadata.sqlite"))
    assert main(["tokens", "create", "--name", "x", "--data", str(tmp_path), *words.split()]) != 0
    assert named in capsys.readouterr().err
    assert not list_tokens(metadata, "default")
    metadata.dispose()


@pytest.mark.parametrize("ends", [(), ("--minutes", "90", "--until", "now+1h")])
def test_planned_work_ends_once(capsys: pytest.CaptureFixture[str], ends: tuple[str, ...]) -> None:
    assert main(["maintenance", "start", "--cluster", "cedar", "--reason", "x", *ends]) != 0
    assert "--minutes N or --until TIME" in capsys.readouterr().err
