"""Fetch the plan when the gateway says that there is another one, and have the agent follow it.

Every answer to frames names the plan that is to be had; only another name than the kept plan's makes a request. One
more is made at the start. A plan is kept beside the spool, so that an agent starts with the last one while its gateway
is away. Sessions reach back: what the ring still has of the time before is shipped in the live lane.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from secondsight.agent.client.connection import Answer
from secondsight.agent.client.pace import Backoff
from secondsight.agent.counts import Counts
from secondsight.agent.plan.cut import select
from secondsight.agent.plan.model import FULL_MS, WINDOW_MS, Plan, Session, parse_plan
from secondsight.agent.plan.ring import Ring
from secondsight.agent.plan.stage import Stage, Write, named_reader
from secondsight.agent.wholefile import write_whole
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable
from secondsight.wire.content import Content, Frame

logger = logging.getLogger(__name__)

PLAN_HEADER = "x-secondsight-plan"
ETAG_LENGTH_MAXIMUM = 100
BACKOFF_SECONDS = 1.0
BACKOFF_MAXIMUM_SECONDS = 300.0
SETTLE_SECONDS = 2.0
"""Ticks under way when a plan is put in force have reached the ring after so long."""

REMEMBERED_SESSIONS = 1000


class Asking(Protocol):
    """Asks the gateway. One thread uses it."""

    def get(self, target: str, etag: str = "") -> Answer:
        """Return the answer to a GET, which need not have a body where it is as `etag` names it.

        Raises:
            Retryable: No answer came.
        """
        ...

    def close(self) -> None:
        """Close connections, from any thread, ending a request under way; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class FollowParts:
    """What a follower works with.

    Attributes:
        asking: Asks the gateway.
        path: Of the plan, with its query.
        file: Where the plan is kept.
        random: Gives numbers in [0, 1).
        correction_ms: Returns what the host's clock is corrected by now; times of plans are right ones.
    """

    asking: Asking
    path: str
    file: Path
    stage: Stage
    ring: Ring
    write: Write
    counts: Counts
    random: Callable[[], float]
    correction_ms: Callable[[], int] = lambda: 0


