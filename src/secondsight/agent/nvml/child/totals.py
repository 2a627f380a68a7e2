"""Ask for a figure of each NVLink of a GPU and give the total.

A driver's own total is taken where it gives one that is no single link's. A link that does not answer, as it is not
there, adds nothing; one that fails makes the total unknown.
"""

from typing import Any

from secondsight.agent.nvml.child.batch import Fields
from secondsight.agent.nvml.child.binding import pynvml
from secondsight.agent.nvml.child.calls import Wide
from secondsight.agent.nvml.fields import ALL_LINKS, LINK_BY_LINK

NOT_THERE = frozenset(
    (
        int(pynvml.NVML_ERROR_INVALID_ARGUMENT),
        int(pynvml.NVML_ERROR_NOT_SUPPORTED),
        int(pynvml.NVML_ERROR_NOT_FOUND),
    )
)
"""Codes of a link that a GPU does not have, or does not use."""

_MASK = 2**64 - 1


class LinkTotal:
    """One total, ready to be asked for: a call in the sense of `calls.Call`.

    Args:
        handle: The GPU.
        number: Of the field.
        links: NVLinks that the GPU has.
        arena: Where the total goes, 8 bytes from `offset` on.
    """

    def __init__(self, handle: Any, number: int, links: int, arena: bytearray, offset: int) -> None:
        self._answer = Wide.from_buffer(arena, offset)
        whole = () if number in LINK_BY_LINK else ((number, ALL_LINKS),)
        self._has_whole = bool(whole)
        self._fields = Fields(handle, [*whole, *((number, link) for link in range(links))]) if links else None

    def __call__(self) -> int:
        """Ask, and return the code of the total."""
        if self._fields is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        code = self._fields.read()
        if code:
            return code
        answers = list(zip(self._fields.codes(), self._fields.numbers(), strict=True))
        whole = answers.pop(0) if self._has_whole else None
        code, total = sum_of(answers)
        if whole is not None and whole[0] == 0 and (code or 2 * whole[1] > total or not total):
            code, total = whole
        self._answer.value = total & _MASK
        return code


def sum_of(answers: list[tuple[int, int]]) -> tuple[int, int]:
    """Return (code, sum) of the (code, value) of links."""
    failed = next((code for code, _ in answers if code and code not in NOT_THERE), 0)
    values = [value for code, value in answers if code == 0]
    if failed or not values:
        return failed or next((code for code, _ in answers), int(pynvml.NVML_ERROR_NOT_SUPPORTED)), 0
    return 0, sum(values)
