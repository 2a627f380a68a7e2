"""Keep account of every row and value that collectors told: what came, what of it was refused, what was stored.

An account is of one span (kind, window, collector) and one spool. It counts what frame headers count, each record once:
a record is one tick of one pair of definitions, so repeats and frames that were divided otherwise change nothing, in
whatever order they come. The records counted are kept with the counts, and an account that is opened again goes on from
there. What was never in a span, such as what a gateway refused, is one item each, known by its own name.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from secondsight.process.cells import WINDOW_MS
from secondsight.process.deadletter import DEAD_LETTER
from secondsight.process.spans import SpanKey

RECEIVED, STORED, SHED, UNEXPLAINED, BEGUN = "received", "stored", "shed", "unexplained", "begun"
"""Outcomes of ledger rows, beside `deadletter.QUARANTINE` and `DEAD_LETTER`. What is received is not yet settled; one
row of nobody's says since when there is a ledger."""

KNOWN_MAXIMUM = 1 << 17
FEW_OPEN, LONG_OPEN_MS = 2_000, 90_000

Counts = tuple[int, int]
"""Rows, values."""
Reason = tuple[str, str]
"""Outcome and code."""
NOTHING: Mapping[Reason, Any] = {}


class Name(NamedTuple):
    """What the ticks of one bitmap have in common.

    Attributes:
        definitions: Of schema and entity table, see `name_of`.
        interval_ms, phase_ms: Tick i of the window lies at its start + phase + i x interval.
    """

    definitions: int
    interval_ms: int
    phase_ms: int


class Ticks(NamedTuple):
    """Rows and values of each tick of a frame in one window, and how many of them were refused and why."""

    rows: Sequence[int]
    values: Sequence[int]
    refused: Mapping[Reason, Sequence[Counts]] = NOTHING


class Told(NamedTuple):
    """What a frame tells of one window: ticks `first` to `first + ticks`, without a break.

    Attributes:
        rows, values: Of all of them.
        each: Gives the same by tick, where that is asked for.
        refused: Reason -> rows and values that were refused of them.
    """

    key: SpanKey
    spool_id: int
    name: Name
    first: int
    ticks: int
    rows: int
    values: int
    each: Callable[[], Ticks]
    refused: Mapping[Reason, Counts] = NOTHING


@dataclass(frozen=True, slots=True)
class Item:
    """Something that never was in a span.

    Attributes:
        item: Names it; the same thing told again has the same name.
        last_ms: Event time that it reaches to.
        version: Of two that are told of one thing the greater counts, such as that it was sent again and is none now.
    """

    place: tuple[str, str, str, str]
    spool_id: int
    kind: str
    time_ms: int
    outcome: str
    reason: str
    item: str
    rows: int
    values: int
    last_ms: int = 0
    version: int = 0


@dataclass(slots=True)
class Account:
    """What one spool told of one span.

    Attributes:
        records: Name -> bitmap of the ticks that are counted.
        repeated: Values of what was told and had been counted.
        is_new: It differs from what was last written.
    """

    records: dict[Name, int] = field(default_factory=dict)
    rows: int = 0
    values: int = 0
    refused: dict[Reason, Counts] = field(default_factory=dict)
    repeated: int = 0
    is_new: bool = False

    @property
    def version(self) -> int:
        """Return how many records are counted; it grows with every one."""
        return sum(ticks.bit_count() for ticks in self.records.values())

    def not_refused(self) -> Counts:
        """Return the rows and values that are to be stored."""
        rows, values = self.rows, self.values
        for refused in self.refused.values():
            rows, values = rows - refused[0], values - refused[1]
        return rows, values

    def take(self, told: Told) -> None:
        """Count what is told and was not counted before."""
        named = (1 << told.ticks) - 1 << told.first
        known = self.records.get(told.name, 0)
        fresh = named & ~known
        self.repeated += told.values if fresh != named else 0
        if not fresh:
            return
        self.records[told.name] = known | named
        self.is_new = True
        if fresh == named:
            self._add(told.rows, told.values, told.refused)
            return
        each = told.each()
        for number in range(told.ticks):
            if fresh >> told.first + number & 1:
                refused = {reason: counts[number] for reason, counts in each.refused.items()}
                self._add(each.rows[number], each.values[number], refused)

    def overlaps(self, alike: Callable[[int, int], bool]) -> bool:
        """Tell whether two of its records speak of one tick and may share a cell, as far as `alike` knows."""
        names = list(self.records)
        return any(
            alike(one.definitions, other.definitions) and self._meet(one, other)
            for place, one in enumerate(names)
            for other in names[:place]
        )

    def _meet(self, one: Name, other: Name) -> bool:
        if one[1:] == other[1:]:
            return bool(self.records[one] & self.records[other])
        return bool(_times(one, self.records[one]) & _times(other, self.records[other]))

    def _add(self, rows: int, values: int, refused: Mapping[Reason, Counts]) -> None:
        self.rows += rows
        self.values += values
        for reason, counts in refused.items():
            known = self.refused.get(reason, (0, 0))
            self.refused[reason] = (known[0] + counts[0], known[1] + counts[1])


