"""Sort every failure by two questions: may the same input succeed later, and may the user see the text?"""


class SecondsightError(Exception):
    """Base of every error that Secondsight raises on purpose."""


class Retryable(SecondsightError):
    """The same input may succeed later: log away, store busy, gateway said 429 or 5xx."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Permanent(SecondsightError):
    """The same input will always fail: malformed, unknown, out of range."""


class Rejected(Permanent):
    """A permanent refusal that is safe to show to whoever sent the input.

    Attributes:
        code: Stable lower-case word that programs compare, such as `unknown_metric`.
        message: What happened, and to which host, metric or field.
        hint: What to do about it; may be empty.
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.hint = hint
