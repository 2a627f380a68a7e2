"""Turn the text of one cell of nvidia-smi into a number in its unit, or into the reason why there is none.

A cell without a reading is never 0: the many spellings of "not available" keep their kind. What a cell says of the
whole GPU (lost, needs a reset, does not answer) is told apart from a reading that this board does not have.
"""

import re
from enum import StrEnum
from typing import NamedTuple

from secondsight.model import Quality


class Trouble(StrEnum):
    """What is wrong with a GPU, or with the driver as a whole, by what the program printed."""

    LOST = "gpu_lost"
    RESET_REQUIRED = "reset_required"
    UNKNOWN_ERROR = "unknown_error"
    NO_PERMISSION = "no_permission"
    NO_DEVICES = "no_devices"
    VERSION_MISMATCH = "version_mismatch"
    DRIVER_AWAY = "driver_away"


class Text(NamedTuple):
    """A cell as printed.

    Attributes:
        unit: Unit of its header, "" where the header has none.
    """

    text: str
    unit: str = ""


class Reading(NamedTuple):
    """What a cell says.

    Attributes:
        number: An int where the text is a whole number; None where there is no reading.
        unit: Unit beside the number, else that of the header; lower case.
        word: The text, lower case and without brackets, where it is no number: a state such as `enabled`.
        quality: Why there is no number.
        trouble: What the cell says of the whole GPU.
    """

    number: float | None
    unit: str = ""
    word: str = ""
    quality: Quality = Quality.OK
    trouble: Trouble | None = None


NO_READING: dict[str, tuple[Quality, Trouble | None]] = {
    "": (Quality.ABSENT_SOURCE_BLANK, None),
    "-": (Quality.ABSENT_NOT_SUPPORTED, None),
    "n/a": (Quality.ABSENT_NOT_SUPPORTED, None),
    "na": (Quality.ABSENT_NOT_SUPPORTED, None),
    "not supported": (Quality.ABSENT_NOT_SUPPORTED, None),
    "unsupported": (Quality.ABSENT_NOT_SUPPORTED, None),
    "not available": (Quality.ABSENT_NOT_SUPPORTED, None),
    "not found": (Quality.ABSENT_SOURCE_BLANK, None),
    "no data": (Quality.ABSENT_SOURCE_BLANK, None),
    "unknown": (Quality.ABSENT_SOURCE_BLANK, None),
    "function not found": (Quality.ABSENT_NOT_SUPPORTED, None),
    "requested functionality has been deprecated": (Quality.ABSENT_NOT_SUPPORTED, None),
    "insufficient permissions": (Quality.ABSENT_NO_PERMISSION, Trouble.NO_PERMISSION),
    "unknown error": (Quality.ABSENT_SOURCE_BLANK, Trouble.UNKNOWN_ERROR),
    "err!": (Quality.ABSENT_SOURCE_BLANK, Trouble.UNKNOWN_ERROR),
    "error": (Quality.ABSENT_SOURCE_BLANK, Trouble.UNKNOWN_ERROR),
    "timeout": (Quality.ABSENT_SOURCE_BLANK, Trouble.UNKNOWN_ERROR),
    "gpu is lost": (Quality.ABSENT_SOURCE_BLANK, Trouble.LOST),
    "gpu access blocked by the operating system": (Quality.ABSENT_NO_PERMISSION, Trouble.NO_PERMISSION),
    "gpu requires reset": (Quality.ABSENT_SOURCE_BLANK, Trouble.RESET_REQUIRED),
    "reset required": (Quality.ABSENT_SOURCE_BLANK, Trouble.RESET_REQUIRED),
}
"""What stands where a reading is not, in lower case and without square brackets."""

SWITCHES = {"enabled": 1, "active": 1, "yes": 1, "disabled": 0, "not active": 0, "inactive": 0, "no": 0}

INTEGER_DIGITS_MAXIMUM = 40
"""Longer integers are read as floats."""

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z%/µ]*)(?:\(s\))?").fullmatch
_COMMA_NUMBER = re.compile(r"([+-]?\d+),(\d+)\s*([a-z%/µ]*)").fullmatch
_HEX = re.compile(r"0x[0-9a-f]+").fullmatch
_STATE = re.compile(r"p(\d{1,2})").fullmatch


def plain(text: str) -> str:
    """Return the text in lower case, without outer blanks, quotes and square brackets, inner blanks made one."""
    words = text.strip().strip('"').strip()
    if words.startswith("[") and words.endswith("]"):
        words = words[1:-1]
    return " ".join(words.lower().split())


def read_text(cell: Text) -> Reading:
    """Return what a cell says; never raises."""
    word = plain(cell.text)
    unit = cell.unit.lower()
    if word in NO_READING:
        quality, trouble = NO_READING[word]
        return Reading(None, unit, word, quality, trouble)
    number = _number(word)
    if number is not None:
        return Reading(number[0], number[1] or unit, word)
    return Reading(None, unit, word, Quality.BAD_PARSE)


def is_blank(text: str) -> bool:
    """Tell whether a text stands for no reading."""
    return plain(text) in NO_READING


def _number(word: str) -> tuple[float, str] | None:
    bare = word[1:-1] if word.startswith("(") and word.endswith(")") else word
    if _HEX(bare):
        return int(bare, 16), ""
    if word in SWITCHES:
        return SWITCHES[word], "switch"
    state = _STATE(bare)
    if state is not None:
        return int(state[1]), ""
    found = _NUMBER(bare)
    if found is None:
        comma = _COMMA_NUMBER(bare)
        return None if comma is None else (float(f"{comma[1]}.{comma[2]}"), comma[3])
    digits = found[1].removeprefix("+")
    is_whole = digits.removeprefix("-").isdigit() and len(digits) <= INTEGER_DIGITS_MAXIMUM
    return (int(digits) if is_whole else float(digits)), found[2]
