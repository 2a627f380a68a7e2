"""Keep what was copied in the summaries of snapshots, so that it is one with the files.

Each snapshot of ours says it whole: slice -> mark of the rows as the hot store had them when they were copied, and the
newest insert of the table all of whose changes are in it. A snapshot of somebody else that only rewrites files says
nothing new; after one that changes rows nothing is known, and slices are compared and united once more.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from secondsight.lake.layout import LakeTable, Slice
from secondsight.lake.rows import Mark

COPIED = "secondsight.copied"
SEEN = "secondsight.seen"
TOKEN = "secondsight.commit"  # noqa: S105 - the name of a property


@dataclass(frozen=True, slots=True)
class Copied:
    """What a snapshot says of what was copied.

    Attributes:
        marks: Slice -> what its rows in the hot store said.
        seen: Newest insert of the hot table whose changes are all copied.
    """

    marks: Mapping[Slice, Mark] = field(default_factory=dict)
    seen: int = 0

    def with_marks(self, more: Mapping[Slice, Mark], seen: int) -> "Copied":
        """Return this with further slices."""
        return Copied({**self.marks, **more}, seen)

    def since(self, first_ms: int) -> "Copied":
        """Return this without slices that end before an instant."""
        return replace(self, marks={each: mark for each, mark in self.marks.items() if each.end_ms > first_ms})


def copied_of(table: Table, shape: LakeTable) -> Copied:
    """Return what was copied, as the current snapshot has it."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        words = _words(snapshot)
        if COPIED in words:
            return Copied(_decode(words[COPIED], shape), int(words.get(SEEN, "0")))
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            break
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return Copied()


def properties_of(copied: Copied, shape: LakeTable, token: str) -> dict[str, str]:
    """Return what the summary of a snapshot is to say."""
    return {COPIED: _encode(copied.marks, shape), SEEN: str(copied.seen), TOKEN: token}


def has_landed(table: Table, token: str) -> bool:
    """Tell whether a commit is in a table."""
    return any(_words(snapshot).get(TOKEN) == token for snapshot in table.snapshots())


def _words(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _encode(marks: Mapping[Slice, Mark], shape: LakeTable) -> str:
    """Return marks as text: tenant -> cluster -> [number of the slice, rows, digest], packed."""
    tree: dict[str, dict[str, list[tuple[int, int, str]]]] = {}
    for each, mark in sorted(marks.items()):
        place = tree.setdefault(each.tenant, {}).setdefault(each.cluster, [])
        place.append((each.start_ms // shape.slice_ms, mark.rows, f"{mark.digest:x}"))
    text = json.dumps({"width_ms": shape.slice_ms, "slices": tree}, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _decode(packed: str, shape: LakeTable) -> dict[Slice, Mark]:
    tree = json.loads(zlib.decompress(base64.b64decode(packed)))
    if tree["width_ms"] != shape.slice_ms:
        return {}
    width_ms = shape.slice_ms
    return {
        Slice(number * width_ms, (number + 1) * width_ms, tenant, cluster): Mark(rows, int(digest, 16))
        for tenant, clusters in tree["slices"].items()
        for cluster, entries in clusters.items()
        for number, rows, digest in entries
    }
