"""Turn the kubelet's list of pods (`/pods`) into what is known of each: phase, UID, labels, the job that owns it."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from secondsight.agent.jobs.pods import PodFacts, PodKey
from secondsight.errors import Rejected

JOB_KINDS = ("Job", "PyTorchJob", "MPIJob", "TFJob", "JAXJob", "TrainJob", "RayCluster", "Workflow")
"""Owners whose name is that of a job; a ReplicaSet's is not, as it changes with each rollout."""


def pod_list(text: str | bytes) -> dict[PodKey, PodFacts]:
    """Return the pods of a PodList, by namespace and name; items of another form are left out.

    Raises:
        Rejected: `bad_pod_list`: the text is something else.
    """
    try:
        items = json.loads(text)["items"] or []
        facts = [_facts(item) for item in items if isinstance(item, dict)]
    except (ValueError, KeyError, TypeError) as error:
        raise Rejected("bad_pod_list", f"the kubelet's list of pods cannot be read: {error!r}") from error
    return {(each.namespace, each.name): each for each in facts if each.name}


def _facts(item: Mapping[str, Any]) -> PodFacts:
    metadata, status = _mapping(item.get("metadata")), _mapping(item.get("status"))
    labels = {str(name): str(text) for name, text in _mapping(metadata.get("labels")).items()}
    return PodFacts(
        str(metadata.get("namespace", "")),
        str(metadata.get("name", "")),
        str(metadata.get("uid", "")),
        str(status.get("phase", "Unknown")),
        labels,
        _owner(metadata.get("ownerReferences")),
        _time_ms(status.get("startTime")),
    )


def _owner(references: Any) -> str:
    listed = [each for each in references if isinstance(each, dict)] if isinstance(references, list) else []
    return next((str(each.get("name", "")) for each in listed if each.get("kind") in JOB_KINDS), "")


def _time_ms(text: Any) -> int | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return round(moment.timestamp() * 1000) if moment.tzinfo is not None else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