class Follower:
    """Keeps a stage on the newest plan. One thread calls `run`; `observe` is for any thread."""

    def __init__(self, parts: FollowParts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted = ""
        self._ending = False
        self._asked = False
        self._fetched: dict[str, int] = {}
        self._backoff = Backoff(BACKOFF_SECONDS, BACKOFF_MAXIMUM_SECONDS, parts.random)
        self._load()

    def observe(self, answer: Answer) -> None:
        """Take note of which plan the gateway has for this agent, as an answer says."""
        etag = answer.headers.get(PLAN_HEADER, "")
        if etag and len(etag) <= ETAG_LENGTH_MAXIMUM and etag != self._wanted:
            with self._changed:
                self._wanted = etag
                self._changed.notify()

    def end(self) -> None:
        """Let `run` return, ending the request that it is at; may be called twice."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._parts.asking.close()

    def run(self) -> None:
        """Follow until told to end."""
        self._fetch_back(self._parts.stage.plan)
        pause_seconds = 0.0
        while self._wait(pause_seconds):
            if self._guarded_step():
                self._backoff.reset()
                pause_seconds = 0.0
            else:
                pause_seconds = self._backoff.next_seconds(None)

    def step(self) -> bool:
        """Ask for the plan and follow it; return whether there was an answer to go by."""
        known = self._parts.stage.plan.etag
        try:
            answer = self._parts.asking.get(self._parts.path, known)
            plan = self._plan_of(answer)
        except (Retryable, Rejected) as error:
            self._parts.counts.add("plan_failed")
            logger.log(logging.DEBUG if self._asked else logging.INFO, "the plan cannot be had, going on: %s", error)
            self._asked = True
            return False
        self._asked = True
        if plan is not None:
            self._follow(plan, answer.body)
        return True

    def _guarded_step(self) -> bool:
        try:
            return self.step()
        except Exception:
            logger.exception("following the plan failed on a fault of this program")
            self._parts.counts.add("plan_broken")
            return False

    def _wait(self, pause_seconds: float) -> bool:
        """Wait until there is something to ask for; False to end."""
        with self._changed:
            if pause_seconds:
                self._changed.wait_for(lambda: self._ending, pause_seconds)
            self._changed.wait_for(lambda: self._ending or not self._asked or self._is_other())
            return not self._ending

    def _is_other(self) -> bool:
        return bool(self._wanted) and self._wanted != self._parts.stage.plan.etag

    def _plan_of(self, answer: Answer) -> Plan | None:
        """Return the plan of an answer, None where the one in force is the newest.

        Raises:
            Retryable: The answer is no plan.
            Rejected: Likewise, `bad_plan`.
        """
        etag = answer.headers.get("etag", "")
        if answer.status == 304:
            self._wanted = self._parts.stage.plan.etag
            return None
        if answer.status != 200 or not 0 < len(etag) <= ETAG_LENGTH_MAXIMUM or not etag.isprintable():
            raise Retryable(f"the gateway answered {answer.status} to a request for the plan")
        return parse_plan(answer.body, etag)

    def _follow(self, plan: Plan, body: bytes) -> None:
        self._parts.stage.apply(plan)
        with self._changed:
            self._wanted = plan.etag
        self._keep(plan.etag, body)
        self._parts.counts.add("plan_changed")
        coarse = sorted(kind.value for kind, each in plan.kinds.items() if each.interval_ms > FULL_MS)
        logger.info(
            "plan %s: %s%d sessions",
            plan.etag.strip('"'),
            f"every 30 s of {', '.join(coarse)}, " if coarse else "",
            len(plan.sessions),
        )
        self._fetch_back(plan)

    def _fetch_back(self, plan: Plan) -> None:
        """Ship what the ring has of the time that sessions reach back over, each stretch once."""
        now_ms = self._clock.now_ms() + self._parts.correction_ms()
        due = [
            one for one in plan.sessions if one.from_ms < now_ms < one.until_ms and one.session_id not in self._fetched
        ]
        if not due:
            return
        with self._changed:
            if self._changed.wait_for(lambda: self._ending, SETTLE_SECONDS):
                return
        for session in due:
            ticks = self._ship(session, now_ms + round(SETTLE_SECONDS * 1000))
            if len(self._fetched) >= REMEMBERED_SESSIONS:
                self._fetched.clear()
            self._fetched[session.session_id] = ticks
            if ticks:
                logger.info("session %s: %d ticks from the ring are shipped", session.session_id, ticks)

    def _ship(self, session: Session, to_ms: int) -> int:
        from_ms = session.from_ms // WINDOW_MS * WINDOW_MS
        shift_ms = self._parts.correction_ms()
        ticks = 0
        for frame in self._parts.ring.read(from_ms - shift_ms, to_ms - shift_ms):
            header = frame.header
            if session.kinds is not None and header.kind not in session.kinds:
                continue
            wanted = select(frame.content, session.entities)
            if wanted is not None:
                reader = named_reader(header.source)
                self._parts.write(reader, int(header.tick_times_ms[0]), _tick(frame, wanted))
                ticks += 1
        self._parts.counts.add("ring_shipped_ticks", ticks)
        return ticks

    def _load(self) -> None:
        """Go on with the plan that was kept, if there is one."""
        try:
            etag, _, body = self._parts.file.read_bytes().partition(b"\n")
            plan = parse_plan(body, etag.decode("latin-1"))
        except FileNotFoundError:
            return
        except (OSError, Rejected) as error:
            logger.warning("the plan kept in %s is of no use: %s", self._parts.file, error)
            return
        self._parts.stage.apply(plan)

    def _keep(self, etag: str, body: bytes) -> None:
        """Keep a plan for the next start; a disk that refuses costs only that."""
        try:
            write_whole(self._parts.file, etag.encode("latin-1") + b"\n" + body)
        except OSError as error:
            self._parts.counts.add("plan_not_kept")
            logger.warning("the plan cannot be kept in %s: %s", self._parts.file, error)


def plan_path(collector_id: str, host_id: str, interval_ms: int) -> str:
    """Return the path of an agent's plan, with its query."""
    return f"/v1/agents/{quote(collector_id, safe='')}/plan?host={quote(host_id, safe='')}&interval={interval_ms}"


def _tick(frame: Frame, content: Content) -> Tick:
    header = frame.header
    _, _, suffix = header.collector_id.partition("/")
    return replace(Tick((content,), suffix, header.source), interval_ms=FULL_MS, live=True)
