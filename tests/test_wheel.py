"""The wheel holds the pages and the catalogue, and runs the platform from a fresh environment."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from up_rig import request, wait_until

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(out),
        str(ROOT),
    ]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return next(out.glob("*.whl"))


def test_it_holds_pages_and_catalogue_and_names_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "secondsight/api/static/index.html" in names
    assert "secondsight/catalog/gpu.toml" in names
    assert {f"secondsight/agent/kmsg/{name}" for name in ("xid.csv", "sxid.csv", "rules.toml")} <= {*names}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "bench", "web"))]


@pytest.mark.timeout(240)
def test_it_runs_the_platform_from_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are those of this environment, put on the path; only the wheel itself is installed."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = next((home / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    lines = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (site / "dependencies.pth").write_text("\n".join(dict.fromkeys(lines)) + "\n")
    where = subprocess.run(
        [python, "-c", "import secondsight; print(secondsight.__path__[0])"], check=True, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(site))
    data = tmp_path / "data"
    words = [python, "-m", "secondsight", "up", "--data", str(data), "--listen", "127.0.0.1:0", "--simulate", "2x2"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        wait_until(lambda: (data / "ready").exists() or process.poll() is not None, 120)
        address = (data / "ready").read_text().strip()
        status, page = request(address, "GET", "/", "")
        assert (status, b"<title>" in page) == (200, True)
        assert request(address, "GET", "/healthz", "")[0] == 200
    finally:
        process.terminate()
        assert process.wait(90) == 0
