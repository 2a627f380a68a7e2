"""Turn label pairs as senders write them into a series, or into what is wrong with them."""

from collections.abc import Iterable

from secondsight.gateway.foreign.points import Series

NAME = "__name__"
LABELS_MAXIMUM = 100
LABEL_NAME_CHARACTERS = 512
LABEL_VALUE_CHARACTERS = 4096
SHOWN_CHARACTERS = 120


def series_of(pairs: Iterable[tuple[bytes, bytes]], help_text: str = "", unit: str = "") -> Series:
    """Return the series of these labels; a label without a value is as good as absent."""
    found: dict[str, str] = {}
    fault, detail = "", ""
    for raw_name, raw_value in pairs:
        try:
            name, value = raw_name.decode(), raw_value.decode()
        except UnicodeDecodeError:
            fault, detail = "not_utf8", f"label {_shown(raw_name)} is not UTF-8"
            continue
        if not name:
            fault, detail = "label_name_empty", f"a label with the value {_shown(raw_value)} has no name"
        elif name in found:
            fault, detail = "label_twice", f"label {name[:SHOWN_CHARACTERS]} stands twice"
        found.setdefault(name, value)
    metric = found.pop(NAME, "")
    fault, detail = _first_fault(fault, detail, metric, found)
    labels = tuple(sorted((name, value) for name, value in found.items() if value))
    if fault:
        return Series(metric[:LABEL_NAME_CHARACTERS], (), fault, f"{metric[:SHOWN_CHARACTERS] or 'a series'}: {detail}")
    return Series(metric, labels, help=help_text, unit=unit)


def _first_fault(fault: str, detail: str, metric: str, labels: dict[str, str]) -> tuple[str, str]:
    if fault:
        return fault, detail
    if not metric:
        return "name_missing", f"there is no label {NAME}"
    if len(labels) > LABELS_MAXIMUM:
        return "labels_limit", f"{len(labels)} labels, and the limit is {LABELS_MAXIMUM}"
    for name, value in labels.items():
        if len(name) > LABEL_NAME_CHARACTERS or len(value) > LABEL_VALUE_CHARACTERS:
            return "labels_limit", f"label {name[:SHOWN_CHARACTERS]} has {len(value)} characters"
    return "", ""


def _shown(text: bytes) -> str:
    return repr(text[:SHOWN_CHARACTERS].decode(errors="replace"))
