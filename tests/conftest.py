"""What all tests share: the loud list of tests that could not run here."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("secondsight", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("secondsight")


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
    _not_run_file = Path(name) if name else None
