"""Keep the findings that last, and write what windows that are closed begin, end, amend or retract.

A window that follows all others of its collector goes on from what is open in memory. One that lies between others, or
may have been closed by an earlier process, is compared with the stored findings: afterwards they are what all stored
samples say, whatever the order in which they came.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from secondsight.catalog.findings import FindingRule, load_rules
from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS, Window
from secondsight.process.findingrows import Finding, Firsts, finding_row, load_firsts, load_near, load_next, load_open
from secondsight.process.findings import Detector, Episode, Growth, Noted, episodes, growths
from secondsight.process.kinds import KindState
from secondsight.process.series import CLUSTER, COLLECTOR, ENTITY, HOST, I32, PART, REGION, TENANT, Names
from secondsight.process.spans import SpanKey
from secondsight.process.window import Rollup, Samples
from secondsight.process.world import World

TABLE = "events"
OPEN_MAXIMUM = 1 << 18
"""Findings that last and are kept in memory; beyond it the oldest are left as they stand in the store."""

Key = tuple[FindingRule, int]
"""Rule, series."""
AHEAD_MS = 4 * WINDOW_MS
"""How far after the last of the windows that are closed at once the samples that follow them are looked for at once."""
Host = tuple[str, str, str, str]
"""Tenant, cluster, host, collector."""


class FindingBook:
    """Findings of all kinds. One thread uses it: `expect`, then per window `look` at its portions and `settle`."""

    def __init__(self, world: World) -> None:
        self._world = world
        rules = load_rules(world.catalog)
        self._rules = {rule.name: rule for rule in rules}
        self._detectors = {
            kind: Detector([rule for rule in rules if rule.kind is kind]) for kind in {rule.kind for rule in rules}
        }
        self._open: dict[FindingRule, dict[int, Finding]] = {rule: {} for rule in rules}
        self._assignments = -1
        self._between: set[SpanKey] = set()
        self._settled: set[SpanKey] = set()
        self._near: dict[EntityKind, dict[Key, list[Finding]]] = {}
        self._firsts: dict[FindingRule, tuple[int, Firsts]] = {}
        self._episodes: list[Episode] = []
        self._growths: list[Growth] = []

    def expect(self, keys: Sequence[SpanKey]) -> None:
        """Make ready for windows that are closed next.

        Raises:
            Retryable: The store is busy or away.
        """
        self._follow()
        self._episodes, self._growths, self._firsts = [], [], {}
        self._settled &= self._world.spans.open.keys()
        self._between = {key for key in keys if key[0] in self._detectors and self._is_between(key)}
        self._near = {kind: defaultdict(list) for kind in self._detectors}
        if not self._between:
            return
        self._world.writer.flush_landing(TABLE)
        for some in self._by_cluster(self._between):
            state = self._world.kinds[some[0][0]]
            reach_ms = (min(key[1] for key in some), max(key[1] for key in some) + WINDOW_MS)
            collectors = sorted({key[2] for key in some})
            for finding in load_near(self._world.store, state, collectors, reach_ms, self._rules):
                self._near[state.kind][finding.rule, finding.series].append(finding)

    def look(self, state: KindState, samples: Samples, rollup: Rollup) -> None:
        """Take note of what a portion of a window has; `settle` writes it."""
        detector = self._detectors.get(state.kind)
        if detector is None:
            return
        noted = detector.noted(rollup)
        self._note_known(state.kind, samples, noted)
        for rule, series in noted.items():
            if rule.lasts:
                held = partial(self._held, state, rule, samples.start_ms)
                self._episodes += episodes(rule, samples, sorted(series), held)
            else:
                self._growths += growths(rule, samples, sorted(series))

    def settle(self, state: KindState, window: Window, collectors: Sequence[int]) -> None:
        """Write what was found in a window.

        Raises:
            Retryable: The store is busy or away.
        """
        found, self._episodes = self._episodes, []
        grown, self._growths = self._growths, []
        if not (found or grown or self._between):
            return
        among = [self._is_among(state, each.series, window.start_ms) for each in found]
        between = [each for each, is_among in zip(found, among, strict=True) if is_among]
        following = self._following(state, between, window.start_ms + WINDOW_MS)
        self._settled.update((state.kind, window.start_ms, collector) for collector in collectors)
        for episode, is_among in zip(found, among, strict=True):
            if is_among:
                self._fit_in(state, episode, window.start_ms, following.get((episode.rule, episode.series)))
            else:
                self._go_on(state, episode)
        self._settle_growths(state, window, collectors, grown)

    @property
    def open(self) -> int:
        """Return how many findings last."""
        return sum(map(len, self._open.values()))

    def series_of(self, kind: EntityKind) -> set[int]:
        """Return the series of a kind of which something lasts."""
        return {series for rule, findings in self._open.items() if rule.kind is kind for series in findings}

    def renumber(self, kind: EntityKind, renumbered: I32) -> None:
        """Take over new numbers of the series of a kind, between windows."""
        self._near = {}
        for rule, findings in self._open.items():
            if rule.kind is kind:
                for finding in findings.values():
                    finding.series = int(renumbered[finding.series])
                self._open[rule] = {finding.series: finding for finding in findings.values()}

    def _follow(self) -> None:
        """Read what lasts from the store, at first and whenever partitions come or go."""
        world = self._world
        if self._assignments == world.assignments:
            return
        world.writer.flush_landing(TABLE)
        for findings in self._open.values():
            findings.clear()
        for finding in load_open(world.store, world.kinds, self._rules, world.clock.now_ms()):
            self._keep(finding)
        self._assignments = world.assignments

    def _keep(self, finding: Finding) -> None:
        self._open[finding.rule][finding.series] = finding
        if self.open > OPEN_MAXIMUM:
            findings = min(
                (each for each in self._open.values() if each), key=lambda each: next(iter(each.values())).begin_ms
            )
            findings.pop(next(iter(findings)))
            self._world.metrics.count("processor_findings_left_total")

    def _is_between(self, key: SpanKey) -> bool:
        """Tell whether a window may have others after it, or was closed before."""
        span, progress = self._world.spans.open[key], self._world.progress[key[2]]
        is_old = span.reopened or span.opened_ms <= self._world.started_ms or key in self._settled
        return is_old or max(progress.through_ms, progress.restored_ms) > key[1] + WINDOW_MS

    def _by_cluster(self, keys: Iterable[SpanKey]) -> list[list[SpanKey]]:
        groups: dict[tuple[str, str, str], list[SpanKey]] = defaultdict(list)
        for key in keys:
            tenant, _, cluster, _ = self._world.collectors.items[key[2]]
            groups[key[0], tenant, cluster].append(key)
        return list(groups.values())

    def _is_among(self, state: KindState, series: int, start_ms: int) -> bool:
        """Tell whether a series' window lies between others."""
        if not self._between:
            return False
        names = state.series.names_of(series)
        collector = state.collectors.known((names[TENANT], names[REGION], names[CLUSTER], names[COLLECTOR]))
        return (state.kind, start_ms, collector) in self._between

    def _note_known(self, kind: EntityKind, samples: Samples, noted: Noted) -> None:
        """Add the series of which something lasts, or is stored nearby."""
        for rule, findings in self._open.items():
            if rule.kind is kind and findings:
                noted[rule].update(_inside(samples, findings))
        for (rule, series), _ in self._near.get(kind, {}).items():
            if rule.lasts:
                noted[rule].update(_inside(samples, [series]))

    def _held(self, state: KindState, rule: FindingRule, start_ms: int, series: int) -> bool:
        """Tell whether a series held right before a window."""
        if self._is_among(state, series, start_ms):
            return _reaching(self._stored(state, rule, series), start_ms) is not None
        return series in self._open[rule]

    def _stored(self, state: KindState, rule: FindingRule, series: int) -> list[Finding]:
        return [each for each in self._near[state.kind].get((rule, series), ()) if not each.gone]

    def _go_on(self, state: KindState, episode: Episode) -> None:
        """End what lasted, and begin what began, in a window after all others."""
        findings = self._open[episode.rule]
        lasting = findings.get(episode.series)
        if lasting is not None and episode.off_ms is not None:
            del findings[episode.series]
            self._end(state, lasting, episode.off_ms)
        if episode.begin_ms is not None:
            end_ms = None if episode.holds else episode.end_ms
            begun = Finding(episode.rule, episode.series, episode.begin_ms, end_ms, episode.count, episode.rule.code)
            self._write(state, begun)
            if episode.holds:
                self._keep(begun)

    def _following(self, state: KindState, between: Sequence[Episode], end_ms: int) -> dict[Key, tuple[int, bool]]:
        """Return the samples that follow a window, by rule and series: when, and whether they hold."""
        wanted: dict[FindingRule, list[int]] = defaultdict(list)
        for episode in between:
            wanted[episode.rule].append(episode.series)
        found: dict[Key, tuple[int, bool]] = {}
        for rule, series in wanted.items():
            since_ms, firsts = self._firsts_of(state, rule, end_ms)
            missing = []
            for number in series:
                first = next((each for each in firsts.get(number, ()) if each[0] >= end_ms), None)
                if first is None or end_ms < since_ms:
                    missing.append(number)
                else:
                    found[rule, number] = first
            if missing:
                later = load_next(self._world.store, state, rule, missing, end_ms)
                found |= {(rule, number): following for number, following in later.items()}
        return found

    def _firsts_of(self, state: KindState, rule: FindingRule, end_ms: int) -> tuple[int, Firsts]:
        """Return since when, and the first samples of windows that follow those that are closed now."""
        if rule not in self._firsts:
            firsts: Firsts = {}
            for some in self._by_cluster(key for key in self._between if key[0] is state.kind):
                collectors = sorted({key[2] for key in some})
                reach_ms = (end_ms, max(key[1] for key in some) + AHEAD_MS)
                firsts |= load_firsts(self._world.store, state, rule, collectors, reach_ms)
            self._firsts[rule] = end_ms, firsts
        return self._firsts[rule]

    def _fit_in(self, state: KindState, episode: Episode, start_ms: int, following: tuple[int, bool] | None) -> None:
        """Make the stored findings those of all samples, given the sample that follows the window."""
        rule, series = episode.rule, episode.series
        stored = self._stored(state, rule, series)
        next_ms, next_holds = following or (0, False)
        after = next((each for each in stored if next_holds and each.covers(next_ms)), None)
        after_end_ms = after.end_ms if after else None
        tail_ms = next_ms if following and not next_holds else after_end_ms
        before = _reaching(stored, start_ms)
        kept = [] if before is None else [before]
        if before is not None:
            self._end(state, before, tail_ms if episode.off_ms is None else episode.off_ms)
        if episode.begin_ms is not None:
            end_ms = tail_ms if episode.holds else episode.end_ms
            kept.append(self._put(state, Finding(rule, series, episode.begin_ms, end_ms, episode.count, rule.code)))
        if after is not None and not episode.holds:
            whole = after.begin_ms == next_ms
            kept.append(
                after if whole else self._put(state, Finding(rule, series, next_ms, after_end_ms, 1, rule.code))
            )
        for each in stored:
            if each not in kept and (start_ms <= each.begin_ms < start_ms + WINDOW_MS or each is after):
                self._retract(state, each)
        self._open[rule].pop(series, None)
        for each in self._stored(state, rule, series):
            if each.end_ms is None:
                self._keep(each)

    def _put(self, state: KindState, wanted: Finding) -> Finding:
        """Have a finding stored as it should be, whether it is there, was retracted or is new; return it."""
        known = self._near[state.kind][wanted.rule, wanted.series]
        there = next((each for each in known if (each.begin_ms, each.code) == (wanted.begin_ms, wanted.code)), None)
        if there is None:
            known.append(wanted)
            self._write(state, wanted)
            return wanted
        if there.gone or (there.end_ms, there.count, there.told) != (wanted.end_ms, wanted.count, wanted.told):
            there.gone, there.end_ms, there.count, there.told = False, wanted.end_ms, wanted.count, wanted.told
            self._write(state, there)
        return there

    def _end(self, state: KindState, finding: Finding, end_ms: int | None) -> None:
        if finding.end_ms != end_ms:
            finding.end_ms = end_ms
            self._write(state, finding)

    def _retract(self, state: KindState, finding: Finding) -> None:
        finding.gone = True
        self._world.metrics.count("processor_findings_retracted_total", event=finding.rule.event)
        self._write(state, finding)

    def _write(self, state: KindState, finding: Finding) -> None:
        world, names = self._world, state.series.names_of(finding.series)
        finding.version += 1
        if finding.version == 1:
            world.metrics.count("processor_findings_total", event=finding.rule.event)
        subject = (names[TENANT], names[CLUSTER], names[ENTITY], names[PART])
        owner = world.attribution_at(state.kind, names[HOST], subject, finding.begin_ms)
        row = finding_row(finding, names, owner, world.clock.now_ms())
        world.writer.landing.add_event(row)

    def _settle_growths(
        self, state: KindState, window: Window, collectors: Sequence[int], grown: Sequence[Growth]
    ) -> None:
        wanted: dict[Key, Finding] = {}
        for key, some in _grouped(grown).items():
            told = ",".join(sorted({each.metric for each in some})) if key[0].restarts else ""
            first_ms, last_ms = min(each.first_ms for each in some), max(each.last_ms for each in some)
            count = max(each.count for each in some)
            wanted[key] = Finding(*key, first_ms, last_ms, count, key[0].code, told=told)
        self._widen(state, window, collectors, wanted)
        for (_, series), finding in wanted.items():
            if self._is_among(state, series, window.start_ms):
                self._put(state, finding)
            else:
                self._write(state, finding)
        self._retract_growths(state, window.start_ms, collectors, wanted)

    def _retract_growths(
        self, state: KindState, start_ms: int, collectors: Sequence[int], wanted: dict[Key, Finding]
    ) -> None:
        """Retract counts of a window that late samples moved, or took away."""
        known = {(state.kind, start_ms, collector) for collector in collectors} & self._between
        if not known:
            return
        for key, findings in self._near[state.kind].items():
            if key[0].lasts or not self._is_among(state, key[1], start_ms):
                continue
            right = wanted.get(key)
            for each in findings:
                is_right = right is not None and (each.begin_ms, each.code) == (right.begin_ms, right.code)
                if start_ms <= each.begin_ms < start_ms + WINDOW_MS and not (each.gone or is_right):
                    self._retract(state, each)

    def _widen(self, state: KindState, window: Window, collectors: Sequence[int], wanted: dict[Key, Finding]) -> None:
        """Give findings that every entity of a host has at once the code for that."""
        shared = [each for each in wanted.values() if each.rule.code_of_all != each.rule.code]
        if not shared:
            return
        seen = _entities_of(state, window, collectors)
        had: dict[tuple[FindingRule, Host], set[str]] = defaultdict(set)
        for each in shared:
            names = state.series.names_of(each.series)
            had[each.rule, _host(names)].add(names[ENTITY])
        for each in shared:
            host = _host(state.series.names_of(each.series))
            if len(seen[host]) > 1 and had[each.rule, host] >= seen[host]:
                each.code = each.rule.code_of_all