class LedgerRow(NamedTuple):
    """One row to be written; `place` is tenant, cluster, host, collector."""

    place: tuple[str, str, str, str]
    spool_id: int
    kind: str
    window_ms: int
    outcome: str
    reason: str
    item: str
    rows: int
    values: int
    last_ms: int
    records: str
    version: int


class Ledger:
    """Accounts of open spans, and rows that wait to be written. One thread uses it.

    Args:
        place_of: Collector -> tenant, cluster, host, collector id.
    """

    def __init__(self, place_of: Callable[[int], tuple[str, str, str, str]]) -> None:
        self._place_of = place_of
        self._open: dict[SpanKey, dict[int, Account]] = {}
        self._later: dict[SpanKey, list[Told]] = defaultdict(list)
        self._waiting: dict[tuple[object, ...], LedgerRow] = {}
        self._columns: dict[int, frozenset[int]] = {}
        self._unknown: set[SpanKey] = set()

    def know(self, definitions: int, columns: frozenset[int]) -> None:
        """Remember which columns records of some definitions fill; of those forgotten anything is possible."""
        if len(self._columns) > KNOWN_MAXIMUM:
            self._columns.clear()
        self._columns.setdefault(definitions, columns)

    def take(self, told: Told, *, later: bool) -> None:
        """Count what a frame tells; `later` where the account may have to be loaded first."""
        if later:
            self._later[told.key].append(told)
        else:
            self._account(told.key, told.spool_id).take(told)

    def take_item(self, item: Item) -> None:
        """Count an item; told again it counts once."""
        window_ms = item.time_ms - item.time_ms % WINDOW_MS
        what = (item.kind, window_ms, item.outcome, item.reason, item.item, item.rows, item.values, item.last_ms)
        self._wait(LedgerRow(item.place, item.spool_id, *what, "", item.version))

    def load(self, keys: Iterable[SpanKey], stored: Mapping[SpanKey, Mapping[int, Account]]) -> None:
        """Go on with what is stored of spans that are opened again, then count what waited for it."""
        for key in keys:
            if key not in self._open:
                self._open[key] = dict(stored.get(key, {}))
                self._unknown |= set() if key in stored else {key}
            for told in self._later.pop(key, ()):
                self._account(key, told.spool_id).take(told)

    def close(self, key: SpanKey, stored: Counts | None, *, is_told: bool = True) -> None:
        """Write off a span.

        Args:
            key: Which.
            stored: What it holds now, None where that did not change.
            is_told: All that was told of it has come here; records that are read again may still tell what is stored.
        """
        accounts = self._open.pop(key, {})
        if stored is not None:
            self._wait(self._row(key, 0, (STORED, ""), stored, stored[0] << 32 | stored[1]))
            if is_told:
                self._explain(key, accounts, stored)
        for spool_id, account in accounts.items():
            if account.is_new:
                self._wait_account(key, spool_id, account)
        self._unknown.discard(key)

    def show_open(self, now_ms: int) -> None:
        """Write the accounts of open spans as they stand, so that what is in flight can be seen.

        Of a large site only those that are open for longer than usual.
        """
        before_ms = now_ms - LONG_OPEN_MS
        for key, accounts in self._open.items():
            if key[1] > before_ms and len(self._open) > FEW_OPEN:
                continue
            for spool_id, account in accounts.items():
                if account.is_new:
                    account.is_new = False
                    self._wait_account(key, spool_id, account)

    def forget(self, keys: Iterable[SpanKey]) -> None:
        """Drop accounts of spans that another processor reads now."""
        for key in keys:
            self._open.pop(key, None)
            self._later.pop(key, None)

    def take_rows(self) -> list[LedgerRow]:
        """Return the rows that wait; `written` forgets them."""
        return list(self._waiting.values())

    def written(self) -> None:
        """Forget the rows that waited."""
        self._waiting.clear()

    def _account(self, key: SpanKey, spool_id: int) -> Account:
        accounts = self._open.setdefault(key, {})
        known = accounts.get(spool_id)
        if known is None:
            known = accounts[spool_id] = Account()
        return known

    def _wait_account(self, key: SpanKey, spool_id: int, account: Account) -> None:
        told = (account.rows, account.values)
        row = self._row(key, spool_id, (RECEIVED, ""), told, account.version)
        self._wait(row._replace(records=write_records(account.records)))
        for reason, counts in account.refused.items():
            self._wait(self._row(key, spool_id, reason, counts, account.version))

    def _row(self, key: SpanKey, spool_id: int, reason: Reason, counts: Counts, version: int) -> LedgerRow:
        kind, start_ms, collector = key
        return LedgerRow(
            self._place_of(collector), spool_id, kind.value, start_ms, *reason, "", *counts, 0, "", version
        )

    def _wait(self, row: LedgerRow) -> None:
        key = row[:7]
        known = self._waiting.get(key)
        if known is None or known.version <= row.version:
            self._waiting[key] = row

    def _explain(self, key: SpanKey, accounts: dict[int, Account], stored: Counts) -> None:
        """Put on record what was told, not refused, and is neither stored nor told by two records of one tick.

        Two things may be stored that were not counted: what was written before there was a ledger, which no spool told,
        and pieces of one tick and pair of definitions, of which each but the first was taken for a repeat.
        """
        rows, values = -stored[0], -stored[1]
        for account in accounts.values():
            told = account.not_refused()
            rows, values = rows + told[0], values + told[1]
        values += _taken_back(accounts.values(), -values)
        if not values:
            return
        if values < 0:
            told_by = max(accounts.values(), key=lambda account: account.repeated, default=None)
            if sum(account.repeated for account in accounts.values()) < -values:
                told_by = accounts.setdefault(0, Account()) if key in self._unknown else None
            if told_by is not None:
                told_by.rows += max(0, -rows)
                told_by.values -= values
                told_by.is_new = True
                return
        if values < 0 or not self._is_shared(accounts):
            version = sum(account.version for account in accounts.values())
            code = "less" if values > 0 else "more"
            self._wait(self._row(key, 0, (UNEXPLAINED, code), (0, abs(values)), version))

    def _is_shared(self, accounts: Mapping[int, Account]) -> bool:
        """Tell whether two records of one tick may fill one cell, as far as is known."""
        together = Account()
        for account in accounts.values():
            for name, ticks in account.records.items():
                if together.records.get(name, 0) & ticks:
                    return True
                together.records[name] = together.records.get(name, 0) | ticks
        return together.overlaps(self._share)

    def _share(self, one: int, other: int) -> bool:
        """Tell whether two definitions may fill one cell."""
        first, second = self._columns.get(one), self._columns.get(other)
        return first is None or second is None or bool(first & second)


