"""Turn CloudEvents 1.0 into the fields of an event."""

from collections.abc import Mapping
from typing import Any

from secondsight.errors import Rejected

_CONTEXT = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "data_base64"}
)
_HINT = "see CloudEvents 1.0; data is an object of the fields that an event has here"


def is_cloud_event(said: Mapping[str, Any]) -> bool:
    """Tell whether an object says that it is a CloudEvent."""
    return "specversion" in said


def plain_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the event that a CloudEvent tells of.

    Its type ends with the metric's name, its subject is the entity where its data names none, and its id is one of its
    source's. What extends its context becomes attributes.

    Raises:
        Rejected(bad_event): It is none of version 1, or its data is no object.
    """
    data = said.get("data", {})
    if not str(said["specversion"]).startswith("1.") or "data_base64" in said or not isinstance(data, dict):
        raise Rejected("bad_event", "this CloudEvent is not of version 1.0 with an object as its data", _HINT)
    for name in ("id", "source", "type"):
        if not isinstance(said.get(name), str) or not said[name]:
            raise Rejected("bad_event", f"this CloudEvent has no {name}", _HINT)
    fields = {"metric": said["type"].rpartition(".")[2], "time": said.get("time"), **data}
    if isinstance(said.get("subject"), str) and not fields.keys() & {"entity", "gpu", "job"}:
        fields["entity"] = said["subject"]
    extensions = {name: value for name, value in said.items() if name not in _CONTEXT}
    attributes = fields.get("attributes", {})
    if extensions and isinstance(attributes, dict):
        fields["attributes"] = {**extensions, **attributes}
    return {**fields, "id": f"{said['source']}#{said['id']}"}
