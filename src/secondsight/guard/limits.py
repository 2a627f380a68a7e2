"""Bounds of what one statement may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one statement may hold, and how far back it may look.

    Attributes:
        text_bytes: Longest statement.
        depth: Deepest nesting of brackets.
        nodes: Most nodes of the parsed statement.
        expanded_nodes: Most nodes of one expression once all its names are replaced by what they stand for.
        references: Most reads of views, CTEs counted as often as they are used.
        joins: Most joins of one SELECT.
        raw_days: Widest range of a view of single seconds.
        default_days: How far back other views are read where the statement does not say.
        rows: Most rows of a result; one more is asked for, to know whether there are more.
        limit: Greatest LIMIT and OFFSET.
        list_items: Greatest size of a list that an aggregate makes.
        fill_steps: Most rows that WITH FILL may add.
        pattern_characters: Longest pattern.
    """

    text_bytes: int = 16 * 1024
    depth: int = 40
    nodes: int = 4_000
    expanded_nodes: int = 20_000
    references: int = 16
    joins: int = 6
    raw_days: int = 7
    default_days: int = 400
    rows: int = 10_000
    limit: int = 1_000_000
    list_items: int = 1_000
    fill_steps: int = 10_000
    pattern_characters: int = 200
