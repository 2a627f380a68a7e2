"""Turn the kernel log and the fabric manager's log into events: Xid, SXid, GPUs off the bus, and what rules know.

The log is read from its start after a boot, so what happened before the agent started is not lost; after a restart of
the agent it goes on where it was. A look takes a bounded number of lines, the rest comes with the next looks. Every
line is counted once, as `kernel_log:...`: known (read before), ignored, detail (of an event), reported (it opened an
event), collapsed (it raised the count of one), flood (too many new events at once).
"""

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.kmsg import rules
from secondsight.agent.kmsg.advice import History
from secondsight.agent.kmsg.bursts import Burst, Bursts, Occurrence
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.kmsg.feed import Feed, Said
from secondsight.agent.kmsg.findings import Hit, Named, OffBus, Report, SXid, Xid
from secondsight.agent.kmsg.gpus import GpuTable
from secondsight.agent.kmsg.heard import HeardXids
from secondsight.agent.kmsg.interpret import OFF_BUS_XID, Interpreter
from secondsight.agent.kmsg.records import Records
from secondsight.agent.kmsg.source import FileSource, open_source
from secondsight.agent.kmsg.state import KernelLogState, load_state, save_state
from secondsight.agent.kmsg.untold import UntoldXids
from secondsight.agent.kmsg.when import BootTime
from secondsight.agent.kmsg.xidcount import COLLECTOR, XidCells
from secondsight.agent.known_gpus import KnownGpus
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import ContentBuilder, Gathered

logger = logging.getLogger(__name__)

REPORTED_SAVE_LOOKS = 5
SAVE_LOOKS = 60
"""The state is saved at most once in so many looks, less often where nothing was reported."""

XID_COUNTS_MAXIMUM = 1024
HEALTHY_FILE = "healthy"


@dataclass(frozen=True, slots=True)
class LogHost:
    """The host whose logs are read.

    Attributes:
        root: Folder that holds dev, proc and var.
        state_file: Where to keep what must survive a restart; a file `healthy` beside it, when touched, says that an
            operator found the host well.
        gpus: What the readers of this host know of its GPUs.
        heard: Told of every Xid, for sources that only repeat the last one.
        untold: Xids that only those sources told.
    """

    host_id: str
    rack: str
    root: Path
    boot_id: str
    state_file: Path
    gpus: KnownGpus = field(default_factory=KnownGpus)
    heard: HeardXids = field(default_factory=HeardXids)
    untold: UntoldXids = field(default_factory=UntoldXids)


