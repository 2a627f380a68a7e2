"""Say a board in one byte a cell, and what changed between two of them in as few bytes as there are.

A frame is one byte a cell, as on the map: 0 is no value, 1 to 255 divide the range from `low` to `high` evenly. The
range stays while the figures fit into it, so that a figure that stays keeps its byte. Changes are pairs: how many cells
are passed over, and the byte of the next; a step of 255 passes over 255 cells and has no byte. Sums are exact.
"""

import base64

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.query.board import F64, Board
from secondsight.query.fleetmap import coded

SKIP = 255
U8 = NDArray[np.uint8]


def frames_of(board: Board) -> dict[str, object]:
    """Return all cells of a board, and its sums."""
    frames = {metric.name: _whole(*_coded(metric, values)) for metric, values in _figures(board)}
    return {"frames": frames, "sums": sums_of(board)}


def changes_between(before: Board, after: Board) -> dict[str, object]:
    """Return what takes the frames of one board to those of another of the same layout, and its sums."""
    frames: dict[str, object] = {}
    for metric, old, new in zip(after.metrics, before.values, after.values, strict=True):
        change = _change(_coded(metric, old), _coded(metric, new))
        if change is not None:
            frames[metric.name] = change
    return {"frames": frames, "sums": sums_of(after)}


def sums_of(board: Board) -> dict[str, object]:
    """Return of each metric that has a figure how many there are, their sum, the greatest and its cell."""
    found: dict[str, object] = {}
    for metric, values in _figures(board):
        known = int(np.count_nonzero(~np.isnan(values)))
        if known:
            cell = int(np.nanargmax(values))
            total = float(np.nansum(values))
            found[metric.name] = {"count": known, "sum": total, "max": float(values[cell]), "cell": cell}
    return found


def range_of(metric: Metric, figures: F64) -> tuple[float, float]:
    """Return what the least and the greatest byte stand for: the metric's own ends, else the next power of two."""
    low = metric.minimum if metric.minimum is not None else -_power_of_two(-np.nanmin(figures, initial=0.0))
    if metric.unit == "1" and metric.maximum is not None:
        return low, metric.maximum
    return low, max(_power_of_two(np.nanmax(figures, initial=1.0)), low + 1.0)


def steps_between(old: U8, new: U8) -> bytes:
    """Return the pairs that take one frame to another."""
    moved = np.flatnonzero(old != new)
    gaps = np.diff(moved, prepend=-1) - 1
    skips = gaps // SKIP
    ends = np.cumsum(skips + 2)
    pairs = np.full(int(ends[-1]) if moved.size else 0, SKIP, np.uint8)
    pairs[ends - 2] = gaps % SKIP
    pairs[ends - 1] = new[moved]
    return pairs.tobytes()


def _figures(board: Board) -> list[tuple[Metric, F64]]:
    return list(zip(board.metrics, board.values, strict=True))


def _coded(metric: Metric, figures: F64) -> tuple[float, float, bytes]:
    low, high = range_of(metric, figures)
    return low, high, coded(figures, low, high)


def _whole(low: float, high: float, frame: bytes) -> dict[str, object]:
    return {"low": low, "high": high, "frame": base64.b64encode(frame).decode()}


def _change(old: tuple[float, float, bytes], new: tuple[float, float, bytes]) -> dict[str, object] | None:
    if old == new:
        return None
    if old[:2] != new[:2]:
        return _whole(*new)
    steps = steps_between(np.frombuffer(old[2], np.uint8), np.frombuffer(new[2], np.uint8))
    return {"steps": base64.b64encode(steps).decode()} if len(steps) < len(new[2]) else _whole(*new)


def _power_of_two(figure: float) -> float:
    """Return the least power of two that is not below a figure; 0 for one that is not above 0."""
    return float(2.0 ** np.ceil(np.log2(figure))) if figure > 0 else 0.0
