"""Read the kubelet's device checkpoint: pod UID, container, resource and device ids, as the kubelet last wrote them.

Older kubelets list device ids as one array, newer ones by NUMA node (`-1` is "no node", not a device). Entries may
outlive their pods, so who runs must be known from elsewhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from secondsight.agent.jobs.podresources import ContainerDevices, PodDevices
from secondsight.agent.jobs.pods import PodFacts, PodKey
from secondsight.errors import Rejected


def checkpoint_entries(text: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Return (pod UID, container, resource, device ids) of every entry; an entry of another form is left out.

    Raises:
        Rejected: `bad_checkpoint`: the file as a whole is something else.
    """
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        return [entry for entry in map(_entry, entries) if entry is not None]
    except (ValueError, KeyError, TypeError) as error:
        raise Rejected("bad_checkpoint", f"the device checkpoint cannot be read: {error!r}") from error


def checkpoint_pods(
    entries: Sequence[tuple[str, str, str, tuple[str, ...]]], facts: Mapping[PodKey, PodFacts] | None
) -> tuple[PodDevices, ...]:
    """Return the pods of a checkpoint, by name where the state of pods is known, else by UID."""
    names = {each.uid: key for key, each in (facts or {}).items()}
    pods: dict[PodKey, dict[str, list[tuple[str, str]]]] = {}
    for uid, container, resource, devices in entries:
        containers = pods.setdefault(names.get(uid, ("", uid)), {})
        containers.setdefault(container, []).extend((resource, device) for device in devices)
    return tuple(
        PodDevices(*key, tuple(ContainerDevices(name, tuple(devices)) for name, devices in containers.items()))
        for key, containers in pods.items()
    )


def _entry(entry: Any) -> tuple[str, str, str, tuple[str, ...]] | None:
    if not isinstance(entry, dict):
        return None
    names = [entry.get(name) for name in ("PodUID", "ContainerName", "ResourceName")]
    if not all(isinstance(name, str) for name in names):
        return None
    uid, container, resource = map(str, names)
    return uid, container, resource, tuple(_device_ids(entry.get("DeviceIDs")))


def _device_ids(ids: Any) -> Iterator[str]:
    lists = ids.values() if isinstance(ids, dict) else [ids]
    for each in lists:
        if isinstance(each, list):
            yield from (device for device in each if isinstance(device, str))
