"""The steps of the guard one by one: scopes, ranges and the clock, kept plans, what the engine says it reads."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from guard_fixture import CASES, LIMITS, NOW_MS, registry, scope
from secondsight.access.scope import Scope
from secondsight.guard import patterns
from secondsight.guard.check import Plans, guard
from secondsight.guard.coarsen import coarser_statement
from secondsight.guard.dialect import parse, render, tokenise
from secondsight.guard.enginetree import read_tree
from secondsight.guard.functions import AGGREGATES, SCALARS
from secondsight.guard.lineage import Output
from secondsight.guard.moments import moment_of
from secondsight.guard.normal import normalise
from secondsight.guard.plan import Guarded
from secondsight.guard.quality import Quality, caveats
from secondsight.guard.refusal import MESSAGES, Refused
from secondsight.guard.registry import Bucket, Column, Registry, Role
from secondsight.guard.tree import NODES
from secondsight.guard.verify import check_engine, verify

DAY_MS = 86_400_000
RAW = (
    "event_time >= toDateTime64('2026-11-20 11:00:00', 3, 'UTC')"
    " AND event_time < toDateTime64('2026-11-20 12:00:00', 3, 'UTC')"
)
SECONDS = f"FROM gpu_telemetry_1s_secure WHERE {RAW}"
INCREASE = "deltaSumTimestamp(gpu_energy_joules_total, toUnixTimestamp64Milli(event_time))"
EVENTS = "SELECT kind, count() AS c FROM gpu_error_events_secure GROUP BY kind"


def passed(sql: str, caller: Scope | None = None, views: Registry | None = None, now_ms: int = NOW_MS) -> Guarded:
    return guard(sql, caller or scope(), views or registry(), now_ms, LIMITS)


def refused(sql: str, caller: Scope | None = None, views: Registry | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        passed(sql, caller, views)
    return caught.value


def outputs(sql: str) -> tuple[Output, ...]:
    return passed(sql).outputs


@pytest.mark.parametrize(
    ("caller", "condition"),
    [
        (scope(), '"__s"."tenant_id" = \'tenant_a\' AND "__s"."cluster_id" IN (\'c1\', \'c2\')'),
        (scope(clusters=None), '"__s"."tenant_id" = \'tenant_a\' AND "__s"."event_time"'),
        (scope(clusters=frozenset()), '"__s"."tenant_id" = \'tenant_a\' AND 1 = 0'),
        (scope(tenants=("a", "b")), "\"__s\".\"tenant_id\" IN ('a', 'b')"),
        (scope(teams=frozenset({"ml"})), '"__s"."owner_team" = \'ml\''),
        (scope(jobs=frozenset({"j2", "j1"})), "\"__s\".\"job_id\" IN ('j1', 'j2')"),
        (scope(tenants=("it's",)), "\"__s\".\"tenant_id\" = 'it''s'"),
        (scope(tenants=("a\\",)), '"__s"."tenant_id" = \'a\\\\\''),
    ],
)
def test_every_field_of_a_scope_filters_every_read(caller: Scope, condition: str) -> None:
    sql = passed(f"SELECT * FROM ({EVENTS}) AS a LEFT JOIN ({EVENTS}) AS b ON a.kind = b.kind", caller).sql
    assert sql.count(condition) == 2
    assert sql.count("LIMIT 18446744073709551615") == 2


def test_a_scope_that_a_view_cannot_tell_is_refused() -> None:
    assert refused(EVENTS, scope(model_ids=frozenset({"m"}))).code == "scope_not_offered"


def test_a_view_that_knows_models_is_filtered_by_them() -> None:
    views = registry()
    events = views.view("gpu_error_events_secure")
    assert events is not None
    known = replace(events, columns=(*events.columns, Column("model_id", "String", Role.DIMENSION)))
    sql = passed(EVENTS, scope(model_ids=frozenset({"m"})), Registry((known,), views.metrics)).sql
    assert '"__s"."model_id" = \'m\'' in sql


@pytest.mark.parametrize("sql", ["gpu_power_watts", "max(gpu_power_watts)", "count() AS c, max(gpu_power_watts)"])
def test_a_denied_metric_is_a_name_that_nobody_knows(sql: str) -> None:
    statement = f"SELECT {sql} {SECONDS}"
    denied = scope(denied_metrics=frozenset({"gpu_power_watts"}))
    assert str(refused(statement, denied)) == str(refused(statement.replace("gpu_power_watts", "no_such_thing")))
    everything = passed(f"SELECT * {SECONDS}", denied)
    assert "gpu_power_watts" not in everything.sql
    assert all("gpu_power_watts" not in output.name for output in everything.outputs)


def test_a_hidden_bucket_is_bounded_and_never_shown() -> None:
    views = registry()
    raw = views.view("gpu_telemetry_1s_secure")
    assert raw is not None
    bucketed = Registry((replace(raw, bucket=Bucket("bucket_hour", 3600)),), views.metrics)
    guarded = passed(f"SELECT * {SECONDS}", views=bucketed)
    hour = NOW_MS // 1000 - 3600
    assert f'"__s"."bucket_hour" >= toDateTime({hour}, \'UTC\')' in guarded.sql
    assert guarded.sql.count("bucket_hour") == 2
    assert refused(f"SELECT bucket_hour {SECONDS}", views=bucketed).code == "unknown_name"


def test_a_kept_plan_follows_the_clock() -> None:
    plans = Plans(registry(), LIMITS)
    since = "event_time >= now() - INTERVAL 1 DAY AND event_time < now()"
    sql = f"SELECT count(), now() AS t FROM gpu_telemetry_1s_secure WHERE {since}"
    first, later = plans.guard(sql, scope(), NOW_MS), plans.guard(sql, scope(), NOW_MS + 5_000)
    assert first == passed(sql)
    assert later == passed(sql, now_ms=NOW_MS + 5_000)
    assert [span.to_ms - NOW_MS for guarded in (first, later) for span in guarded.spans] == [0, 5_000]
    assert first.digest != later.digest


def test_a_kept_plan_is_refused_once_its_range_has_grown_too_wide() -> None:
    plans = Plans(registry(), LIMITS)
    sql = "SELECT count() FROM gpu_telemetry_1s_secure WHERE event_time >= '2026-11-14 00:00:00' AND event_time < now()"
    plans.guard(sql, scope(), NOW_MS)
    with pytest.raises(Refused) as caught:
        plans.guard(sql, scope(), NOW_MS + DAY_MS)
    assert caught.value.code == "range_too_wide"
    assert "gpu_telemetry_30s_secure" in caught.value.hint


def test_plans_are_kept_for_their_scope_alone() -> None:
    plans = Plans(registry(), LIMITS, kept=2)
    mine, other = plans.guard(EVENTS, scope(), NOW_MS), plans.guard(EVENTS, scope(tenants=("tenant_b",)), NOW_MS)
    assert "tenant_b" not in mine.sql
    assert "tenant_a" not in other.sql
    for number in range(5):
        plans.guard(f"{EVENTS} LIMIT {number}", scope(), NOW_MS)
    assert plans.guard(EVENTS, scope(), NOW_MS) == mine


def test_reads_without_a_range_are_bounded_to_what_a_view_may_hold() -> None:
    (span,) = passed(EVENTS).spans
    assert not span.stated
    assert (span.from_ms, span.to_ms) == (NOW_MS - 400 * DAY_MS, NOW_MS + DAY_MS)


@pytest.mark.parametrize(("where", "told"), [("window_start >= now() - 60", False), ("window_start < now()", True)])
def test_only_a_statement_without_a_beginning_is_told_where_it_is_read_from(where: str, told: bool) -> None:
    (span,) = passed(f"SELECT count() FROM gpu_telemetry_30s_secure WHERE {where}").spans
    found = caveats(Quality(NOW_MS, 0, None, False), (span,), NOW_MS)
    assert any("names no beginning" in each for each in found) == told


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("'2026-11-20'", NOW_MS - 12 * 3_600_000),
        ("'2026-11-20 12:00:00'", NOW_MS),
        ("'2026-11-20T12:00:00+02:00'", NOW_MS - 2 * 3_600_000),
        ("toDateTime('2026-11-20 12:00:00', 'Asia/Kolkata')", NOW_MS - 19_800_000),
        ("toDateTime64('2026-11-20 12:00:00.250', 3)", NOW_MS + 250),
        ("toDateTime(1795176000)", NOW_MS),
        ("fromUnixTimestamp64Milli(1795176000123)", NOW_MS + 123),
        ("now() - INTERVAL 1 HOUR", NOW_MS - 3_600_000),
        ("now() - 3600", NOW_MS - 3_600_000),
        ("INTERVAL 1 DAY + today()", NOW_MS + 12 * 3_600_000),
        ("today() - 7", NOW_MS - 12 * 3_600_000 - 7 * DAY_MS),
        ("yesterday()", NOW_MS - 36 * 3_600_000),
        ("toStartOfHour(now() - INTERVAL 30 MINUTE)", NOW_MS - 3_600_000),
        ("toStartOfDay(now(), 'America/New_York')", NOW_MS - 7 * 3_600_000),
        ("toMonday(now())", NOW_MS - 12 * 3_600_000 - 4 * DAY_MS),
        ("toStartOfMonth(now())", NOW_MS - 12 * 3_600_000 - 19 * DAY_MS),
        ("subtractMonths(toDateTime('2026-03-31 00:00:00'), 1)", 1_772_236_800_000),
        ("date_sub(DAY, 2, now())", NOW_MS - 2 * DAY_MS),
        ("DATE '2026-11-20'", NOW_MS - 12 * 3_600_000),
        ("dateTrunc('year', now())", 1_767_225_600_000),
        ("rand()", None),
        ("event_time", None),
        ("'yesterday'", None),
        ("now() - INTERVAL 1 DAY * 2", None),
    ],
)
def test_moments_are_those_that_the_engine_would_compute(text: str, milliseconds: int | None) -> None:
    sql = f"SELECT {text}"
    (tree,) = parse(sql, tokenise(sql))
    normalise(tree)
    moment = moment_of(tree.expressions[0], lambda node: node)
    assert (moment.at(NOW_MS) if moment is not None else None) == milliseconds


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        (f"SELECT host_id, max(gpu_power_watts) AS p {SECONDS} GROUP BY host_id", True),
        (f"SELECT count(gpu_power_watts) {SECONDS}", True),
        (f"SELECT toStartOfMinute(event_time) AS m, min(gpu_power_watts) {SECONDS} GROUP BY m", True),
        (f"SELECT gpu_id, {INCREASE} {SECONDS} GROUP BY gpu_id", True),
        (f"SELECT avg(gpu_power_watts) {SECONDS}", False),
        (f"SELECT count() {SECONDS}", False),
        (f"SELECT max(gpu_power_watts) {SECONDS} AND gpu_utilization_ratio > 0.5", False),
        (f"SELECT max(gpu_power_watts) {SECONDS.replace('11:00:00', '11:00:10')}", False),
        (f"SELECT toStartOfSecond(event_time) AS s, max(gpu_power_watts) {SECONDS} GROUP BY s", False),
        ("SELECT max(gpu_power_watts_max) FROM gpu_cluster_1h_secure", False),
        ("SELECT max(gpu_power_watts) FROM nothing", False),
    ],
)  # fmt: skip
def test_only_what_windows_answer_as_well_is_written_as_windows(sql: str, kept: bool) -> None:
    coarser = coarser_statement(sql, registry(), NOW_MS, LIMITS)
    assert (coarser is not None) is kept
    if coarser is not None:
        assert set(passed(coarser).views) == {"gpu_telemetry_30s_secure"}


def test_results_say_their_units() -> None:
    figures = "max(gpu_power_watts) AS w, count() AS c, avg(gpu_utilization_ratio) * 100 AS u"
    result = outputs(f"SELECT host_id, {figures} {SECONDS} GROUP BY host_id")
    named = {output.name: output.figure.unit for output in result}
    assert named == {"host_id": "", "w": "W", "c": "", "u": "1"}


def test_a_query_of_with_is_never_looked_up_as_a_table() -> None:
    sql = passed(
        f"WITH raw_err AS ({EVENTS}) SELECT r.kind FROM raw_err AS r JOIN raw_err ON r.kind = raw_err.kind"
    ).sql
    assert 'WITH "__s0" AS (' in sql
    assert sql.count('FROM "__s0" AS "r" JOIN "__s0" AS "raw_err"') == 1


def test_a_text_that_was_tampered_with_is_not_verified() -> None:
    guarded = passed(EVENTS)
    wrapper = re.search(r'\(SELECT "__s".*?18446744073709551615\) AS "gpu_error_events_secure"', guarded.sql)
    assert wrapper is not None
    verify(guarded.sql, [wrapper[0]], registry(), LIMITS)
    for tampered in (
        guarded.sql.replace("'tenant_a'", "'tenant_b'"),
        guarded.sql.replace(wrapper[0], "gpu_error_events_secure"),
        guarded.sql.replace(wrapper[0], "raw_err"),
        guarded.sql.replace(" LIMIT 18446744073709551615", ""),
        f"{guarded.sql} SETTINGS max_threads = 1",
        f"{guarded.sql}; SELECT 1",
        f"{guarded.sql} -- x",
    ):
        with pytest.raises(Refused) as caught:
            verify(tampered, [wrapper[0]], registry(), LIMITS)
        assert caught.value.code == "not_verified"


TEXT = "CONSTANT id: 5, constant_value: 'IDENTIFIER id: 5, identifier: x', constant_value_type: String"
TREE = f"""QUERY id: 0
  WITH
    LIST id: 1, nodes: 1
      QUERY id: 2, is_subquery: 1, is_cte: 1, cte_name: c
        JOIN TREE
          IDENTIFIER id: 5, alias: __s, identifier: v
  JOIN TREE
    JOIN id: 53, strictness: ALL, kind: LEFT
      LEFT TABLE EXPRESSION
        IDENTIFIER id: 54, alias: a, identifier: c
      RIGHT TABLE EXPRESSION
        QUERY id: 5, alias: v, is_subquery: 1
          JOIN TREE
            IDENTIFIER id: 9, identifier: w
  WHERE
    FUNCTION id: 2, function_name: equals, function_type: ordinary
      ARGUMENTS
        LIST id: 3, nodes: 2
          IDENTIFIER id: 4, identifier: host_id
          {TEXT}
  ORDER BY
    LIST id: 3, nodes: 1
      SORT id: 4, sort_direction: ASCENDING, with_fill: 0
        EXPRESSION host_id
          IDENTIFIER id: 5, identifier: host_id
