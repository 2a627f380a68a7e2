"""Compare what a platform holds with what it must hold: every row, cell, figure, event, dead letter, ledger entry."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from chaos_fleet import CATALOG
from chaos_oracle import Expected
from chaos_rows import ATTRIBUTION, SOURCE_RANKS, LedgerKey, RowKey, WindowKey
from secondsight.model import EntityKind
from secondsight.store.schema import raw_table, rollup_table, table

Query = Callable[[str], pa.Table]
SHOWN = 3
WORDS_MAXIMUM = 12_000
MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms")
TIME = "toUnixTimestamp64Milli({0}) AS {0}"
MASK = (1 << 64) - 1


class Differences:
    """What was found to differ, counted, with the first few of each kind."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.compared: defaultdict[str, int] = defaultdict(int)
        self._shown: defaultdict[str, list[str]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, what: str, where: object, found: object = "", wanted: object = "") -> None:
        self.counts[what] += 1
        if len(self._shown[what]) < SHOWN:
            self._shown[what].append(f"  {where}: found {found!r}, wanted {wanted!r}"[:600])

    def keys(self, what: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
        """Compare keys, each of which is to be found once."""
        found, wanted = list(found), set(wanted)
        self.compared[what] += len(wanted)
        seen: set[Any] = set()
        for key in found:
            if key in seen:
                self.add(f"{what} twice", key)
            elif key not in wanted:
                self.add(f"{what} that should not be", key)
            seen.add(key)
        for key in wanted - seen:
            self.add(f"{what} missing", key)

    def column(self, what: str, keys: Sequence[Any], found: Sequence[Any], wanted: Sequence[Any]) -> None:
        self.compared[what] += len(wanted)
        if list(found) != list(wanted):
            for key, one, other in zip(keys, found, wanted, strict=True):
                if one != other:
                    self.add(what, key, one, other)

    def words(self) -> str:
        parts = [f"{what}: {count}\n" + "\n".join(self._shown[what]) for what, count in sorted(self.counts.items())]
        return "\n".join(parts)[:WORDS_MAXIMUM]


def compare(query: Query, expected: Expected, still_open: Mapping[str, int]) -> Differences:
    """Compare all tables.

    Args:
        query: Runs a statement.
        expected: What is to be found.
        still_open: Collector -> start of a window of it that need not be rolled up yet.
    """
    found = Differences()
    for kind in EntityKind:
        _compare_raw(query, kind, expected, found)
        _compare_rolled(query, kind, expected, still_open, found)
    _compare_events(query, expected, found)
    _compare_findings(query, expected, found)
    _compare_facts(query, expected, found)
    _compare_refused(query, expected, found)
    _compare_ledger(query, expected, still_open, found)
    return found


def _compare_raw(query: Query, kind: EntityKind, expected: Expected, found: Differences) -> None:
    rows, owners = expected.raw[kind], expected.owners[kind]
    times = ", ".join(TIME.format(name) for name in ("event_time",))
    read = query(
        f"SELECT * REPLACE ({times}, toUInt64(bitShiftRight(version, 112)) AS version) FROM {raw_table(kind)} FINAL"
    )
    names = ("host_id", "entity", "part", "event_time", "collector_id")
    keys = [RowKey(*key) for key in zip(*(read[name].to_pylist() for name in names), strict=True)]
    found.keys(f"{kind} raw rows", keys, rows)
    places = [place for place, key in enumerate(keys) if key in rows]
    keys = [keys[place] for place in places]
    mine = [rows[key] for key in keys]
    columns = _Columns(read, places)

    def same(name: str, wanted: Sequence[Any]) -> None:
        found.column(f"{kind} raw {name}", keys, columns[name], wanted)

    origins = ("spool_id", "sequence", "schema_id", "correction_ms", "boot_id", "source")
    for number, name in enumerate(origins):
        same(name, [row.origin[number] for row in mine])
    same("skew", [int(row.origin[6]) for row in mine])
    same("source_rank", [SOURCE_RANKS[row.origin[5]] for row in mine])
    same("observed_delta_ms", [row.delta_ms for row in mine])
    same("interval_ms", [row.interval_ms for row in mine])
    same("version", [sum(cell[2] is not None for cell in row.cells.values()) for row in mine])
    for number, name in enumerate(ATTRIBUTION):
        same(name, [owners[key][number] for key in keys])
    found.column(
        f"{kind} raw quality", keys, [dict(one) for one in columns["quality"]], [row.blemishes for row in mine]
    )
    for metric in CATALOG.scalars(kind):
        same(metric.name, [row.value(metric.name) for row in mine])


def _compare_rolled(
    query: Query, kind: EntityKind, expected: Expected, still_open: Mapping[str, int], found: Differences
) -> None:
    rolled = {
        key: row for key, row in expected.rolled[kind].items() if still_open.get(key.collector_id) != key.window_start
    }
    times = ", ".join(TIME.format(name) for name in ("first_event_time", "last_event_time"))
    start = "toInt64(toUnixTimestamp(window_start)) * 1000 AS window_start"
    read = query(f"SELECT * REPLACE ({times}, {start}) FROM {rollup_table(kind)} FINAL WHERE samples > 0")
    names = ("host_id", "entity", "part", "collector_id", "window_start")
    owners = zip(*(read[name].to_pylist() for name in ATTRIBUTION), strict=True)
    parts = (*(read[name].to_pylist() for name in names), owners)
    keys = [WindowKey(*key) for key in zip(*parts, strict=True)]
    open_yet = [still_open.get(key.collector_id) == key.window_start for key in keys]
    found.keys(f"{kind} 30 s rows", [k for k, is_open in zip(keys, open_yet, strict=True) if not is_open], rolled)
    places = [place for place, key in enumerate(keys) if key in rolled]
    keys = [keys[place] for place in places]
    mine, columns = [rolled[key] for key in keys], _Columns(read, places)
    described = ("samples", "covered_ms", "interval_ms", "first_event_time", "last_event_time", "source_rank")
    for name in described:
        found.column(f"{kind} 30 s {name}", keys, columns[name], [row[name] for row in mine])
    covered = [version & 0xFFFF_FFFF for version in columns["version"]]
    found.column(f"{kind} 30 s version", keys, covered, [row["covered_ms"] for row in mine])
    for name in MAPS:
        maps = [dict(one) for one in columns[name]]
        found.column(f"{kind} 30 s {name}", keys, maps, [row[name] for row in mine])
    fixed = {*described, *MAPS, *names, *ATTRIBUTION, "tenant_id", "region", "cluster_id", "version", "retention_class"}
    for column in table(CATALOG, rollup_table(kind)).columns:
        if column.name not in fixed:
            found.column(
                f"{kind} 30 s {column.name}", keys, columns[column.name], [row.get(column.name) for row in mine]
            )


class _Columns:
    """Columns of a table at some rows."""

    def __init__(self, read: pa.Table, places: Sequence[int]) -> None:
        self._read = read.take(pa.array(places, pa.int64()))

    def __getitem__(self, name: str) -> list[Any]:
        return self._read[name].to_pylist()


def _compare_events(query: Query, expected: Expected, found: Differences) -> None:
    end = "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_time"
    told = "WHERE source != 'findings'"
    read = query(f"SELECT * REPLACE ({TIME.format('event_time')}, {end}) FROM events FINAL {told}").to_pylist()
    rows = {}
    for row in read:
        told = row["attributes"] = dict(row["attributes"])
        key = tuple(row[name] for name in ("host_id", "kind", "metric", "entity", "event_time", "code"))
        rows[(*key, told.get("text", ""), told.get("job_id", ""))] = row
    found.keys("events", rows, expected.events)
    for key, wanted in expected.events.items():
        if key in rows:
            row = rows[key]
            owner = tuple(row[name] for name in ATTRIBUTION)
            said = {"end": row["end_time"], "attributes": row["attributes"], "owner": owner}
            said |= {"version": row["event_version"]}
            found.column("event", [key], [said], [wanted])


def _compare_findings(query: Query, expected: Expected, found: Differences) -> None:
    if expected.findings is None:
        return
    end = "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_time"
    rows = query(
        f"SELECT * REPLACE ({TIME.format('event_time')}, {end}) FROM events FINAL "
        "WHERE source = 'findings' AND NOT mapContains(attributes, 'retracted')"
    ).to_pylist()
    names = ("metric", "code", "host_id", "entity", "part", "collector_id", "event_time", "end_time")
    told = [(*(row[name] for name in names), int(dict(row["attributes"])["count"]), row["severity"]) for row in rows]
    found.keys("findings", told, expected.findings)


def _compare_facts(query: Query, expected: Expected, found: Differences) -> None:
    infos = [
        (
            row["host_id"],
            row["metric"],
            row["entity"],
            row["event_time"],
            tuple(sorted(dict(row["attributes"]).items())),
        )
        for row in query(f"SELECT * REPLACE ({TIME.format('event_time')}) FROM infos FINAL").to_pylist()
    ]
    found.keys("infos", infos, expected.infos)
    histograms = {
        tuple(row[name] for name in ("host_id", "entity", "metric", "event_time", "collector_id")): row
        for row in query(f"SELECT * REPLACE ({TIME.format('event_time')}) FROM histograms_1s FINAL").to_pylist()
    }
    found.keys("histograms", histograms, expected.histograms)
    for key in histograms.keys() & expected.histograms.keys():
        row = histograms[key]
        found.column("histogram", [key], [(row["buckets"], row["sum"])], [expected.histograms[key]])
    end = "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_time"
    read = query(f"SELECT * REPLACE ({TIME.format('start_time')}, {end}) FROM allocations FINAL").to_pylist()
    facts = {(row["entity"], row["start_time"], row["job_id"]): row for row in read}
    found.keys("allocations", facts, expected.allocations)
    for key in facts.keys() & expected.allocations.keys():
        row = facts[key]
        said = (row["end_time"], row["version"], *(row[name] for name in ATTRIBUTION))
        found.column("allocation", [key], [said], [expected.allocations[key]])


def _compare_refused(query: Query, expected: Expected, found: Differences) -> None:
    """Every refusal is among the dead letters, once or, where an answer was lost, more often; and nothing else is."""
    rows = query(
        "SELECT collector_id, stage, code, metric, count() AS n FROM dead_letters FINAL GROUP BY ALL"
    ).to_pylist()
    counts = {(row["collector_id"], row["stage"], row["code"], row["metric"]): row["n"] for row in rows}
    found.keys("kinds of dead letters", counts, expected.refused)
    for key, records in expected.refused.items():
        if counts.get(key, 0) < len(records):
            found.add("dead letters missing", key, counts.get(key, 0), len(records))


def _compare_ledger(query: Query, expected: Expected, still_open: Mapping[str, int], found: Differences) -> None:
    start = "toInt64(toUnixTimestamp(window_start)) * 1000 AS window_ms"
    entries = _Entries()
    for row in query(
        f"SELECT collector_id, kind, {start}, outcome, reason, item, sum(rows) AS n, sum(`values`) AS v "
        "FROM ledger FINAL WHERE outcome != 'begun' GROUP BY ALL"
    ).to_pylist():
        entries.take(row, found)
    closed = {key for key in expected.told if still_open.get(key.collector_id) != key.window_ms}
    held = _held(expected)
    found.keys("windows in the ledger", [k for k in entries.stored if still_open.get(k[0]) != k[2]], closed)
    for key in closed:
        found.column("ledger stored", [key], [entries.stored.get(key)], [held[key]])
        if key not in expected.unclear:
            found.column("ledger received", [key], [tuple(entries.told[key])], [expected.told[key]])
    wanted = Counter({key[:3]: len(records) for key, records in expected.refused.items() if not key[3]})
    for key, event in expected.events.items():
        if key[2] == "agent_shed":
            wanted[event["attributes"]["collector"], "shed", event["attributes"]["reason"]] += 1
    found.column("refused in the ledger", ["all"], [dict(entries.items)], [dict(wanted)])


class _Entries:
    """What the ledger says.

    Attributes:
        told: Rows and values that came and were not refused.
        items: (collector, outcome, reason) -> refusals and declarations that were in no window.
    """

    def __init__(self) -> None:
        self.told: defaultdict[LedgerKey, list[int]] = defaultdict(lambda: [0, 0])
        self.stored: dict[LedgerKey, tuple[int, int]] = {}
        self.items: Counter[tuple[str, str, str]] = Counter()

    def take(self, row: Mapping[str, Any], found: Differences) -> None:
        key, counts = LedgerKey(row["collector_id"], row["kind"], row["window_ms"]), (row["n"], row["v"])
        match row["outcome"]:
            case "unexplained":
                found.add("unexplained in the ledger", (key, row["reason"]), counts, (0, 0))
            case "stored":
                self.stored[key] = counts
            case outcome if row["item"]:
                self.items[row["collector_id"], outcome, row["reason"]] += 1
            case outcome:
                sign = 1 if outcome == "received" else -1
                self.told[key][0] += sign * counts[0]
                self.told[key][1] += sign * counts[1]


def _held(expected: Expected) -> dict[LedgerKey, tuple[int, int]]:
    """Return the rows and values that the raw tables hold of each window."""
    held: defaultdict[LedgerKey, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for kind, rows in expected.raw.items():
        for key, row in rows.items():
            place = LedgerKey(key.collector_id, kind.value, key.event_time // 30_000 * 30_000)
            values = sum(cell[2] is not None for cell in row.cells.values())
            held[place] = (held[place][0] + 1, held[place][1] + values)
    return held


def counts_of(query: Query) -> dict[str, int]:
    """Return what is cheap to know: rows of the raw tables and samples of the rolled ones."""
    found = {}
    for kind in EntityKind:
        found[f"{kind} rows"] = query(f"SELECT count() AS n FROM {raw_table(kind)} FINAL").to_pylist()[0]["n"]
        rolled = query(f"SELECT sum(samples) AS n FROM {rollup_table(kind)} FINAL WHERE samples > 0").to_pylist()
        found[f"{kind} samples"] = rolled[0]["n"] or 0
    return found


def counts_wanted(expected: Expected, still_open: Mapping[str, int]) -> dict[str, int]:
    wanted = {}
    for kind in EntityKind:
        wanted[f"{kind} rows"] = len(expected.raw[kind])
        wanted[f"{kind} samples"] = sum(
            row["samples"]
            for key, row in expected.rolled[kind].items()
            if still_open.get(key.collector_id) != key.window_start
        )
    return wanted
