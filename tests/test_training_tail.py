"""Files that grow, are renamed, cut and written anew: every line is told once, whole."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.agent.training.tail import BEHIND_BYTES_MAXIMUM, CATCH_UP_BYTES, LINE_BYTES_MAXIMUM, Tail

LIMIT = 1 << 20


def tail_of(path: Path, kept: dict[str, Any] | None = None, *, at_end: bool = False) -> Tail:
    return Tail(path, kept or {}, at_end=at_end)


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def lines(tail: Tail, limit: int = LIMIT) -> list[str]:
    return list(tail.lines(limit))


def test_a_line_is_told_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tail = tail_of(path)
    assert lines(tail) == []
    append(path, "one\ntw")
    assert lines(tail) == ["one"]
    append(path, "o\rthree\r\n")
    assert lines(tail) == ["two", "three"]
    tail.close()
    tail.close()


def test_a_file_that_was_there_begins_at_its_end_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "old\n")
    tail = tail_of(path, at_end=True)
    assert lines(tail) == []
    append(path, "new\n")
    assert lines(tail) == ["new"]
    tail.close()


def test_what_was_written_before_a_rename_is_read_first(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\n")
    tail = tail_of(path)
    assert lines(tail) == ["one"]
    append(path, "two\n")
    path.rename(tmp_path / "a.log.1")
    append(path, "three\n")
    assert lines(tail) == ["two", "three"]
    tail.close()


def test_a_file_that_is_gone_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\n")
    tail = tail_of(path)
    lines(tail)
    append(path, "two\n")
    path.unlink()
    assert lines(tail) == ["two"]
    assert lines(tail) == []
    append(path, "again\n")
    assert lines(tail) == ["again"]
    tail.close()


@pytest.mark.parametrize("after", ["x\n", "a longer beginning than before\nx\n"], ids=["shorter", "longer"])
def test_a_file_that_is_cut_and_written_anew_is_read_anew(after: str, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\ntwo\n")
    tail = tail_of(path)
    lines(tail)
    path.write_text(after)
    assert lines(tail) == after.splitlines()
    assert tail.counts["truncated"] == 1
    tail.close()


def test_reading_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\npart")
    first = tail_of(path)
    assert lines(first) == ["one"]
    kept = first.kept()
    first.close()
    append(path, "ial\n")
    second = tail_of(path, kept, at_end=True)
    assert lines(second) == ["partial"]
    second.close()


def test_a_file_that_took_the_place_of_the_one_before_the_restart_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\n")
    first = tail_of(path)
    lines(first)
    kept = first.kept()
    first.close()
    path.rename(tmp_path / "b.log")
    append(path, "two\n")
    second = tail_of(path, kept)
    assert lines(second) == ["two"]
    second.close()


def test_what_is_read_at_a_time_is_bounded_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    wanted = [f"line {number:06} {'x' * 50}" for number in range(5000)]
    append(path, "".join(line + "\n" for line in wanted))
    tail, found, reads = tail_of(path), [], 0
    while len(found) < len(wanted):
        some = lines(tail, LINE_BYTES_MAXIMUM)
        assert len("\n".join(some)) <= LINE_BYTES_MAXIMUM
        found += some
        reads += 1
    assert found == wanted
    assert reads > 10
    tail.close()


def test_a_file_far_behind_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "begin\n")
    tail = tail_of(path)
    lines(tail)
    line = "y" * 999 + "\n"
    append(path, line * (BEHIND_BYTES_MAXIMUM // 1000 + 2000))
    found = lines(tail, 2 * CATCH_UP_BYTES)
    assert len(found) == pytest.approx(CATCH_UP_BYTES / 1000, abs=2)
    assert tail.counts["left_out_bytes"] > BEHIND_BYTES_MAXIMUM - CATCH_UP_BYTES
    tail.close()


def test_a_line_without_end_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "z" * (3 * LINE_BYTES_MAXIMUM) + "\nnext\n")
    tail = tail_of(path)
    found = [line for _ in range(6) for line in lines(tail, LINE_BYTES_MAXIMUM)]
    assert found[-1] == "next"
    assert tail.counts["line_too_long"] > 0
    tail.close()


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    tail = tail_of(path)
    assert lines(tail) == []
    tail.close()


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "part", "rotate", "restart", "read"]), st.integers(0, 400)),
    max_size=25,
)


@settings(max_examples=80)
@given(ACTIONS)
def test_every_line_once_in_order(tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]) -> None:
    """Lines may be written in parts, files renamed, the agent restarted: what is read before a rename is read once."""
    path = tmp_path_factory.mktemp("tail") / "a.log"
    path.touch()
    tail, written, found, part = tail_of(path), [], [], ""
    for number, (action, size) in enumerate(actions):
        text = f"{number}:{'m' * size}"
        if action == "write":
            append(path, f"{text}\n")
            written.append(part + text)
            part = ""
        elif action == "part":
            append(path, text)
            part += text
        elif action == "rotate" and not part:
            found += lines(tail)
            path.rename(path.with_suffix(f".{number}"))
            path.touch()
        elif action == "restart":
            kept = tail.kept()
            tail.close()
            tail = tail_of(path, kept)
        else:
            found += lines(tail)
    found += lines(tail) + lines(tail)
    tail.close()
    assert found == written
