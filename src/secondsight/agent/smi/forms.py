"""Tell in which form a text of nvidia-smi or rocm-smi is, and read it."""

import re
from collections.abc import Callable

from secondsight.agent.smi.listing import read_listing
from secondsight.agent.smi.monitor import read_monitor
from secondsight.agent.smi.rocm import read_rocm
from secondsight.agent.smi.rows import Document
from secondsight.agent.smi.table import read_table
from secondsight.agent.smi.tree import read_query_text, read_xml

Read = Callable[[str], Document]

_BEGINNINGS: tuple[tuple[re.Pattern[str], Read], ...] = tuple(
    (re.compile(pattern, re.MULTILINE | re.IGNORECASE), read)
    for pattern, read in (
        (r"\A\s*\{|^\{\s*\"(?:card\d+|system)\"", read_rocm),
        (r"^\s*<(\?xml|!DOCTYPE|nvidia_smi_log)", read_xml),
        (r"^=+\s*NVSMI LOG\s*=+|^Attached GPUs\s*:", read_query_text),
        (r"^#\s*(?:date\s+time\s+)?gpu\b", read_monitor),
        (r"^GPU \d+: .*\(UUID:", read_listing),
    )
)


def read_any(text: str) -> Document:
    """Return what a text holds, read in the form that its beginning shows; never raises."""
    body = text.lstrip("\ufeff")
    head = body[:4096]
    read = next((read for pattern, read in _BEGINNINGS if pattern.search(head)), read_table)
    return read(body)
