"""Turn what the engine says when a statement fails into the project's errors."""

import re

from secondsight.errors import Permanent, Rejected, Retryable, SecondsightError

_CODE = re.compile(r"Code: (\d+)\.")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")

LIMITS: dict[int, tuple[str, str]] = {
    158: ("too_many_rows_read", "the query would read more rows than it may"),
    159: ("query_timeout", "the query ran longer than it may"),
    160: ("query_timeout", "the query would run longer than it may"),
    241: ("memory_limit", "the query needs more memory than it may use"),
    307: ("too_many_bytes_read", "the query would read more bytes than it may"),
    394: ("query_killed", "the query was killed at its deadline"),
    396: ("result_too_large", "the answer has more rows or bytes than it may"),
}
"""Engine code -> (code, message) of limits, which are safe to show."""

_BUSY = frozenset({202, 209, 210, 242, 243, 252, 425, 999})
"""Engine codes that pass: too many queries or parts, network, read-only replica, no space."""
_LIMITS_OF_THE_MACHINE = frozenset({241, 394})
"""Limits that a repeated insert may not meet again."""


class QueryLimited(Rejected):
    """A statement ran into a limit of its settings.

    Attributes:
        engine_code: ClickHouse error code.
    """

    def __init__(self, engine_code: int) -> None:
        code, message = LIMITS[engine_code]
        super().__init__(code, message, "ask for a shorter range, fewer entities or a coarser resolution")
        self.engine_code = engine_code


class StatementFailed(Permanent):
    """A statement is wrong. The message is the engine's, so it may speak of tables and values: do not show it.

    Attributes:
        engine_code: ClickHouse error code, 0 when it gave none.
        name: ClickHouse name of the code, such as `UNKNOWN_TABLE`, or "".
        safe_message: What may be shown.
    """

    def __init__(self, engine_code: int, message: str, name: str = "") -> None:
        super().__init__(message)
        self.engine_code = engine_code
        self.name = name
        self.safe_message = f"statement failed: {name or 'unknown error'} ({engine_code})"


class StoreBusy(Retryable):
    """The engine cannot take the statement now."""


def failure_of(text: str, *, inserting: bool = False) -> SecondsightError:
    """Return the error that an engine message means."""
    found = _CODE.search(text)
    engine_code = int(found.group(1)) if found else 0
    if engine_code in _BUSY or (inserting and engine_code in _LIMITS_OF_THE_MACHINE):
        return StoreBusy(text)
    if engine_code in LIMITS:
        return QueryLimited(engine_code)
    names = _NAME.findall(text)
    return StatementFailed(engine_code, text, names[-1] if names else "")
