"""Turn `nvidia-smi dmon` and `pmon` into rows.

Two lines with `#` name columns and units, and come again on long runs. GPUs are told by index alone; rounds carry a
time only where the program was asked for it (`-o DT`).
"""

from secondsight.agent.smi.columns import MONITOR, PROCESS_MONITOR
from secondsight.agent.smi.rows import Document, Refusal, Row, Subject
from secondsight.agent.smi.texts import Text
from secondsight.agent.smi.troubles import fault_of

UNITS = {"mb": "MiB", "mb/s": "MiB/s"}
"""The program writes MB for MiB."""

NO_UNITS = frozenset({"idx", "#", "c/g", "name", "yyyymmdd", "hh:mm:ss", "bool"})


class _Monitor:
    def __init__(self) -> None:
        self.document = Document("dmon")
        self._heads: list[str] = []
        self._units: list[str] = []
        self._seen: set[tuple[str, str]] = set()
        self._round = 0

    def feed(self, number: int, line: str, *, ended: bool) -> None:
        text = line.strip()
        fault = fault_of(number, text, self._round)
        if fault is not None:
            self.document.faults.append(fault)
        elif text.startswith("#"):
            self._take_head(text.removeprefix("#").split())
        elif text:
            self._take_row(number, text, ended=ended)

    def _take_head(self, words: list[str]) -> None:
        lower = [word.lower() for word in words]
        if "gpu" in lower:
            self._heads, self._units = lower, []
            self.document.form = "pmon" if "pid" in lower else "dmon"
        elif "idx" in lower:
            self._units = ["" if word in NO_UNITS else UNITS.get(word, word) for word in lower]

    def _take_row(self, number: int, text: str, *, ended: bool) -> None:
        width = len(self._heads)
        is_process = "pid" in self._heads
        cells = text.split(None, width - 1) if is_process and width else text.split()
        if not self._heads or len(cells) != width:
            code = "no_head" if not self._heads else "cell_count" if ended else "cut_line"
            self.document.refusals.append(Refusal(number, code, f"{len(cells)} cells for {width} columns"))
            return
        units = self._units if len(self._units) == width else [""] * width
        by_head = dict(zip(self._heads, zip(cells, units, strict=True), strict=True))
        names = PROCESS_MONITOR if is_process else MONITOR
        texts = {names.get(head, f"monitor.{head}"): Text(*cell) for head, cell in by_head.items()}
        texts = {
            name: cell for name, cell in texts.items() if name not in ("monitor.gpu", "monitor.date", "monitor.time")
        }
        texts["index"] = Text(by_head["gpu"][0])
        key = (by_head["gpu"][0], by_head["pid"][0] if is_process else "")
        if key in self._seen:
            self._seen.clear()
            self._round += 1
        self._seen.add(key)
        time = " ".join(by_head[head][0] for head in ("date", "time") if head in by_head)
        subject = Subject.PROCESS if is_process else Subject.GPU
        self.document.rows.append(Row(number, subject, texts, time, self._round))


def read_monitor(text: str) -> Document:
    """Return what a text of `dmon` or `pmon` holds; never raises."""
    monitor = _Monitor()
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        monitor.feed(number, line, ended=number < len(lines))
    return monitor.document
