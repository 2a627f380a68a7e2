"""Rows of commands: a table where there is room for it, one below the other where a terminal is too narrow."""

import sys

import pytest

from secondsight.administer.shell import show

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
