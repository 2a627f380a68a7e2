"""Keep which sequences beyond a cursor are settled: disjoint ranges [first, end), ascending."""

from collections.abc import Iterable, Iterator

Span = tuple[int, int]
Ranges = tuple[Span, ...]


def owed_spans(start: int, end: int, settled: Ranges) -> Iterator[Span]:
    """Give the parts of [start, end) that no settled range covers, ascending."""
    for first, stop in settled:
        if stop <= start:
            continue
        if first >= end:
            break
        if first > start:
            yield start, first
        start = max(start, stop)
    if start < end:
        yield start, end


def with_span(cursor: int, settled: Ranges, span: Span) -> tuple[int, Ranges]:
    """Return cursor and ranges after a further range is settled; ranges that touch become one, or move the cursor."""
    merged: list[Span] = []
    for first, end in sorted([*settled, span]):
        if first <= cursor:
            cursor = max(cursor, end)
        elif merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return cursor, tuple(merged)


def between(first: int, found: Iterable[int], end: int) -> list[Span]:
    """Return what is missing of [first, end), where these ascending numbers were found."""
    spans, expected = [], first
    for number in (*found, end):
        if number > expected:
            spans.append((expected, number))
        expected = number + 1
    return spans
