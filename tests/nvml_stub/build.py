"""Compile the stub `libnvidia-ml.so.1` from the C sources beside this file, once for each version of them."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pynvml

HERE = Path(__file__).parent
SOURCES = ("stub.c", "scenario.c", "products.c", "system.c", "device.c", "batches.c", "events.c")
HEADERS = ("stub.h", "values.def")
OLD_SYMBOLS = ("nvmlInit_v2", "nvmlEventSetWait")
"""What programs other than `pynvml` look up."""
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-pthread")
_WEAK = '__attribute__((weak, visibility("default")))'
CACHE = HERE.parents[1] / ".build" / "nvml_stub"


def compiler() -> str | None:
    """Return the C compiler of this machine, if it has one."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@cache
def symbols() -> tuple[str, ...]:
    """Return every symbol that the installed binding looks up."""
    source = Path(pynvml.__file__).read_text()
    found = re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', source)
    return tuple(sorted({*found, *OLD_SYMBOLS}))


@cache
def library(without: tuple[str, ...] = (), cache_dir: Path = CACHE) -> Path:
    """Return a folder that holds `libnvidia-ml.so.1`; put it in `LD_LIBRARY_PATH`.

    Args:
        without: Symbols that the library shall lack, as that of an older driver does.
        cache_dir: Where built libraries are kept; its children are named by what they were built from.

    Raises:
        FileNotFoundError: No C compiler.
        subprocess.CalledProcessError: The sources do not compile.
    """
    folder = cache_dir / _version(without)
    if not (folder / "libnvidia-ml.so.1").exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir) as place:
            made = Path(place, "made")
            made.mkdir()
            _compile(made, without)
            with suppress(OSError):  # another process was quicker
                made.rename(folder)
    return folder


def _version(without: tuple[str, ...]) -> str:
    parts = [(HERE / name).read_bytes() for name in (*SOURCES, *HEADERS)]
    parts += [" ".join(FLAGS).encode(), " ".join(symbols()).encode(), " ".join(without).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(folder: Path, without: tuple[str, ...]) -> None:
    program = compiler()
    if program is None:
        message = "the stub of NVML needs a C compiler: install gcc"
        raise FileNotFoundError(message)
    (folder / "symbols.def").write_text("".join(f"SYMBOL({name})\n" for name in symbols()))
    unanswered = "".join(f"{_WEAK} int {name}(void) {{ return unanswered(C_{name}); }}\n" for name in symbols())
    (folder / "unanswered.c").write_text(f'#include "stub.h"\n{unanswered}')
    (folder / "exports.map").write_text(
        f"{{ local: {' '.join(f'{name};' for name in without)} }};\n" if without else ""
    )
    sources = [str(HERE / name) for name in SOURCES]
    export = [f"-Wl,--version-script={folder}/exports.map"] if without else []
    target = ["-o", str(folder / "libnvidia-ml.so.1")]
    command = [program, *FLAGS, f"-I{folder}", f"-I{HERE}", *sources, str(folder / "unanswered.c"), *export, *target]
    subprocess.run([*command, "-lm"], check=True, timeout=120)
