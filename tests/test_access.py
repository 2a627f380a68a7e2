"""Tokens, grants, scopes, definitions, plans and the schema that holds them, on a real SQLite file."""

import itertools
import multiprocessing
import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Engine, MetaData, String, Table, event, inspect, select, text, update

from postgresql_server import emptied
from secondsight.access.audit import AuditEntry, AuditLog, AuditMark, write_entries
from secondsight.access.definitions import definition_hash, get_definition, get_definitions, put_definitions
from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import AUDIT, METADATA, TOKENS, open_metadata
from secondsight.access.plans import PlanInterval, continue_plans, mark_logged, newest_plans, plans_in_force
from secondsight.access.schema import grow_schema, open_engine
from secondsight.access.scope import Grant, Scope, add_grant, merge_scopes, revoke_grants, scope_of, scopes_of, united
from secondsight.access.tenants import Tenant, add_tenant, list_tenants
from secondsight.access.tokens import (
    CLOCKS_APART_MS,
    Authenticator,
    TokenSpec,
    create_token,
    list_tokens,
    revoke_token,
)
from secondsight.clock import ManualClock
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind

NOW_MS = 1_700_000_000_000
COLLECTOR = TokenSpec(Role.COLLECTOR, "t1", "agents", cluster_id="c1", region="eu", collector_pattern="*")


