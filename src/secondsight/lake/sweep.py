"""Forget old snapshots, and delete files that no snapshot names; when anything is unsure, delete nothing.

Live is what any snapshot of the table as it is now names: data files, manifests, lists of manifests, statistics, and
the metadata files of its log. A file is deleted when two looks, some time apart, both found it outside of that, it is
older than any commit may take, and it was not handed over to a commit whose outcome is open. A look is worth nothing
when any metadata could not be read, when the table changed during it, when a live file is missing from the listing, or
when the table has no snapshot at all.
"""

import logging
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlparse

from pyarrow import fs as untyped_fs
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from secondsight.errors import Retryable
from secondsight.lake.export import Means
from secondsight.lake.files import LakeFileIO
from secondsight.lake.layout import LakeTable
from secondsight.lake.tables import AWAY, away

logger = logging.getLogger(__name__)

KEEP_SNAPSHOTS = 5
METADATA = ".metadata.json"
"""Files that a REST catalogue writes and deletes; older ones may be gone."""
OURS = (".parquet", ".avro", ".partial", METADATA)


@dataclass(frozen=True, slots=True)
class _Found:
    """A file under the table's location."""

    location: str
    path: str
    modified_ms: int


@dataclass(slots=True)
class Sweeper:
    """Cleans up one table after another; remembers what it saw at the look before.

    Attributes:
        snapshot_ms: Age beyond which snapshots are forgotten.
        orphan_ms: Age beyond which files may be deleted.
    """

    means: Means
    snapshot_ms: int
    orphan_ms: int
    _suspects: dict[str, frozenset[str]] = field(default_factory=dict)

    def expire(self, shape: LakeTable) -> int:
        """Forget snapshots that are old, never the newest ones; return how many.

        Raises:
            Retryable: The lake is away.
        """
        table = self.means.lake.table(shape.name)
        if table is None:
            return 0
        before_ms = self.means.clock.now_ms() - self.snapshot_ms
        newest_first = sorted(table.snapshots(), key=lambda each: each.timestamp_ms, reverse=True)
        old = [each.snapshot_id for each in newest_first[KEEP_SNAPSHOTS:] if each.timestamp_ms < before_ms]
        referenced = {reference.snapshot_id for reference in table.metadata.refs.values()}
        wanted = [snapshot_id for snapshot_id in old if snapshot_id not in referenced]
        if not wanted:
            return 0
        try:
            table.maintenance.expire_snapshots().by_ids(wanted).commit()
        except CommitFailedException:
            return 0
        except AWAY as error:
            raise away(error) from error
        self.means.metrics.count("lake_snapshots_forgotten_total", len(wanted), table=shape.name)
        return len(wanted)

    def sweep(self, shape: LakeTable) -> int:
        """Delete what two looks found to be orphans; return how many files are gone.

        Raises:
            Retryable: The lake is away, or it is not sure what is live.
        """
        table = self.means.lake.table(shape.name)
        if table is None:
            return 0
        orphans = self._orphans(table, shape)
        again = self.means.lake.table(shape.name)
        if again is None or again.metadata_location != table.metadata_location:
            return 0
        before = self._suspects.get(shape.name, frozenset())
        self._suspects[shape.name] = frozenset(found.location for found in orphans)
        doomed = [found for found in orphans if found.location in before and found.location not in self.means.handed]
        self.means.metrics.gauge("lake_orphan_files", len(orphans), table=shape.name)
        return self._delete(table, shape, doomed)

    def _orphans(self, table: Table, shape: LakeTable) -> list[_Found]:
        if table.current_snapshot() is None:
            return []
        try:
            live = live_paths(table)
            files = _files_under(table)
        except AWAY as error:
            raise away(error) from error
        found = {each.path for each in files}
        inside = [path for path in live if path.startswith(f"{_path(table.location())}/")]
        missing = sorted(path for path in inside if path not in found and not path.endswith(METADATA))
        if missing:
            raise Retryable(f"{len(missing)} live files of {shape.name} are not listed, such as {missing[0]}")
        now_ms = self.means.clock.now_ms()
        ours = OURS if isinstance(table.catalog, SqlCatalog) else OURS[:-1]
        loose = [each for each in files if each.path not in live and each.path.endswith(ours)]
        return [each for each in loose if now_ms - each.modified_ms > self.orphan_ms]

    def _delete(self, table: Table, shape: LakeTable, doomed: Iterable[_Found]) -> int:
        gone = 0
        io = table.io
        if not isinstance(io, LakeFileIO):
            raise TypeError("only a lake's own files are deleted")
        for found in doomed:
            try:
                io.remove(found.location)
            except AWAY as error:
                logger.warning("an orphan of %s stays, %s: %s", shape.name, found.location, error)
                continue
            gone += 1
        if gone:
            logger.info("%d files of %s that no snapshot names are deleted", gone, shape.name)
            self.means.metrics.count("lake_orphans_deleted_total", gone, table=shape.name)
        return gone


def live_paths(table: Table) -> frozenset[str]:
    """Return the paths of everything that a table's metadata names.

    Raises:
        OSError: Some of it cannot be read.
    """
    metadata = table.metadata
    named = [table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)]
    named += [each.statistics_path for each in [*metadata.statistics, *metadata.partition_statistics]]
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        named.append(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        named.append(path)
        named += [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]
    return frozenset(_path(location) for location in named)


def _files_under(table: Table) -> list[_Found]:
    """Return every file in a table's folder.

    Raises:
        OSError: The folder cannot be listed.
    """
    location = table.location().rstrip("/")
    io = table.io
    if not isinstance(io, LakeFileIO):
        raise TypeError("only a lake's own files are listed")
    scheme, netloc, path = io.parse_location(location, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    infos = system.get_file_info(untyped_fs.FileSelector(path, recursive=True))
    return [
        _Found(f"{location}{posixpath.join('/', info.path[len(path) :].lstrip('/'))}", _path_of(info.path), _age(info))
        for info in infos
        if info.type == untyped_fs.FileType.File
    ]


def _age(info: untyped_fs.FileInfo) -> int:
    """Return when a file was changed, in ms; the end of time where that is not known, so that it is never old."""
    if info.mtime is None:
        return 1 << 62
    changed: datetime = info.mtime
    return round(changed.astimezone(UTC).timestamp() * 1000)


def _path(location: str) -> str:
    """Return a location without its scheme, as listings have it."""
    parts = urlparse(location)
    return _path_of(f"{parts.netloc}{parts.path}" if parts.scheme else location)


def _path_of(path: str) -> str:
    return path.strip("/")
