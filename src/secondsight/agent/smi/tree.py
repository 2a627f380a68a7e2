"""Turn `nvidia-smi -q` as text or as XML into rows: a tree of sections, of which leaves are addressed by whole path.

The same key stands in many sections ("Used", "Total", "Current"), and element names differ from driver to driver;
`columns.py` knows the ends of paths. A DOCTYPE is not followed, entities are refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from xml.etree import ElementTree

from secondsight.agent.smi.columns import FLAG_PREFIX, FLAGS, column_of_path, memory_errors_of, path_step
from secondsight.agent.smi.rows import Document, Refusal, Row, Subject
from secondsight.agent.smi.texts import Reading, Text, is_blank, read_text
from secondsight.agent.smi.troubles import faults_of

SLICE_STEPS = frozenset({"mig_device"})
PROCESS_STEPS = frozenset({"process_info", "process"})
LISTS = frozenset({"supported_clocks", "supported_mem_clock", "accounted_processes", "retired_pagelist"})
"""Sections of which nothing is a reading."""

XML_END = "</nvidia_smi_log>"

_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")
"""Names of processes are printed as they are."""

_LOG_END = re.compile(re.escape(XML_END))
_LOG_HEAD = re.compile(r"=+\s*NVSMI LOG\s*=+").match
_LEAF = re.compile(r"( *)(.*?\S) *:(?: (.*))?$").match
_GPU_LINE = re.compile(r"GPU (\S+)\s*$").match
_PROCESS_KEYS = {
    "pid": "pid",
    "process_id": "pid",
    "process_name": "process_name",
    "name": "process_name",
    "used_memory": "used_gpu_memory",
    "used_gpu_memory": "used_gpu_memory",
    "gpu_instance_id": "gpu_instance_id",
    "compute_instance_id": "compute_instance_id",
    "type": "type",
}


@dataclass(slots=True)
class _Node:
    """One section, or one leaf where it has a text."""

    name: str
    line: int
    text: str | None = None
    children: list["_Node"] = field(default_factory=list)


def read_query_text(text: str) -> Document:
    """Return what the text of `nvidia-smi -q` holds, of one log or of several in a row; never raises."""
    document = Document("q")
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    document.faults += faults_of(lines)
    heads = [number for number, line in enumerate(lines) if _LOG_HEAD(line)] or [0]
    for round_number, (start, end) in enumerate(pairwise([*heads, len(lines)])):
        root = _Node("", 0)
        open_sections: list[tuple[int, _Node]] = [(-1, root)]
        for number, line in enumerate(lines[start:end], start + 1):
            if line.strip() and not line.startswith("="):
                _add_line(open_sections, number, line)
        _take_log(root, document, round_number)
    return document


def _add_line(open_sections: list[tuple[int, _Node]], number: int, line: str) -> None:
    indent = len(line) - len(line.lstrip(" "))
    while open_sections[-1][0] >= indent:
        open_sections.pop()
    gpu = _GPU_LINE(line) if indent == 0 else None
    leaf = None if gpu else _LEAF(line)
    node = _Node("gpu" if gpu else path_step(leaf[2] if leaf else line), number)
    if leaf is not None:
        node.text = (leaf[3] or "").strip()
    if gpu:
        node.children.append(_Node("id", number, gpu[1]))
    open_sections[-1][1].children.append(node)
    open_sections.append((indent, node))


def read_xml(text: str) -> Document:
    """Return what the XML of `nvidia-smi -q -x` holds, of one log or of several in a row; never raises."""
    document = Document("xml")
    start = max(text.find("<"), 0)
    document.faults += faults_of(text[:start].splitlines())
    logs = [log for log in _LOG_END.split(text[start:]) if log.strip()]
    whole = len(_LOG_END.findall(text))
    for round_number, log in enumerate(logs):
        _take_xml(log.strip() + (XML_END if round_number < whole else ""), document, round_number)
    return document


def _take_xml(log: str, document: Document, round_number: int) -> None:
    line = 1
    if "<!ENTITY" in log:
        document.refusals.append(Refusal(line, "xml", "it declares entities, which nvidia-smi never does"))
        return
    try:
        root = ElementTree.fromstring(_BARE_AMPERSAND.sub("&amp;", _NO_XML.sub("", log)))  # noqa: S314 - entities were refused above
    except ElementTree.ParseError as error:
        line = error.position[0]
        document.refusals.append(Refusal(line, "xml", f"log {round_number + 1} is not well-formed: {error}"))
        return
    _take_log(_node_of(root), document, round_number)


def _node_of(element: ElementTree.Element) -> _Node:
    node = _Node(path_step(element.tag), 0)
    node.children = [_Node(path_step(name), 0, value) for name, value in element.attrib.items()]
    node.children += [_node_of(child) for child in element]
    if not node.children:
        node.text = " ".join((element.text or "").split())
    return node


def _take_log(root: _Node, document: Document, round_number: int) -> None:
    """Add the rows of every GPU of a log; facts above the GPUs belong to each."""
    shared = {child.name: child.text for child in root.children if child.text is not None}
    time = shared.get("timestamp") or ""
    driver = shared.get("driver_version") or ""
    gpus = [child for child in root.children if child.name == "gpu"]
    for index, gpu in enumerate(gpus):
        facts = {"driver_version": Text(driver)} if driver else {}
        cells = facts | _cells_of(gpu)
        address = next((child.text for child in gpu.children if child.name == "id" and child.text), "")
        if "pci.bus_id" not in cells and address:
            cells["pci.bus_id"] = Text(address)
        cells.setdefault("index", Text(str(index)))
        rows = [Row(gpu.line, Subject.GPU, cells, time), *_rows_within(gpu, cells, time)]
        document.rows += [row._replace(round=round_number) for row in rows]
    if not gpus and not document.faults:
        document.refusals.append(Refusal(1, "no_gpu", "no GPU stands in it"))


def _rows_within(gpu: _Node, owner: dict[str, Text], time: str) -> Iterator[Row]:
    identity = {name: owner[name] for name in ("uuid", "pci.bus_id", "index") if name in owner}
    for node in _within(gpu, SLICE_STEPS):
        cells = {leaf[-1]: Text(text) for leaf, text in _leaves(node, ()) if len(leaf) == 1}
        numbers = {name: cells[name] for name in ("gpu_instance_id", "compute_instance_id") if name in cells}
        yield Row(node.line, Subject.SLICE, identity | _slice_cells(node) | numbers, time)
    for node in _processes(gpu):
        named = {_PROCESS_KEYS[child.name]: Text(child.text) for child in node.children if child.text is not None}
        yield Row(node.line, Subject.PROCESS, identity | named, time)


def _slice_cells(node: _Node) -> dict[str, Text]:
    found = _named_cells(_leaves(node, ()))
    return {name: cell for name, cell in found.items() if "/" not in name and name != "index"}


def _within(node: _Node, names: frozenset[str]) -> Iterator[_Node]:
    for child in node.children:
        if child.name in names:
            yield child
        elif child.name not in LISTS:
            yield from _within(child, names)


def _processes(gpu: _Node) -> Iterator[_Node]:
    """Give one node for each process; the text form has no section for one, so its keys begin anew."""
    for section in (child for child in gpu.children if child.name == "processes"):
        loose = _Node("process", section.line)
        for child in section.children:
            if child.name in PROCESS_STEPS and child.text is None:
                yield _only_known(child)
            elif child.text is not None and child.name in _PROCESS_KEYS:
                if any(known.name == child.name for known in loose.children):
                    yield loose
                    loose = _Node("process", child.line)
                loose.children += [child, *_only_known(child).children]
        if any(child.name in ("pid", "process_id") for child in loose.children):
            yield loose


def _only_known(node: _Node) -> _Node:
    return _Node(node.name, node.line, None, [child for child in node.children if child.name in _PROCESS_KEYS])


def _cells_of(gpu: _Node) -> dict[str, Text]:
    return _named_cells(_leaves(gpu, ()))


def _leaves(node: _Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give every leaf with its path, without lists, slices and processes, which have rows of their own."""
    for child in node.children:
        if child.name in LISTS | SLICE_STEPS or child.name == "processes":
            continue
        if child.text is not None and not (child.text == "" and child.children):
            yield (*path, child.name), child.text
        yield from _leaves(child, (*path, child.name))


