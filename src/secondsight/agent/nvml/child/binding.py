"""Load the driver's binding without what it brings along and never uses here.

`pynvml` imports a function of `ctypes.util` that finds libraries by running programs, for other operating systems.
That module brings in subprocess, shutil and compression: a quarter of the memory of this process.
"""

import sys
from types import ModuleType

if "ctypes.util" not in sys.modules:
    _empty = ModuleType("ctypes.util")
    _empty.find_library = None  # type: ignore[attr-defined] # the one name that is imported
    sys.modules["ctypes.util"] = _empty
    import pynvml

    del sys.modules["ctypes.util"]
else:
    import pynvml

__all__ = ["pynvml"]