class KernelLogReader:
    """Reads the logs of one host; see `contracts.Reader`."""

    def __init__(self, config: KernelLogConfig, host: LogHost, catalog: Catalog, clock: Clock, counts: Counts) -> None:
        self.name = "kernel_log"
        self.interval_ms = config.interval_ms
        self._config = config
        self._host = host
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._builder = ContentBuilder(host.host_id, host.rack)
        self._bursts = Bursts()
        self._same: dict[str, Burst] = {}
        self._looks = 0
        self._unsaved = False
        self._saved_at_look = 0
        self._xids: Counter[tuple[str, int]] = Counter()
        self._restore(load_state(host.state_file) or KernelLogState())

    def read(self, tick_ms: int) -> Tick:
        """Take the events of the lines that came since the last look; a log that cannot be read gives none."""
        self._save_if_due()
        now_ms = self._clock.now_ms()
        step_ms = self._boot.look(now_ms, self._clock.monotonic_seconds())
        self._look_for_healthy()
        self._interpreter.gpus.new_look()
        for feed in self._feeds:
            feed.clock_stepped(step_ms)
            self._look(feed, now_ms)
        self._same.clear()
        gathered = Gathered(cells=list(self._xid_cells.give(self._xids)))
        gathered.events = self._bursts.due(min(feed.read_to_ms for feed in self._feeds), now_ms)
        self._unsaved |= bool(gathered.events)
        self._looks += 1
        contents = self._builder.build(gathered, self._clock.now_ms() - tick_ms)
        return Tick(contents, collector=COLLECTOR, source=self.name)

    def close(self) -> None:
        """Keep the state and close the logs."""
        self._save()
        for feed in self._feeds:
            feed.records.source.close()

    def _restore(self, state: KernelLogState) -> None:
        same_boot = state.boot_id == self._host.boot_id != ""
        state = state if same_boot else replace(state, mark=None, anchor_ms=None, counts=[], open=[])
        history = History({(gpu, code): count for gpu, code, count in state.reboots})
        if state.boot_id and not same_boot:
            history.rebooted()
        gpus = GpuTable(self._host.root, self._host.gpus, state.gpus)
        gpus.list_again()
        policy = {int(code): action for code, action in self._config.actions.items()}
        self._interpreter = Interpreter(self._host.host_id, gpus, history, policy, dict(state.switches))
        self._boot = BootTime(state.anchor_ms)
        self._healthy_ms = state.healthy_ms
        self._xids.update({(gpu, code): count for gpu, code, count in state.counts})
        self._xid_cells = XidCells(self._catalog, self._host.untold, self._xids)
        try:
            self._bursts.restore(state.open)
        except (KeyError, TypeError, ValueError):
            self._counts.add("kernel_log:state_damaged")
        self._feeds = [self._feed(path, state) for path in (self._config.path, self._config.fabric_manager_log)]

    def _feed(self, path: Path, state: KernelLogState) -> Feed:
        position = state.positions.get(str(path))
        mark = state.mark if path == self._config.path else None
        source = open_source(self._host.root / str(path).lstrip("/"), position)
        records = Records(source, mark, rereads=not isinstance(source, FileSource))
        return Feed(path, records, fresh=position is None and mark is None)

    def _look(self, feed: Feed, now_ms: int) -> None:
        """Take the new lines of one log."""
        try:
            for said in feed.take(self._config.lines_per_look, self._boot, now_ms):
                feed.tally[self._take(said)] += 1
        except OSError as error:
            self._counts.add("kernel_log:unreadable")
            if feed.is_first_failure(error):
                hint = "give the agent CAP_SYSLOG, or switch agent.kernel_log.enabled off"
                logger.warning("%s of %s cannot be read: %s; %s", feed.path, self._host.host_id, error.strerror, hint)
        if feed.lost:
            self._lose(feed, now_ms)
        for name, lines in feed.tally.items():
            self._counts.add(f"kernel_log:{name}", lines)
        feed.tally.clear()

    def _take(self, said: Said) -> str:
        """Take what a line says; return what became of the line."""
        finding = said.finding
        if isinstance(finding, Named):
            self._interpreter.gpus.learn(finding.address, finding.uuid)
            return "detail"
        if (
            isinstance(finding, SXid)
            and finding.detail
            and self._bursts.detail(finding.code, str(finding.address), finding.text)
        ):
            return "detail"
        before = self._same.get(said.line.text)
        if before is not None and self._bursts.again(before, said.time_ms):
            opened = "collapsed"
        else:
            opened = self._see(self._occurrence(finding, said.line.text), said)
        if isinstance(finding, Xid | OffBus):
            self._count_xid(finding, said.time_ms, opened=opened == "reported")
        self._release(finding, said)
        return opened

    def _occurrence(self, finding: Report, text: str) -> Occurrence:
        match finding:
            case Xid():
                return self._interpreter.xid(finding)
            case OffBus():
                return self._interpreter.off_bus(finding, text)
            case SXid():
                return self._interpreter.sxid(finding)
            case Hit():
                return self._interpreter.hit(finding, text)

    def _see(self, occurrence: Occurrence, said: Said) -> str:
        line, told = said.line, dict(occurrence.attributes)
        told |= {
            "source": "kernel_log",
            "monotonic_us": str(line.monotonic_us or ""),
            "facility": str(line.facility or ""),
        }
        told["time_from"] = "" if said.own_time else "arrival"
        occurrence = replace(occurrence, attributes={name: value for name, value in told.items() if value})
        burst = self._bursts.see(occurrence, said.time_ms)
        if burst is None:
            self._counts.add("discarded:log_flood")
            self._tell(rules.FLOOD, {}, said.time_ms, 1)
            return "flood"
        if not occurrence.joins:
            self._same[line.text] = burst
        return "reported" if burst.version == 1 else "collapsed"

    def _release(self, finding: Report, said: Said) -> None:
        """End what a recovery or a new driver ends."""
        if isinstance(finding, Xid):
            reset = self._interpreter.recovered(finding)
            if reset is not None:
                self._bursts.release(reset.entity)
                self._bursts.see(reset, said.time_ms)
        if isinstance(finding, Hit) and finding.rule.name == "gpu_driver_loaded":
            self._bursts.release()
            self._interpreter.gpus.list_again()

    def _count_xid(self, finding: Xid | OffBus, time_ms: int, *, opened: bool) -> None:
        """Count an Xid that nobody else counted; a GPU off the bus counts once, told with an Xid, without, or both."""
        code = finding.code if isinstance(finding, Xid) else OFF_BUS_XID
        entity, known = self._interpreter.gpu(finding.address)
        for name in {entity, known["pci_bus_id"]}:
            self._host.heard.hear(name, code, time_ms)
        told_before = self._bursts.tell_with_xid(entity, code) if isinstance(finding, Xid) else not opened
        counted = not told_before and not self._host.untold.absorb(entity, code, time_ms)
        if counted and ((entity, code) in self._xids or len(self._xids) < XID_COUNTS_MAXIMUM):
            self._xids[entity, code] += 1

    def _lose(self, feed: Feed, now_ms: int) -> None:
        """Declare lines that were overwritten before they were read."""
        self._tell(rules.LOST, {"log": str(feed.path)}, now_ms, feed.lost)
        self._counts.add("kernel_log:lost", feed.lost)
        self._counts.add("discarded:log_lost", feed.lost)
        feed.lost = 0

    def _tell(self, rule: rules.Rule, told: dict[str, str], time_ms: int, count: int) -> None:
        """Tell something about the log itself, however much else there is to tell."""
        told = {"rule": rule.name, "severity": rule.severity} | told
        occurrence = self._interpreter.of_node(rule.code, tuple(told.values()), told)
        self._bursts.see(replace(occurrence, count=count, always=True), time_ms)

    def _look_for_healthy(self) -> None:
        """Forget faults when an operator has touched the file since the last look."""
        try:
            touched_ms = self._host.state_file.with_name(HEALTHY_FILE).stat().st_mtime_ns // 1_000_000
        except OSError:
            return
        if touched_ms > self._healthy_ms:
            self._healthy_ms = touched_ms
            self._interpreter.history.set_healthy()
            self._bursts.release()
            self._unsaved = True

    def _save_if_due(self) -> None:
        """Keep the state of what the spool has by now: a read is only called when the last one was handed over."""
        waited = self._looks - self._saved_at_look
        if waited >= (REPORTED_SAVE_LOOKS if self._unsaved else SAVE_LOOKS):
            self._save()

    def _save(self) -> None:
        interpreter, feeds = self._interpreter, self._feeds
        sources = [(str(feed.path), feed.records.source) for feed in feeds]
        state = KernelLogState(
            boot_id=self._host.boot_id,
            anchor_ms=self._boot.anchor_ms,
            mark=feeds[0].records.mark,
            positions={path: s.position for path, s in sources if isinstance(s, FileSource) and s.position is not None},
            gpus=interpreter.gpus.kept,
            switches=interpreter.switches,
            counts=[(entity, code, count) for (entity, code), count in self._xids.items()],
            reboots=[(entity, code, count) for (entity, code), count in interpreter.history.reboots.items()],
            healthy_ms=self._healthy_ms,
            open=self._bursts.state(),
        )
        self._saved_at_look = self._looks
        try:
            save_state(self._host.state_file, state)
            self._unsaved = False
        except OSError as error:
            self._counts.add("kernel_log:state_unsaved")
            logger.warning("the kernel log's place cannot be kept in %s: %s", self._host.state_file, error.strerror)