def _entities_of(state: KindState, window: Window, collectors: Sequence[int]) -> dict[Host, set[str]]:
    """Return the entities that a window has rows of, by host and collector."""
    seen: dict[Host, set[str]] = defaultdict(set)
    for lane in (window.lanes[collector] for collector in collectors if collector in window.lanes):
        for series in np.unique(window.series[lane.rows()]).tolist():
            names = state.series.names_of(series)
            if not names[PART]:
                seen[_host(names)].add(names[ENTITY])
    return seen


def _host(names: Names) -> Host:
    return names[TENANT], names[CLUSTER], names[HOST], names[COLLECTOR]


def _grouped(grown: Iterable[Growth]) -> dict[Key, list[Growth]]:
    groups: dict[Key, list[Growth]] = defaultdict(list)
    for each in grown:
        groups[each.rule, each.series].append(each)
    return groups


def _reaching(findings: Sequence[Finding], start_ms: int) -> Finding | None:
    """Return what lasted when a window began: the sample that ends it, if any, is in the window or after it."""
    return next(
        (each for each in findings if each.begin_ms < start_ms and (each.end_ms is None or each.end_ms >= start_ms)),
        None,
    )


def _inside(samples: Samples, series: Iterable[int]) -> list[int]:
    """Return those series that a window has samples of."""
    wanted = np.array(sorted(series), np.int32)
    at = np.minimum(np.searchsorted(samples.series, wanted), samples.series.size - 1)
    found: list[int] = wanted[samples.series[at] == wanted].tolist()
    return found
