"""The wheel holds the pages and the catalogue, and runs the platform from a fresh environment."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import distribution
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


BASE = ("numpy", "zstandard", "google-crc32c", "nvidia-ml-py")


@pytest.fixture(scope="module")
def base_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what the base package depends on, and nothing else."""
    home = tmp_path_factory.mktemp("base") / "env"
    venv.create(home, with_pip=False)
    site = next((home / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in BASE:
        found = distribution(name)
        for top in {path.parts[0] for path in found.files or () if path.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    return home / "bin" / "python"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("agent --help", 0, "collect from this host"),
        ("agent status --spool-dir {folder}", 1, "no agent has said anything"),
        ("agent status --spool-dir {folder} --json", 1, '"alive": false'),
        ("doctor --config {folder}/agent.toml", 1, "FAULT   the gateway 127.0.0.1:9 is not reached"),
        ("doctor --data {folder} --json", 1, "there is no platform in"),
        ("agent job start --dir {folder}/jobs", 0, ""),
        ("tokens --help", 0, "tokens of people"),
    ],
)
def test_the_agents_commands_need_the_base_package_alone(
    base_python: Path, tmp_path: Path, words: str, code: int, text: str
) -> None:
    settings = [
        "[agent]",
        'gateway = "http://127.0.0.1:9"',
        f'spool_dir = "{tmp_path}"',
        f'token_file = "{tmp_path}/t"',
    ]
    (tmp_path / "agent.toml").write_text("\n".join(settings))
    command = [base_python, "-m", "secondsight", *words.format(folder=tmp_path).split()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment | {"SLURM_JOB_ID": "7"}
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert text.lower() in done.stdout.lower()
    lacking = [base_python, "-c", "import chdb"]
    assert subprocess.run(lacking, capture_output=True, check=False, env=environment).returncode == 1


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