"""


def test_what_the_engine_reads_is_what_was_expected() -> None:
    check_engine(TREE.splitlines(), {"v": 1, "w": 1})


@pytest.mark.parametrize(
    "tree",
    [
        "",
        TREE.replace("identifier: w", "identifier: raw_err"),
        TREE.replace("    JOIN id: 53", "    TABLE_FUNCTION id: 52, table_function_name: numbers\n    JOIN id: 53"),
        TREE.replace("function_name: equals", "function_name: in").replace(TEXT, "IDENTIFIER id: 5, identifier: q"),
        TREE.replace("LEFT TABLE EXPRESSION", "something else"),
        f"{TREE}\n  JOIN TREE\n    IDENTIFIER id: 70, identifier: v\n",
    ],
)  # fmt: skip
def test_anything_else_that_the_engine_reads_is_refused(tree: str) -> None:
    with pytest.raises(Refused) as caught:
        check_engine(tree.splitlines(), {"v": 1, "w": 1})
    assert caught.value.code == "not_verified"


def test_in_reads_a_table_however_it_is_written() -> None:
    tree = TREE.replace(TEXT, "IDENTIFIER id: 5, identifier: t").replace("equals", "{}")
    for name in ("in", "notIn", "globalIn", "nullIn", "globalNotNullIn", "inIgnoreSet"):
        assert read_tree(tree.format(name).splitlines()).tables == ("v", "w", "t")
    assert read_tree(tree.format("equals").splitlines()).tables == ("v", "w")


@pytest.mark.parametrize("name", [*SCALARS, *AGGREGATES])
def test_a_call_is_written_as_it_was_read(name: str) -> None:
    scalar = SCALARS.get(name)
    count = scalar.least if scalar is not None else AGGREGATES[name].least
    parameters = AGGREGATES[name].parameters[1] if scalar is None else 0
    text = f"SELECT {name}{'(1)' if parameters else ''}({', '.join('ab'[:1] * count)})"
    (tree,) = parse(text, tokenise(text))
    assert render(tree).replace(" (", "(").lower() == text.lower()
    assert NODES.keys() >= {type(node) for node in tree.walk()}


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        ("^xid [0-9]+$", 0), ("(a|b)c*?", 1), ("(?i)gap", 0), ("a{2,5}", 0), (r"\d+\.\d", 0), (r"\\", 0),
        ("[^a-z]", 0), ("(a", None), ("a++", None), ("(?=a)", None), (r"(a)\1", None), (r"\p{L}", None),
        ("a{1000}", None), ("\\", None),
        ("(?P<n>a)", None), ("[[:alpha:]]", None), ("*a", None), (r"\Z", None),
    ],
)  # fmt: skip
def test_patterns_are_those_that_the_engine_never_fails_on(pattern: str, groups: int | None) -> None:
    assert patterns.groups_of(pattern) == groups


@given(st.text(max_size=200))
def test_any_text_is_refused_in_fixed_words(text: str) -> None:
    try:
        guarded = passed(text)
    except Refused as refusal:
        said = refusal
    else:
        raise AssertionError(guarded.sql)
    assert said.message == MESSAGES[said.code][0]


@given(st.integers(0, 2**32), st.sampled_from(["(", "[", "NOT ", "-", "SELECT (", "a + ", "CASE WHEN 1 THEN ", "f("]))
def test_deep_statements_are_refused_and_never_crash(seed: int, piece: str) -> None:
    text = f"SELECT {piece * (seed % 3000)}1 FROM gpu_error_events_secure"
    with pytest.raises(Refused):
        passed(text[: LIMITS.text_bytes - 1] + " ;;SELECT")


@given(st.text(alphabet=st.characters(exclude_characters="\0", max_codepoint=0x2FFF), max_size=40).filter(bool))
def test_no_name_of_a_tenant_escapes_its_quotes(name: str) -> None:
    try:
        guarded = passed(EVENTS, scope(tenants=(name,), clusters=frozenset({name})))
    except Refused as refusal:
        code = refusal.code
    else:
        (tree,) = parse(guarded.sql, tokenise(guarded.sql))
        named = [
            node.name for node in tree.find_all(exp.Literal) if node.is_string and node.name not in ("UTC", "kind")
        ]
        assert named == [name, name]
        code = "not_verified"
    assert code == "not_verified"


def test_the_list_of_codes_is_closed() -> None:
    expected = {case.get("code") for case in map(json.loads, (CASES / "refused.jsonl").read_text().splitlines())}
    assert expected - {None} <= MESSAGES.keys()
    assert all(message for message, _ in MESSAGES.values())


class TestSeveralGrants:
    """A scope of two boxes: all of one cluster, and of another what a team has, without its power."""

    def caller(self) -> Scope:
        narrow = scope(
            clusters=frozenset({"c2"}), teams=frozenset({"ml", ""}), denied_metrics=frozenset({"gpu_power_watts"})
        )
        return replace(scope(clusters=frozenset({"c1"})), others=(narrow,))

    def test_rows_of_either_are_read(self) -> None:
        sql = passed(EVENTS, self.caller()).sql
        first = '("__s"."tenant_id" = \'tenant_a\' AND "__s"."cluster_id" = \'c1\')'
        second = '("__s"."tenant_id" = \'tenant_a\' AND "__s"."cluster_id" = \'c2\' AND "__s"."owner_team" = \'ml\')'
        assert f"WHERE ({first} OR {second}) AND" in sql

    def test_a_metric_that_one_denies_is_read_within_the_other(self) -> None:
        sql = passed(f"SELECT max(gpu_power_watts) {SECONDS}", self.caller()).sql
        assert "'c1'" in sql
        assert "'c2'" not in sql

    def test_what_no_single_grant_shows_is_refused(self) -> None:
        other = scope(clusters=frozenset({"c2"}), denied_metrics=frozenset({"gpu_temperature_celsius"}))
        first = scope(clusters=frozenset({"c1"}), denied_metrics=frozenset({"gpu_power_watts"}))
        caller = replace(first, others=(other,))
        statement = f"SELECT max(gpu_power_watts), max(gpu_temperature_celsius) {SECONDS}"
        assert refused(statement, caller).code == "scope_not_offered"

    def test_plans_of_other_boxes_are_other_plans(self) -> None:
        plans = Plans(registry(), LIMITS)
        one, two = plans.guard(EVENTS, scope(), NOW_MS), plans.guard(EVENTS, self.caller(), NOW_MS)
        assert one.sql != two.sql
