"""Say what the stored dtypes of the catalogue can hold."""

import numpy as np

from secondsight.catalog.metric import DTYPES

NUMPY_DTYPES = {name: np.dtype(f"<{name[0]}{int(name[1:]) // 8}") for name in DTYPES}
"""Little-endian numpy dtype of each stored dtype, as on the wire."""


def dtype_limits(dtype: str) -> tuple[float, float]:
    """Return the least and greatest stored value of a dtype, in stored units; exact integers but for f64."""
    if dtype == "f64":
        return float("-inf"), float("inf")
    limits = np.iinfo(NUMPY_DTYPES[dtype])
    return int(limits.min), int(limits.max)
