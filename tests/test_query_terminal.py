import io
import json
from argparse import Namespace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.cli import main
from secondsight.clock import ManualClock
from secondsight.errors import Rejected, Retryable
from secondsight.query.terminal import BARS, figures, human, query_command, sparkline, top_command
from test_api_reads import NOW, T0, api  # noqa: F401 - the fixture of a running api

VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=200)


@given(VALUES, st.integers(1, 60))
def test_a_sparkline_is_never_wider_than_asked_and_shows_gaps(values, width):
    line = sparkline(values, width)
    assert len(line) <= min(width, len(values))
    assert set(line) <= {*BARS, " "}
    if any(value is not None for value in values):
        assert line.strip()


def test_a_rise_is_drawn_as_one():
    assert sparkline([float(step) for step in range(8)]) == BARS
    assert sparkline([1.0, None, 1.0]) == "▄ ▄"
    assert sparkline([]) == ""
    assert figures([None], "W") == ("-", "-", "-", "-")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.57, "1", "0.57"),
        (700.0, "W", "700 W"),
        (12_500.0, "W", "12.5 kW"),
        (85.0, "Cel", "85 °C"),
        (85_899_345_920.0, "By", "80 GiB"),
        (1_048_576.0, "By/s", "1 MiB/s"),
        (1_980_000_000.0, "Hz", "1.98 GHz"),
        (0.0, "W", "0 W"),
        (86_400.0, "s", "86,400 s"),
    ],
)
def test_numbers_are_written_for_people(value, unit, text):
    assert human(value, unit) == text


@pytest.fixture
def arguments(api, tmp_path):  # noqa: F811 - the fixture imported above
    token = tmp_path / "token"
    token.write_text(api.tokens["admin"] + "\n")
    names = ("cluster", "host", "gpu", "job", "team", "model", "gpu_model", "aggregate", "group_by")
    return Namespace(
        metric="power",
        from_time=str(T0),
        to_time=str(T0 + 600_000),
        resolution="auto",
        json=False,
        csv=False,
        n=2,
        once=True,
        server=f"http://127.0.0.1:{api.client.port}",
        token_file=token,
        **dict.fromkeys(names),
    )


def test_query_prints_a_table_json_or_csv(arguments):
    out = io.StringIO()
    assert query_command(arguments, out) == 0
    assert "GPU-a" in out.getvalue()
    assert "coverage 1,690/1,785" in out.getvalue().replace("\n", " ")
    out = io.StringIO()
    query_command(Namespace(**{**vars(arguments), "json": True}), out)
    assert json.loads(out.getvalue())["metric"] == "gpu_power_watts"
    out = io.StringIO()
    query_command(Namespace(**{**vars(arguments), "csv": True}), out)
    assert out.getvalue().startswith("ts,metric,")


def test_top_as_json_has_whole_names_and_ends(arguments):
    out = io.StringIO()
    assert top_command(Namespace(**{**vars(arguments), "json": True, "once": False}), out, ManualClock(NOW)) == 0
    assert [row["rank"] for row in json.loads(out.getvalue())["rows"]] == [1, 2]


@pytest.mark.parametrize("command", [query_command, lambda *told: top_command(*told, ManualClock(NOW))])
def test_an_empty_answer_about_what_is_nowhere_says_so(arguments, command):
    out = io.StringIO()
    assert command(Namespace(**{**vars(arguments), "cluster": "c11"}), out) == 1
    assert "there is no cluster 'c11' that you may see; near: 'c1'" in " ".join(out.getvalue().split())
    assert "─" not in out.getvalue()  # no table of nothing


@pytest.mark.parametrize("once", [True, False])
def test_top_prints_once_where_it_is_told_so_or_no_terminal_is(arguments, once):
    out = io.StringIO()
    assert top_command(Namespace(**{**vars(arguments), "once": once}), out, ManualClock(NOW)) == 0
    assert out.getvalue().index("GPU-b") < out.getvalue().index("GPU-a")
    assert "GPU-c" not in out.getvalue()


@pytest.mark.parametrize(
    ("server", "said"),
    [("http://127.0.0.1:9", "nothing listens there"), ("http://no-such-host.invalid:8470", "its name is not known")],
)
def test_a_server_that_does_not_answer_is_named_with_the_cause(arguments, server, said):
    with pytest.raises(Retryable) as away:
        query_command(Namespace(**{**vars(arguments), "server": server}), io.StringIO())
    assert str(away.value).startswith(f"{server} does not answer: {said}")


def test_what_a_command_does_not_know_is_said_by_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["metrics", "list", "--nonsense"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "secondsight: unrecognized arguments: --nonsense\n  secondsight metrics list --help shows how it is used\n"
    )


def test_what_goes_wrong_is_said(arguments):
    with pytest.raises(Rejected) as refused:
        query_command(Namespace(**{**vars(arguments), "metric": "nothing"}), io.StringIO())
    assert refused.value.code == "unknown_metric"
    with pytest.raises(Rejected) as refused:
        query_command(Namespace(**{**vars(arguments), "token_file": Path("/nowhere")}), io.StringIO())
    assert refused.value.code == "no_token"
    with pytest.raises(Rejected) as refused:
        query_command(Namespace(**{**vars(arguments), "server": "localhost"}), io.StringIO())
    assert refused.value.code == "bad_server"
    with pytest.raises(Retryable):
        query_command(Namespace(**{**vars(arguments), "server": "http://127.0.0.1:9"}), io.StringIO())
