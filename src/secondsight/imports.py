"""Keep a library that nothing here uses out of our processes: a second of start and 45 MiB each."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

UNUSED = "pandas"
"""pyarrow imports it as soon as it makes an array, where it is installed, and chDB has it installed."""


class _Unused:
    """A finder of modules that says of one that it is not there."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == UNUSED:
            raise ModuleNotFoundError(f"{UNUSED} is left out of this process", name=name)
        return None


_finder = _Unused()


def leave_out_unused() -> None:
    """From now on, have `import pandas` fail in this process, as where it is not installed."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
