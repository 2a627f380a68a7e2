"""A PostgreSQL server on loopback, in a folder of its own; skips where no server is installed."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def _as_user(*words: str) -> list[str]:
    """Return a command that a user other than root runs: the server refuses root."""
    return ["runuser", "-u", "postgres", "--", *words] if os.getuid() == 0 else list(words)


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for all tests of the session."""
    if not PROGRAMS or (os.getuid() == 0 and shutil.which("runuser") is None):
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    folder = Path("/tmp") / f"secondsight-pg-{os.getpid()}"
    folder.mkdir(mode=0o700)
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    data, log = folder / "data", folder / "log"
    control = str(PROGRAMS[-1] / "pg_ctl")
    told = "--auth=trust --username=postgres --encoding=UTF8 --locale=C --no-sync"
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    try:
        _run(control, "initdb", "-D", str(data), "-o", told)
        _run(control, "start", "-w", "-D", str(data), "-l", str(log), "-o", settings)
        yield f"postgresql+pg8000://postgres@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run(_as_user(control, "stop", "-m", "immediate", "-D", str(data)), capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def emptied(address: str) -> str:
    """Return the address of a database that holds nothing."""
    engine = create_engine(address)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return address


def _run(*words: str) -> None:
    subprocess.run(_as_user(*words), check=True, stdout=subprocess.DEVNULL, timeout=60, cwd="/")
