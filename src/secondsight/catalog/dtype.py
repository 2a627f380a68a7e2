"""Say what the stored dtypes of the catalogue can hold."""

import numpy as np

from secondsight.catalog.metric import DTYPES

NUMPY_DTYPES = {name: np.dtype(f"<{name[0]}{int(name[1:]) // 8}") for name in DTYPES}
"""Little-endian numpy dtype of each stored dtype, as on the wire."""

FLOAT_LIMITS = (float("-inf"), float("inf"))

LIMITS: dict[str, tuple[float, float]] = {
    name: FLOAT_LIMITS if dtype.kind == "f" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for name, dtype in NUMPY_DTYPES.items()
}


def dtype_limits(dtype: str) -> tuple[float, float]:
    """Return the least and greatest stored value of a dtype, in stored units; exact integers but for f64."""
    return LIMITS[dtype]
