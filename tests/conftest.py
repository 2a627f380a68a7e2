"""What all tests share: a hot store, the list of tests that could not run here, and that modules close their files."""

import gc
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from secondsight.store.chdb import ChdbStore

settings.register_profile("secondsight", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("secondsight")

pytest_plugins = [
    "clickhouse_server",
    "kafka_broker",
    "postgresql_server",
]  # servers that tests of several modules share

LONG = ("test_flow_incidents", "test_agent_lossless", "test_up", "test_chaos", "test_log_kafka", "test_flow_")
LONG += ("test_cold", "test_guard_generated", "test_lake_", "test_rollup", "test_process_flow", "test_query_series")
LONG += ("test_web_pages", "test_ask_questions", "test_store_")
"""Modules that take longest, by how their names begin. They go first, so that no worker ends with one alone."""
LEFT_OPEN_MAXIMUM = 8
"""How many files a module may leave open: libraries keep a few for the life of the process."""
THREAD_FILES = re.compile(r"/proc/\d+/task/|.*\.so(\.[\d.]+)?$|.*\.debug$|.*/bin/python")
"""Files that the store's engine holds for each of its threads, which outlive a store, and those it names frames by."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--not-run-file", default=None, help="append a line for each test that this machine cannot run")
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected outputs of data cases (never in CI)")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and _not_run_file is not None and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        with _not_run_file.open("a") as out:
            out.write(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}\n")


_not_run_file: Path | None = None


def pytest_configure(config: pytest.Config) -> None:
    global _not_run_file
    name = config.getoption("--not-run-file")
    is_worker = hasattr(config, "workerinput")  # the process that started it hears of every test
    _not_run_file = Path(name) if name and not is_worker else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: next((place for place, name in enumerate(LONG) if item.path.name.startswith(name)), len(LONG))
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ChdbStore]":
    """A hot store with the tables of the shipped catalogue, for all tests of a module."""
    from secondsight.catalog.load import load_catalog  # imported by those alone who need the engine
    from secondsight.store.chdb import ChdbStore
    from secondsight.store.migrate import migrate

    opened = ChdbStore(tmp_path_factory.mktemp("hot"))
    migrate(opened, load_catalog())
    yield opened
    opened.close()


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    from process_rig import new_tenant

    return new_tenant()


@pytest.fixture(scope="module", autouse=True)
def _closes_its_files() -> Iterator[None]:
    before = _open_files()
    yield
    if (_open_files() - before).total() > LEFT_OPEN_MAXIMUM:
        gc.collect()
        left = _open_files() - before
        assert left.total() <= LEFT_OPEN_MAXIMUM, f"{left.total()} files are left open: {sorted(left.elements())}"


def _open_files() -> "Counter[str]":
    found: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found[str(entry.readlink())] += 1
    return Counter({name: count for name, count in found.items() if not THREAD_FILES.match(name)})