def _named_cells(leaves: Iterator[tuple[tuple[str, ...], str]]) -> dict[str, Text]:
    """Return the cells of leaves; single clock event flags and counts of errors are put together."""
    cells: dict[str, Text] = {}
    flags: dict[str, str] = {}
    errors: dict[str, list[str]] = {}
    for path, text in leaves:
        counted = memory_errors_of(path)
        column = column_of_path(path)
        if counted is not None:
            errors.setdefault(counted[0], []).append(text)
        elif column.startswith(FLAG_PREFIX) and column != f"{FLAG_PREFIX}active":
            flags[column.removeprefix(FLAG_PREFIX)] = text
        else:
            cells.setdefault(column, Text(text))
    if flags:
        cells.setdefault(f"{FLAG_PREFIX}active", Text(mask_of(flags)))
    for column, texts in errors.items():
        cells.setdefault(column, Text(_sum_of(texts)))
    return cells


def mask_of(flags: dict[str, str]) -> str:
    """Return the mask that single flags make, or the text of a flag that says why there is none.

    A flag that this board does not have is a bit that is never set; a mask of which no flag is known is none.
    """
    mask, known = 0, False
    for name, text in flags.items():
        reading = read_text(Text(text))
        if reading.number is not None:
            known = True
            mask |= FLAGS.get(name, 0) if reading.number else 0
        elif reading.trouble is not None:
            return text
    return f"0x{mask:016x}" if known else next(iter(flags.values()))


def _sum_of(texts: list[str]) -> str:
    """Return the sum of counts, or the text of one that is none: a total of which a part is unknown is unknown."""
    readings: list[Reading] = [read_text(Text(text)) for text in texts]
    unknown = next((text for text, one in zip(texts, readings, strict=True) if one.number is None), None)
    if unknown is not None:
        return unknown if is_blank(unknown) else "n/a"
    return str(sum(int(one.number or 0) for one in readings))
