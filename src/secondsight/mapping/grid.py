"""Name the bounds that histograms with exponential buckets are put on: four for each power of two."""

GRID_SCALE = 2
"""2^2 bounds for each power of two."""
GRID_POWERS = 20
GRID_FIRST = -GRID_POWERS << GRID_SCALE
GRID_BOUNDS: tuple[float, ...] = tuple(
    2.0 ** (step / (1 << GRID_SCALE)) for step in range(GRID_FIRST, (GRID_POWERS << GRID_SCALE) + 1)
)