@pytest.fixture(params=["sqlite", "postgresql"])
def metadata(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "sqlite":
        address = str(tmp_path / "deep" / "metadata.sqlite")
    else:
        address = emptied(request.getfixturevalue("postgresql"))
    engine = open_metadata(address)
    yield engine
    engine.dispose()


def refusal(call, *args) -> str:
    with pytest.raises(Rejected) as caught:
        call(*args)
    return caught.value.code


def test_a_token_gives_its_identity(metadata: Engine):
    issued = create_token(metadata, COLLECTOR, NOW_MS)
    identity = Authenticator(metadata, ManualClock()).authenticate(issued.secret)
    assert identity == Identity(issued.subject, Role.COLLECTOR, "t1", "agents", "c1", "eu", "*")
    assert issued.secret.startswith("ss_c")
    assert issued.secret not in repr(issued)


def test_the_store_never_holds_the_secret(metadata: Engine, tmp_path: Path):
    secret = create_token(metadata, COLLECTOR, NOW_MS).secret
    with metadata.connect() as connection:
        assert secret.encode() not in repr(connection.execute(select(TOKENS)).all()).encode()
    metadata.dispose()
    for file in tmp_path.glob("deep/*"):
        assert secret.encode() not in file.read_bytes()


def test_wrong_secrets_are_refused_without_being_repeated(metadata: Engine):
    create_token(metadata, COLLECTOR, NOW_MS)
    authenticator = Authenticator(metadata, ManualClock())
    assert refusal(authenticator.authenticate, "") == "token_missing"
    for secret in ("ss_cwrong", "x" * 100_000, "\udcff", "ss_c\n"):
        with pytest.raises(Rejected) as caught:
            authenticator.authenticate(secret)
        assert caught.value.code == "token_invalid"
        assert secret not in str(caught.value)
        assert secret not in caught.value.hint


def test_a_token_expires_even_while_remembered(metadata: Engine):
    clock = ManualClock(NOW_MS)
    secret = create_token(metadata, replace(COLLECTOR, expires_ms=NOW_MS + 1000), NOW_MS).secret
    authenticator = Authenticator(metadata, clock, cache_seconds=1e9)
    authenticator.authenticate(secret)
    clock.move(1)
    assert refusal(authenticator.authenticate, secret) == "token_expired"
    assert refusal(authenticator.remembered, secret) == "token_expired"


def test_a_revoked_token_dies_within_the_cache_time(metadata: Engine):
    clock = ManualClock(NOW_MS)
    issued = create_token(metadata, COLLECTOR, NOW_MS)
    authenticator = Authenticator(metadata, clock, cache_seconds=5)
    assert authenticator.remembered(issued.secret) is None
    authenticator.authenticate(issued.secret)
    assert authenticator.remembered(issued.secret) is not None
    assert revoke_token(metadata, issued.token_id, NOW_MS)
    assert not revoke_token(metadata, issued.token_id, NOW_MS)
    clock.move(5)
    assert refusal(authenticator.authenticate, issued.secret) == "token_invalid"


def test_remembered_tokens_are_looked_at_in_one_reading(metadata: Engine):
    clock = ManualClock(NOW_MS)
    issued = [create_token(metadata, replace(COLLECTOR, name=f"n{number}"), NOW_MS) for number in range(30)]
    authenticator = Authenticator(metadata, clock, cache_seconds=5)
    for one in issued:
        authenticator.authenticate(one.secret)
    with metadata.begin() as connection:
        ends = update(TOKENS).where(TOKENS.c.token_id == issued[1].token_id).values(expires_ms=NOW_MS + 8_000)
        connection.execute(ends)
    revoke_token(metadata, issued[2].token_id, NOW_MS)
    clock.move(6)
    asked = []
    event.listen(metadata, "before_cursor_execute", lambda _, __, sql, *___: asked.append(sql))
    for number, one in enumerate(issued):
        if number != 2:
            assert authenticator.authenticate(one.secret).name == f"n{number}"
    assert len([sql for sql in asked if "FROM tokens" in sql]) == 1
    assert refusal(authenticator.authenticate, issued[2].secret) == "token_invalid"
    clock.move(3)
    assert refusal(authenticator.remembered, issued[1].secret) == "token_expired"


def test_what_was_not_looked_at_for_long_is_forgotten(metadata: Engine):
    clock = ManualClock(NOW_MS)
    issued = create_token(metadata, COLLECTOR, NOW_MS)
    authenticator = Authenticator(metadata, clock)
    authenticator.authenticate(issued.secret)
    revoke_token(metadata, issued.token_id, NOW_MS + 1)
    clock.move(2 * CLOCKS_APART_MS / 1000)
    assert refusal(authenticator.authenticate, issued.secret) == "token_invalid"


@pytest.mark.parametrize(
    "spec",
    [
        replace(COLLECTOR, cluster_id=""),
        replace(COLLECTOR, collector_pattern=""),
        replace(COLLECTOR, tenant_id=""),
        replace(COLLECTOR, tenant_id="t" * 201),
        replace(COLLECTOR, cluster_id="c\0"),
        replace(COLLECTOR, grants=(Grant("t1"),)),
        TokenSpec(Role.VIEWER, "t1", "v", cluster_id="c1"),
    ],
)
def test_tokens_that_make_no_sense_are_not_made(metadata: Engine, spec: TokenSpec):
    assert refusal(create_token, metadata, spec, NOW_MS) == "token_spec_invalid"
    with metadata.connect() as connection:
        assert connection.execute(select(TOKENS)).all() == []


@pytest.mark.parametrize(
    ("pattern", "collector_id", "allowed"),
    [
        ("*", "host-12/dcgm", True),
        ("*", "", False),
        ("host-12", "host-12", True),
        ("host-12", "host-12/dcgm", True),
        ("host-12", "host-123", False),
        ("host-12", "host-123/dcgm", False),
        ("host-12", "/dcgm", False),
        ("host-12", "xhost-12", False),
        ("host-12/*", "host-12/dcgm", True),
        ("host-12/*", "host-12", False),
        ("host-12, host-12/*", "host-12", True),
        ("host.12", "host-12", False),
        ("host-[12]", "host-1", False),
        ("rack-*/gpu-*", "rack-7/gpu-1", True),
        ("", "host-12", False),
        (",", "", False),
    ],
)
def test_collector_patterns(pattern: str, collector_id: str, allowed: bool):
    identity = Identity("token:1", Role.COLLECTOR, "t", "n", "c", "", pattern)
    assert identity.allows_collector(collector_id) is allowed
    assert not replace(identity, role=Role.ADMIN).allows_collector(collector_id)


def identity_of(metadata: Engine, spec: TokenSpec) -> Identity:
    return Authenticator(metadata, ManualClock()).authenticate(create_token(metadata, spec, NOW_MS).secret)


def test_an_admin_reads_its_tenant_and_no_other(metadata: Engine):
    scope = scope_of(identity_of(metadata, TokenSpec(Role.ADMIN, "t1", "root")), metadata)
    assert (scope.tenant_ids, scope.clusters, scope.teams, scope.jobs) == (("t1",), None, None, None)


def test_a_viewer_without_grants_reads_nothing(metadata: Engine):
    assert refusal(scope_of, identity_of(metadata, TokenSpec(Role.VIEWER, "t1", "v")), metadata) == "no_grant"
    assert refusal(scope_of, identity_of(metadata, COLLECTOR), metadata) == "role_cannot_read"


def test_grants_come_back_as_they_were_given(metadata: Engine):
    grant = Grant("op", frozenset({"c1"}), frozenset({"team-ü"}), frozenset(), frozenset({"m"}), frozenset({"x_watts"}))
    identity = identity_of(metadata, TokenSpec(Role.VIEWER, "op", "customer", grants=(grant,)))
    scope = scope_of(identity, metadata)
    assert scope == Scope(
        ("op",),
        grant.clusters,
        grant.teams,
        frozenset(),
        grant.denied_metrics,
        identity.subject,
        Role.VIEWER,
        grant.model_ids,
    )
    assert revoke_grants(metadata, identity.subject, NOW_MS) == 1
    assert refusal(scope_of, identity, metadata) == "no_grant"


def test_grants_that_are_no_box_are_never_widened_into_one(metadata: Engine):
    identity = identity_of(metadata, TokenSpec(Role.VIEWER, "a", "v"))
    add_grant(metadata, identity.subject, Grant("a", clusters=frozenset({"c1"})), NOW_MS)
    add_grant(metadata, identity.subject, Grant("b", teams=frozenset({"x"})), NOW_MS)
    assert len(scopes_of(identity, metadata)) == 2
    both = scope_of(identity, metadata)
    assert both.boxes == scopes_of(identity, metadata)
    assert both.whole == both.boxes[0]
    assert both.owned == both.boxes[1]
    assert both.admits_cluster("a", "c1")
    assert not both.admits_cluster("b", "c1")
    assert scope_of(identity, metadata, "b").teams == {"x"}
    assert refusal(scope_of, identity, metadata, "c") == "no_grant"


def test_a_scope_without_tenant_cannot_exist():
    for tenant_ids in ((), ("",)):
        assert refusal(Scope, tenant_ids, None, None, None, frozenset(), "s", Role.ADMIN) == "no_grant"


NAMES = ("1", "2", "3")
SETS = st.none() | st.frozensets(st.sampled_from(NAMES))
SCOPES = st.builds(
    Scope,
    tenant_ids=st.sampled_from([("t1",), ("t2",)]),
    clusters=SETS,
    teams=SETS,
    jobs=st.none() | st.just(frozenset({"1"})),
    denied_metrics=st.frozensets(st.sampled_from(["m1", "m2"])),
    subject=st.just("s"),
    role=st.just(Role.VIEWER),
)


def admits(scope: Scope, row: tuple[str, str, str, str, str]) -> bool:
    tenant, cluster, team, job, metric = row
    return (
        tenant in scope.tenant_ids
        and (scope.clusters is None or cluster in scope.clusters)
        and (scope.teams is None or team in scope.teams)
        and (scope.jobs is None or job in scope.jobs)
        and metric not in scope.denied_metrics
    )


@settings(deadline=None)
@given(st.lists(SCOPES, max_size=5))
def test_merged_scopes_admit_exactly_what_the_grants_admit(scopes: list[Scope]):
    merged = merge_scopes(scopes)
    for row in itertools.product(("t1", "t2"), (*NAMES, "?"), (*NAMES, "?"), ("1", "?"), ("m1", "m2", "m3")):
        assert any(admits(s, row) for s in scopes) == any(admits(s, row) for s in merged)
        assert not scopes or any(admits(s, row) for s in united(merged).boxes) == any(admits(s, row) for s in scopes)


def test_definitions_are_stored_once_and_checked(metadata: Engine):
    blob = b"schema"
    digest = definition_hash(blob)
    assert get_definition(metadata, digest) is None
    assert put_definitions(metadata, {digest: blob}, NOW_MS) == 1
    assert put_definitions(metadata, {digest: blob}, NOW_MS) == 0
    assert get_definition(metadata, digest) == blob
    assert get_definitions(metadata, [digest, bytes(16)]) == {digest: blob}
    assert refusal(put_definitions, metadata, {digest: b"another meaning"}, NOW_MS) == "definition_hash_wrong"


def plan(interval_ms: int, from_ms: int, kind: EntityKind = EntityKind.GPU) -> PlanInterval:
    return PlanInterval("t", "c", "host-1", "host-1", kind, interval_ms, from_ms)


def wish(interval_ms: int, from_ms: int, learnt: bool = False) -> list[PlanInterval]:
    return [replace(plan(interval_ms, from_ms), learnt=learnt)]


def test_a_plan_is_continued_not_rewritten(metadata: Engine):
    first = continue_plans(metadata, wish(1000, 100))
    assert first == (plan(1000, 100),)
    mark_logged(metadata, first)
    assert continue_plans(metadata, wish(1000, 900)) == ()
    closed, new = continue_plans(metadata, wish(5000, 700))
    assert (closed.to_ms, closed.version) == (700, 1)
    assert (new.from_ms, new.to_ms, new.version) == (700, None, 2)
    node = plan(30_000, 50, EntityKind.NODE)
    continue_plans(metadata, [node])
    assert plans_in_force(metadata, "t", "c", "host-1") == (new, node)
    assert plans_in_force(metadata, "t2", "c", "host-1") == ()


def test_an_interval_is_given_out_until_it_was_announced(metadata: Engine):
    first = continue_plans(metadata, wish(1000, 100))
    assert continue_plans(metadata, wish(1000, 900)) == first
    closed, new = continue_plans(metadata, wish(5000, 700))
    mark_logged(metadata, first)  # the open form was announced, the closed one was not
    assert continue_plans(metadata, wish(5000, 800)) == (closed, new)
    mark_logged(metadata, [closed, new])
    assert continue_plans(metadata, wish(5000, 800)) == ()


def test_a_plan_never_starts_before_the_one_it_follows(metadata: Engine):
    continue_plans(metadata, wish(1000, 1000))
    closed, new = continue_plans(metadata, wish(2000, 10))
    assert (closed.from_ms, closed.to_ms, new.from_ms) == (1000, 1000, 1000)


def test_a_learnt_cadence_yields_to_a_plan_that_was_handed_out(metadata: Engine):
    mark_logged(metadata, continue_plans(metadata, wish(1000, 1000, learnt=True)))
    assert continue_plans(metadata, wish(1000, 1500, learnt=True)) == ()
    assert continue_plans(metadata, wish(30_000, 2000, learnt=True)) == ()  # it names version 1, which is there
    second = [replace(interval, version=2) for interval in wish(30_000, 2000, learnt=True)]
    mark_logged(metadata, continue_plans(metadata, second))
    both = wish(40_000, 5, learnt=True) + wish(5000, 3000) + wish(50_000, 6, learnt=True)
    given = continue_plans(metadata, both)
    assert [(interval.interval_ms, interval.to_ms) for interval in given] == [(30_000, 3000), (5000, None)]
    mark_logged(metadata, given)
    assert continue_plans(metadata, wish(30_000, 4000, learnt=True)) == ()


cadences = st.builds(
    PlanInterval,
    st.sampled_from(["t1", "t2"]),
    st.just("c"),
    st.sampled_from(["host-1", "host-2"]),
    st.just("host"),
    st.sampled_from([EntityKind.GPU, EntityKind.NODE]),
    st.sampled_from([1000, 5000]),
    st.integers(0, 5),
    version=st.integers(1, 3),
    learnt=st.booleans(),
)


@settings(max_examples=30, deadline=None)
@given(rounds=st.lists(st.tuples(st.lists(cadences, max_size=6), st.booleans()), max_size=4))
def test_plans_of_many_collectors_continue_as_each_would_alone(rounds: list[tuple[list[PlanInterval], bool]]):
    with TemporaryDirectory() as folder:
        together, apart = (open_metadata(f"{folder}/{name}.sqlite") for name in ("together", "apart"))
        for wanted, logged in rounds:
            keys = dict.fromkeys(interval.key for interval in wanted)
            groups = [[interval for interval in wanted if interval.key == key] for key in keys]
            given = continue_plans(together, wanted)
            assert given == tuple(interval for group in groups for interval in continue_plans(apart, group))
            assert newest_plans(together, wanted) == tuple(newest_plans(apart, group)[0] for group in groups)
            for metadata in (together, apart) if logged else ():
                mark_logged(metadata, given)
        together.dispose()
        apart.dispose()


def test_reads_are_audited_in_batches_and_refusals_at_once(metadata: Engine):
    audit = AuditLog(metadata)

    def stored() -> list[str]:
        with metadata.connect() as connection:
            return [row.outcome for row in connection.execute(select(AUDIT).order_by(AUDIT.c.audit_id))]

    audit.record(AuditEntry(NOW_MS, "token:1", "t", "read"))
    assert stored() == []
    audit.record(AuditEntry(NOW_MS, "token:1", "t", "read", "no_grant"))
    assert stored() == ["ok", "no_grant"]
    audit.record(AuditEntry(NOW_MS, "token:1", "t", "read"))
    audit.close()
    audit.close()
    assert stored() == ["ok", "no_grant", "ok"]


def test_nobody_who_reads_waits_for_the_audit_to_be_written(metadata: Engine, monkeypatch: pytest.MonkeyPatch):
    audit, writes, may_end = AuditLog(metadata), threading.Event(), threading.Event()

    def slow(engine: Engine, entries: list[AuditEntry]) -> None:
        writes.set()
        assert may_end.wait(20)
        write_entries(engine, entries)

    monkeypatch.setattr("secondsight.access.audit.write_entries", slow)
    audit.note(AuditEntry(NOW_MS, "token:1", "t", "read"))
    flushing = threading.Thread(target=audit.flush)
    flushing.start()
    assert writes.wait(20)
    assert audit.note(AuditEntry(NOW_MS, "token:2", "t", "read")), "it came while the other one was written"
    may_end.set()
    flushing.join(20)
    assert audit.flush() == 1
    with metadata.connect() as connection:
        found = [row.subject for row in connection.execute(select(AUDIT).order_by(AUDIT.c.audit_id))]
    assert found == ["token:1", "token:2"]


def test_what_could_not_be_written_waits_in_its_order(metadata: Engine, monkeypatch: pytest.MonkeyPatch):
    audit = AuditLog(metadata)

    def away(*_: object) -> None:
        raise Retryable("away")

    with monkeypatch.context() as broken:
        broken.setattr("secondsight.access.audit.write_entries", away)
        audit.record(AuditEntry(NOW_MS, "token:1", "t", "read"))
        with pytest.raises(Retryable):
            audit.record(AuditEntry(NOW_MS, "token:2", "t", "read", "no_grant"))
    assert audit.flush() == 2
    assert audit.flush() == 0


def test_a_mark_that_is_left_tells_of_a_kill(tmp_path: Path):
    mark = AuditMark(tmp_path / "audit.open")
    assert mark.begin() is None
    mark.end()
    mark.end()
    assert mark.begin() is None
    os.utime(tmp_path / "audit.open", (NOW_MS / 1000, NOW_MS / 1000))
    assert AuditMark(tmp_path / "audit.open").begin() == NOW_MS
    assert AuditMark(tmp_path / "nowhere" / "audit.open").begin() is None


def open_and_report(path: str, start, results) -> None:
    start.wait()
    try:
        for number in range(8):
            open_metadata(f"{path}/{number}/metadata.sqlite").dispose()
        results.put("ok")
    except Exception as error:  # noqa: BLE001 - reported to the parent, which asserts on it
        results.put(repr(error))


def test_several_processes_may_create_the_schema_at_once(tmp_path: Path):
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Event(), spawn.Queue()
    path = str(tmp_path)
    workers = [spawn.Process(target=open_and_report, args=(path, start, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    assert [results.get(timeout=60) for _ in workers] == ["ok"] * 4
    for worker in workers:
        worker.join()


def test_several_processes_may_create_the_schema_in_postgresql_at_once(postgresql: str):
    address = emptied(postgresql)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.map(_open_address, [address] * 8) == [True] * 8


def _open_address(address: str) -> bool:
    engine = open_metadata(address)
    engine.dispose()
    return True


def test_a_server_that_is_away_is_tried_again_later(postgresql: str):
    engine = open_engine("postgresql+pg8000://postgres@127.0.0.1:1/postgres")
    with pytest.raises(Retryable):
        list_tenants(engine)
    engine = open_metadata(emptied(postgresql))
    add_tenant(engine, Tenant("t1", "one", NOW_MS))
    with engine.begin() as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.execute(text(ended))
    assert [tenant.tenant_id for tenant in list_tenants(engine)] == ["t1"]
    engine.dispose()


def test_an_older_schema_grows_and_keeps_its_rows(tmp_path: Path):
    path = tmp_path / "metadata.sqlite"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE tenants (tenant_id VARCHAR(200) PRIMARY KEY, created_ms BIGINT NOT NULL)")
        old.execute("INSERT INTO tenants VALUES ('t1', 5)")
    old.close()
    wanted = MetaData()
    Table(
        "tenants",
        wanted,
        Column("tenant_id", String(200), primary_key=True),
        Column("note", String, server_default="-", index=True),
    )
    engine = open_engine(str(path))
    grow_schema(engine, wanted)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT tenant_id, created_ms, note FROM tenants").all() == [("t1", 5, "-")]
    assert [index["name"] for index in inspect(engine).get_indexes("tenants")] == ["ix_tenants_note"]
    engine.dispose()


def test_opening_again_changes_nothing(metadata: Engine):
    before = inspect(metadata).get_table_names()
    grow_schema(metadata, METADATA)
    assert inspect(metadata).get_table_names() == before


def test_tokens_and_tenants_are_listed(metadata: Engine):
    first = create_token(metadata, COLLECTOR, NOW_MS)
    second = create_token(metadata, TokenSpec(Role.ADMIN, "t1", "root"), NOW_MS + 1)
    create_token(metadata, TokenSpec(Role.ADMIN, "t2", "other"), NOW_MS)
    revoke_token(metadata, first.token_id, NOW_MS + 2)
    listed = list_tokens(metadata, "t1")
    assert [(token.token_id, token.role, token.revoked_ms) for token in listed] == [
        (first.token_id, Role.COLLECTOR, NOW_MS + 2),
        (second.token_id, Role.ADMIN, None),
    ]
    add_tenant(metadata, Tenant("t2", "Two", NOW_MS))
    add_tenant(metadata, Tenant("t1", "One", NOW_MS))
    assert [tenant.tenant_id for tenant in list_tenants(metadata)] == ["t1", "t2"]
    assert refusal(add_tenant, metadata, Tenant("t1", "Again", NOW_MS)) == "tenant_exists"
    assert refusal(add_tenant, metadata, Tenant("", "None", NOW_MS)) == "tenant_invalid"


def test_a_store_that_is_away_is_tried_again_later(tmp_path: Path):
    metadata = open_metadata(str(tmp_path / "metadata.sqlite"))
    secret = create_token(metadata, COLLECTOR, NOW_MS).secret
    metadata.dispose()
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    with pytest.raises(Retryable):
        Authenticator(metadata, ManualClock()).authenticate(secret)
