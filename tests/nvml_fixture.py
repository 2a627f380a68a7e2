"""The binding of NVML over the scripted stub: inside this process, or for processes that tests start."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from nvml_stub import build
from nvml_stub.scenario import VARIABLE, Machine

needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="needs a C compiler for the stub of NVML")

Bind = Callable[..., Machine]


@pytest.fixture
def bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bind]:
    """Give a function that points `pynvml` in this process at the stub with a scenario, and returns the machine.

    Its `without` names symbols that the library lacks.
    """
    bound: list[ctypes.CDLL] = []

    def bind_to(*lines: str, without: tuple[str, ...] = ()) -> Machine:
        machine = Machine(tmp_path / "machine", *lines)
        monkeypatch.setenv(VARIABLE, str(machine.path))
        bound.append(ctypes.CDLL(str(build.library(without) / "libnvidia-ml.so.1")))
        monkeypatch.setattr(pynvml, "nvmlLib", bound[-1])
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return machine

    yield bind_to
    for library in bound:
        while library.nvmlShutdown() == 0:
            pass
