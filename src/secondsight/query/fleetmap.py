"""Turn one second of the fleet into a frame: one byte a GPU, in the order of a board's layout.

0 is a GPU without a value; 1 to 255 divide the range of the frame evenly. A client that has the layout asks for bytes
alone.
"""

from dataclasses import dataclass

import numpy as np

from secondsight.access.scope import Scope
from secondsight.catalog.metric import Metric
from secondsight.query.board import F64, Board, BoardSource, checked_metrics
from secondsight.query.request import Filters

STEPS = 254


@dataclass(frozen=True, slots=True)
class Frame:
    """The values of one metric at one second.

    Attributes:
        low, high: What 1 and 255 stand for, in the metric's unit.
        frame: One byte a cell of the board.
    """

    metric: Metric
    board: Board
    low: float
    high: float
    frame: bytes


def read_frame(source: BoardSource, metric: Metric, filters: Filters, at_ms: int, scope: Scope) -> Frame:
    """Return the frame of a second.

    Raises:
        Rejected(forbidden_metric, not_a_map): The grant does not show it, or it is no figure of a GPU as a whole.
        Retryable: The store is away or busy.
    """
    metrics = checked_metrics([metric])
    board = source.read(metrics, filters, at_ms, scope.showing(metric.name))
    figures = board.values[0]
    low, high = bounds_of(metric, figures)
    return Frame(metric, board, low, high, coded(figures, low, high))


def bounds_of(metric: Metric, figures: F64) -> tuple[float, float]:
    """Return what the least and the greatest byte stand for: of ratios their own range, else that of the figures."""
    known = figures[~np.isnan(figures)]
    low = metric.minimum if metric.minimum is not None else float(known.min()) if known.size else 0.0
    high = metric.maximum if metric.unit == "1" and metric.maximum is not None else None
    if high is None:
        high = float(known.max()) if known.size else low + 1.0
    return low, high if high > low else low + 1.0


def coded(figures: F64, low: float, high: float) -> bytes:
    """Return one byte a figure; NaN is 0."""
    steps = np.rint(np.clip((figures - low) / (high - low), 0.0, 1.0) * STEPS) + 1
    return np.where(np.isnan(figures), 0, np.nan_to_num(steps)).astype(np.uint8).tobytes()
