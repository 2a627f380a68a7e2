"""Turn `nvidia-smi -L` into rows: GPUs, and the MIG devices that stand below each."""

import re

from secondsight.agent.smi.rows import Document, Refusal, Row, Subject
from secondsight.agent.smi.texts import Text
from secondsight.agent.smi.troubles import fault_of

_GPU = re.compile(r"GPU\s+(\d+):\s*(.*?)\s*\(UUID:\s*([^)]+)\)\s*$", re.IGNORECASE).match
_SLICE = re.compile(r"MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID:\s*([^)]+)\)\s*$", re.IGNORECASE).match


def read_listing(text: str) -> Document:
    """Return what a text of `nvidia-smi -L` holds; never raises."""
    document = Document("list")
    owner: dict[str, Text] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        stripped = line.strip()
        gpu, part, fault = _GPU(stripped), _SLICE(stripped), fault_of(number, stripped)
        if fault is not None:
            document.faults.append(fault)
        elif gpu is not None:
            owner = {"index": Text(gpu[1]), "name": Text(gpu[2]), "uuid": Text(gpu[3].strip())}
            document.rows.append(Row(number, Subject.GPU, owner))
        elif part is not None and owner:
            named = {"mig.profile": Text(part[1]), "mig.device": Text(part[2]), "mig.uuid": Text(part[3].strip())}
            document.rows.append(Row(number, Subject.LISTED, {"uuid": owner["uuid"], "index": owner["index"]} | named))
        elif stripped:
            document.refusals.append(Refusal(number, "line", f"no GPU and no MIG device: {stripped[:60]!r}"))
    return document