def _taken_back(accounts: Iterable[Account], more: int) -> int:
    """Take refusals back of values that were told again and are stored now, `more` than are told; return how many.

    A frame that is sent again after a metric was registered tells records that are counted, with what was refused of
    them then; that it is not refused any more shows in what is stored.
    """
    left = more
    for account in accounts:
        for reason, (rows, values) in account.refused.items():
            back = min(values, account.repeated, left)
            if reason[0] == DEAD_LETTER and back > 0:
                account.refused[reason] = (rows, values - back)
                account.is_new = True
                left -= back
    return more - left


def name_of(schema_hash: bytes, entities_hash: bytes) -> int:
    """Return what stands for a pair of definitions."""
    return int.from_bytes(schema_hash[:8], "little") ^ int.from_bytes(entities_hash[8:16], "little")


def write_records(records: Mapping[Name, int]) -> str:
    """Return records as text."""
    return " ".join(f"{'.'.join(f'{part:x}' for part in name)}.{ticks:x}" for name, ticks in sorted(records.items()))


def read_records(text: str) -> dict[Name, int]:
    """Return the records that `write_records` wrote."""
    found = {}
    for word in text.split():
        definitions, interval_ms, phase_ms, ticks = (int(part, 16) for part in word.split("."))
        found[Name(definitions, interval_ms, phase_ms)] = ticks
    return found


def _times(name: Name, ticks: int) -> int:
    """Return a bitmap by milliseconds of the window."""
    places = (place for place in range(ticks.bit_length()) if ticks >> place & 1)
    return sum(1 << name.phase_ms + place * name.interval_ms for place in places)
