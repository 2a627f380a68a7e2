"""The examples of the guide work as they stand, against a running api."""

import os
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from api_client import serving
from query_fixture import Row, insert_entity, insert_progress, insert_rows
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "api.md"
CATALOG = load_catalog()


def examples():
    """Return the commands of the guide, continued lines as one."""
    lines = re.findall(r"^ {4}(.*)$", GUIDE.read_text(), re.MULTILINE)
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder, clock = tmp_path_factory.mktemp("guide"), SystemClock()
    store = ChdbStore(folder / "hot", readers=4)
    migrate(store, CATALOG)
    newest = clock.now_ms() // 1000 * 1000
    values = {"gpu_utilization_ratio": 5000, "gpu_power_watts": 400_000, "gpu_temperature_celsius": 60}
    rows = [Row(newest - 1000 * second, "GPU-a", values, cluster="cedar") for second in range(120)]
    insert_rows(store, rows)
    insert_entity(store, rows[-1], rows[-1].t)
    insert_progress(store, rows[-1], newest, rows[-1].t // 30_000 * 30_000)
    metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
    config = ApiConfig(folder)
    token = create_token(metadata, TokenSpec(Role.ADMIN, "t1", "admin"), newest).secret
    with serving(make_app(make_services(config, store, metadata, CATALOG, clock)), config) as client:
        yield {"API": f"http://127.0.0.1:{client.port}", "TOKEN": token}


def test_there_are_examples():
    assert len(examples()) > 10


@pytest.mark.skipif(which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("command", examples())
def test_an_example_works(running, command, tmp_path):
    done = subprocess.run(
        ["bash", "-c", command], env=os.environ | running, cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    made = done.stdout or b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert made
