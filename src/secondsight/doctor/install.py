"""Look at the installation: the interpreter, and the packages that the settings need."""

import importlib
import importlib.metadata
import sys
from collections.abc import Iterator

from secondsight.agent.config import AgentConfig
from secondsight.doctor.findings import Finding, fault, ok, warning
from secondsight.release import VERSION

BASE = (("numpy", "numpy"), ("zstandard", "zstandard"), ("google_crc32c", "google-crc32c"), ("pynvml", "nvidia-ml-py"))
KUBERNETES = (("grpc", "grpcio"), ("google.protobuf", "protobuf"))
PYTHON_LEAST = (3, 11)


def install(config: AgentConfig | None) -> Iterator[Finding]:
    """Check what is installed; packages that only some settings need only where they are set."""
    python = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_LEAST:
        yield fault(f"Python is {python}", "install 3.11 or newer and make the environment anew")
    else:
        yield ok(f"secondsight {VERSION} on Python {python}, {sys.executable}")
    has_pods = config is not None and config.kubernetes is not None
    for module, package in (*BASE, *(KUBERNETES if has_pods else ())):
        yield from _package(module, package)
    if config is not None and config.dcgm is not None and config.dcgm.folder() is None:
        remedy = "install datacenter-gpu-manager, or set agent.dcgm.bindings to the folder of its Python bindings"
        yield fault("agent.dcgm is set and DCGM's Python bindings are not on this host", remedy)


def _package(module: str, package: str) -> Iterator[Finding]:
    extra = "secondsight[kubernetes]" if (module, package) in KUBERNETES else "secondsight"
    remedy = f"{sys.executable} -m pip install '{extra}'"
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        yield fault(f"{package} cannot be imported: {error}", remedy)
        return
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    if module == "google_crc32c" and getattr(found, "implementation", "c") != "c":
        slow = f"{package} {version} runs in Python, which costs much more of a core"
        yield warning(slow, f"install a wheel for this machine: {remedy} --force-reinstall --only-binary :all:")
    else:
        yield ok(f"{package} {version}")
