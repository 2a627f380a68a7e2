"""Serve the gateway's requests: one small ASGI application without a framework, as every sample passes here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from sqlalchemy import Engine, text

from secondsight.access.audit import write_entries
from secondsight.access.definitions import get_definitions
from secondsight.access.enrolment import Terms
from secondsight.access.eventids import Claim, EventIds, Held
from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import reading
from secondsight.access.tokens import Authenticator
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import LogRecord, LogWriter
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.admission import MS_PER_DAY, MS_PER_SECOND, Bounds
from secondsight.gateway.answer import JSON, NO_CONTENT, Answer, WrongMethod, fault_answer, refusal_answer, retry_answer
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.connection import CALLER, Caller, Origin
from secondsight.gateway.door import make_door
from secondsight.gateway.durations import Durations
from secondsight.gateway.enrol import BODY_BYTES as ENROL_BYTES
from secondsight.gateway.enrol import Attempts, Enrolments, Rate
from secondsight.gateway.events.intake import EventIntake
from secondsight.gateway.events.routes import EventRoutes
from secondsight.gateway.foreign.intake import ForeignIntake
from secondsight.gateway.foreign.routes import ForeignRoutes
from secondsight.gateway.foreign.sender import Settings as ForeignSettings
from secondsight.gateway.frames import Verdict, answer_body, require_host
from secondsight.gateway.front import BodyLimits, Front
from secondsight.gateway.gather import Gatherer
from secondsight.gateway.known import Definition, DefinitionStore
from secondsight.gateway.native import CONTENT_TYPE, Intake, SchemaUnknown, Sinks
from secondsight.gateway.plan import Asker, InForce, Plans, Wish, agent_id
from secondsight.gateway.policy import Policies, PolicyReads
from secondsight.gateway.pressure import Gauges
from secondsight.gateway.records import Pair
from secondsight.gateway.refusals import Refusals
from secondsight.gateway.replay.judge import Judge
from secondsight.gateway.replay.replays import Replays, Ways
from secondsight.gateway.replay.routes import Asking, ReplayRoutes
from secondsight.gateway.request import Body, Disconnected, Receive, Request, Send
from secondsight.gateway.tallies import tallies
from secondsight.gateway.tls import require_named
from secondsight.gateway.whole import KnownHead, Run, answer_bytes
from secondsight.selfmetrics import SelfMetrics
from secondsight.wire.header import MAX_ID_LENGTH
from secondsight.wire.schema import is_text

APPEND_BYTES = 32 << 20
BATCH_ITEMS = 500
LOG_EVERY_SECONDS = 10.0
MS_PER_HOUR = 3_600_000
PLAN_HEADER = b"x-secondsight-plan"
PRIORITY_HEADER, URGENT = b"x-secondsight-priority", b"0"
"""By which a sender says that all frames of a body are of class P0."""

NOT_FOUND_HINT = "remote write goes to /api/v1/write, OTLP metrics to /v1/metrics, events to /v1/events"

_log = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Answer]]
RecordAt = Callable[[int, int], LogRecord | None]


@dataclass(frozen=True, slots=True)
class Stores:
    """What a gateway keeps things in. It closes them when it stops.

    Attributes:
        backlog_bytes: Returns how much of the log the processor has not finished; may block.
        disk_bytes: Returns (free, in all) of the log's disk, None where it has none; may block.
        record_at: Returns the record at (partition, offset) of the topic `ingest`, None where it is gone; may block.
    """

    metadata: Engine
    ingest: LogWriter
    definitions: LogWriter
    backlog_bytes: Callable[[], int]
    disk_bytes: Callable[[], tuple[int, int] | None] = lambda: None
    record_at: RecordAt = lambda _partition, _offset: None


class Gateway:
    """The ASGI application. Lives in one event loop.

    Attributes:
        connections: By tenant, as the server last counted them.
    """

    def __init__(self, config: GatewayConfig, stores: Stores, catalog: Catalog, clock: Clock) -> None:
        self._config = config
        self._stores = stores
        self._clock = clock
        self._catalog = catalog
        self.selfmetrics = SelfMetrics()
        self._durations = Durations()
        self._authenticator = Authenticator(stores.metadata, clock)
        self._enrolments = Enrolments(stores.metadata, self._authenticator, _terms(config), clock)
        self._attempts = Attempts(Rate(config.enrol_burst, config.enrol_per_second), clock)
        self.door = make_door(config, Gauges(stores.backlog_bytes, stores.disk_bytes), clock)
        body_limits = BodyLimits(config.body_bytes, config.body_timeout_seconds)
        self._front = Front(self._collector, self.door, body_limits, self.selfmetrics)
        definitions = DefinitionStore(stores.metadata, stores.definitions, catalog, clock)
        self._policies = Policies(stores.metadata, catalog, clock, config.interval_ms)
        self._wait_logged: float | None = None
        self.connections: Mapping[str, int] = {}
        self._plans = Plans(stores.metadata, stores.ingest, clock, self._policies, config.interval_ms)
        self._refusals = Refusals(partial(write_entries, stores.metadata), clock.now_ms)
        weight = self.door.quotas.weight
        self._records = Gatherer[Pair, None]("append", stores.ingest.append, _pair_bytes, APPEND_BYTES, weight)
        self._definitions = Gatherer[Definition, None](
            "definitions", definitions.store, _blob_bytes, APPEND_BYTES, weight
        )
        self._finds = Gatherer[bytes, dict[bytes, Definition]]("find", definitions.load, _one, BATCH_ITEMS, weight)
        self._wishes = Gatherer[Wish, InForce]("plans", self._plans.announce, _one, BATCH_ITEMS, weight)
        self._policy_reads = PolicyReads(self._policies, lambda tables: self.door.quotas.take(tables.quotas))
        claim = EventIds(stores.metadata, clock).claim
        self._event_ids = Gatherer[Claim, dict[bytes, Held]]("event ids", claim, _one, BATCH_ITEMS)
        bounds = Bounds(round(config.future_seconds * MS_PER_SECOND), round(config.past_days * MS_PER_DAY))
        sinks = Sinks(self._records.submit, self._definitions.submit, self._finds.submit, self._wishes.submit)
        self._intake = Intake(self._plans, sinks, self.door, bounds, catalog, clock)
        self._foreign = self._routes(bounds, catalog)

    def _routes(self, bounds: Bounds, catalog: Catalog) -> dict[str, tuple[str, Handler]]:
        """Return the routes of what is no frame, and of what is sent again: path -> name, handler of its POST."""
        config, stores, clock = self._config, self._stores, self._clock
        settings, series = _foreign_settings(config, bounds), config.foreign_series_in_all
        points = self._points = ForeignIntake(self._intake, catalog, settings, self.door, clock, series)
        events = EventIntake(self._intake, self._event_ids.submit, catalog, bounds, clock)
        foreign = ForeignRoutes(points, self._front)
        event_routes = EventRoutes(events, self._front)
        ways = Ways(self._records.submit, stores.record_at, events, points, foreign.decoder)
        judge = Judge(catalog, bounds, partial(get_definitions, stores.metadata))
        asking = Asking(self._authenticator, stores.metadata, self.door.pressure)
        replays = ReplayRoutes(Replays(ways, judge, self.door, clock), asking, clock, self.selfmetrics)
        return {
            "/api/v1/write": ("remote_write", foreign.post_remote_write),
            "/v1/metrics": ("otlp", foreign.post_otlp),
            "/v1/events": ("events", event_routes.post_events),
            "/v1/deadletters/replay": ("replay", replays.post_replay),
            "/v1/log/replay": ("replay_log", replays.post_records),
        }

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or live through the server's start and stop."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    def note_connections(self, counts: Mapping[str, int]) -> None:
        """Take how many connections each tenant has."""
        self.connections = counts

    def renew(self) -> None:
        """Go by what the catalogue has now, which was renewed in place."""
        self._policies.renew(self._catalog)
        self._intake.renew()
        self._points.renew()

    async def close(self) -> None:
        """Finish what was taken in and close the stores; may be called twice."""
        for gatherer in (self._finds, self._definitions, self._wishes, self._records, self._event_ids):
            await gatherer.close()
        await self._policy_reads.close()
        await self._refusals.close()
        self.door.turns.close()
        self._stores.ingest.close()
        self._stores.definitions.close()
        self._stores.metadata.dispose()

    def post_whole(self, head: KnownHead, body: bytes, origin: Origin, answered: Callable[[bytes], None]) -> None:
        """Take a post of frames that is there as a whole; `answered` gets the bytes of its answer."""
        at = (self._clock.now_ms(), origin.address, origin.caller)
        Run(self._serve_whole(Request("POST", "/v1/frames", b"", head.headers, _no_more, *at, body)), answered)

    async def _serve_whole(self, request: Request) -> bytes:
        answer = await self._respond(request, "frames", self._post_frames)
        return b"" if answer is None else answer_bytes(answer, request.received_ms, self._clock.now_ms())

    async def _serve(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        query = scope["query_string"]
        address = (scope.get("client") or ("",))[0]
        caller = scope["extensions"][CALLER][CALLER] if "extensions" in scope else Caller()
        now_ms = self._clock.now_ms()
        request = Request(scope["method"], scope["path"], query, headers, receive, now_ms, address, caller)
        route, handler = self._route(request)
        answer = await self._respond(request, route, handler)
        if answer is not None:
            await _send(send, answer, request.received_ms, self._clock.now_ms())

    async def _respond(self, request: Request, route: str, handler: Handler) -> Answer | None:
        """Return the answer to a request, observed; None where nobody waits for it."""
        started_seconds = self._clock.monotonic_seconds()
        answer = await self._answer(request, handler)
        if answer is None:
            return None
        if answer.refused_caller:
            self._note_refusal(request, route, answer.refused_caller)
        self._durations.observe(route, answer.status, self._clock.monotonic_seconds() - started_seconds)
        return answer

    def _route(self, request: Request) -> tuple[str, Callable[[Request], Awaitable[Answer]]]:
        """Return a route's name and handler; HEAD is answered as GET is, and the server leaves the body out."""
        if request.path == "/v1/frames":
            return "frames", self._post_frames if request.method == "POST" else partial(_wrong_method, "POST")
        if request.path in self._foreign:
            route, handler = self._foreign[request.path]
            return route, handler if request.method == "POST" else partial(_wrong_method, "POST")
        reads = request.method in {"GET", "HEAD"}
        if request.path.startswith("/v1/agents/") and request.path.endswith("/plan"):
            return "plan", self._get_plan if reads else partial(_wrong_method, "GET, HEAD")
        if request.path == "/v1/agents/enroll":
            return "enroll", self._post_enroll if request.method == "POST" else partial(_wrong_method, "POST")
        own = {"/healthz": self._get_health, "/readyz": self._get_readiness, "/metrics": self._get_metrics}
        if request.path in own:
            return request.path[1:], own[request.path] if reads else partial(_wrong_method, "GET, HEAD")
        return "other", _not_found

    async def _answer(self, request: Request, handler: Callable[[Request], Awaitable[Answer]]) -> Answer | None:
        """Return the answer to a request, None where nobody waits for it: the boundary that counts every error."""
        try:
            return await handler(request)
        except Disconnected:
            self.selfmetrics.count("gateway_refused_requests_total", code="disconnected")
            return None
        except SchemaUnknown as error:
            self.selfmetrics.count("gateway_refused_requests_total", code=error.code)
            return refusal_answer(error, hashes=error.hashes)
        except Rejected as error:
            self.selfmetrics.count("gateway_refused_requests_total", code=error.code)
            return refusal_answer(error)
        except Retryable as error:
            answer = retry_answer(self.door.spread(error))
            self.selfmetrics.count("gateway_refused_requests_total", code=f"http_{answer.status}")
            self._note_wait(error)
            return answer
        except Exception:  # noqa: BLE001 - the edge: counted, logged, and the next request is served
            self.selfmetrics.count("gateway_refused_requests_total", code="internal")
            _log.exception("a request met a fault")
            return fault_answer()

    def _note_wait(self, error: Retryable) -> None:
        """Log that senders are told to come back; of many at once the first one."""
        now = self._clock.monotonic_seconds()
        if self._wait_logged is None or now - self._wait_logged >= LOG_EVERY_SECONDS:
            self._wait_logged = now
            _log.warning("senders are asked to come back, and counted on /metrics; the first of them as %s", error)

    def _note_refusal(self, request: Request, route: str, code: str) -> None:
        try:
            identity = self._authenticator.remembered_digest(request.digest())
        except Rejected:
            identity = None
        subject, tenant_id = (identity.subject, identity.tenant_id) if identity else (f"address:{request.address}", "")
        self._refusals.note(subject, tenant_id, code, route)

    async def _collector(self, request: Request) -> Identity:
        digest = request.digest()
        identity = self._authenticator.remembered_digest(digest)
        if identity is None:
            identity = await asyncio.to_thread(self._authenticator.authenticate_digest, digest)
        if self._policies.is_stale:
            await self._policy_reads.refresh()
        if identity.role is not Role.COLLECTOR:
            message = f"the token {identity.name!r} has the role {identity.role} and cannot write"
            raise Rejected("role_cannot_write", message, "use a token of the role collector")
        request.caller.tenant_id = identity.tenant_id
        if request.caller.names is not None:
            require_named(request.caller.names, identity)
        return identity

    async def _post_frames(self, request: Request) -> Answer:
        identity = await self._collector(request)
        request.require_content(CONTENT_TYPE)
        entry = await self.door.open(identity, urgent=request.headers.get(PRIORITY_HEADER) == URGENT)
        with self._front.body(entry) as body:
            content = await body.read(request)
            verdict = await self._intake.take(identity, entry, content)
        self._front.count(verdict, len(content))
        answer = answer_body(verdict, request.received_ms, self._clock.now_ms())
        return Answer(200, answer, headers=self._plan_header(identity, verdict))

    def _plan_header(self, identity: Identity, verdict: Verdict) -> tuple[tuple[bytes, bytes], ...]:
        """Tell an agent which plan it is to have; of a relay's many agents the first."""
        if not verdict.accepted:
            return ()
        return ((PLAN_HEADER, self._plans.etag(identity, verdict.accepted[0].host_id).encode()),)

    async def _post_enroll(self, request: Request) -> Answer:
        self._attempts.take(request.address)
        request.require_content(JSON)
        with Body(self.door.pressure, ENROL_BYTES, self._config.body_timeout_seconds) as body:
            content = await body.read(request)
        answer = await asyncio.to_thread(self._enrolments.enrol, request.bearer(), content, request.caller.names)
        return Answer(200, answer, headers=((b"cache-control", b"no-store"),))

    async def _get_plan(self, request: Request) -> Answer:
        identity = await self._collector(request)
        collector_id = request.path.removeprefix("/v1/agents/").removesuffix("/plan")
        if not identity.allows_collector(collector_id) or not is_text(collector_id, MAX_ID_LENGTH):
            message = f"the token {identity.name!r} may not read the plan of {collector_id!r}"
            raise Rejected("collector_not_allowed", message, "use the token of this collector")
        host_id = parse_qs(request.query.decode("latin-1")).get("host", [agent_id(collector_id)])[0]
        if not is_text(host_id, MAX_ID_LENGTH):
            raise Rejected("bad_host", f"a host is a text of at most {MAX_ID_LENGTH} characters")
        require_host(identity, collector_id, host_id)
        asker = Asker(identity, collector_id, host_id, _interval_ms(request))
        await self._policy_reads.read()
        wishes = self._plans.handed_out(asker)
        if wishes:
            self._plans.settle(wishes, await self._wishes.submit(wishes))
        plan = self._plans.plan(asker)
        headers = ((b"etag", plan.etag.encode()), (PLAN_HEADER, plan.etag.encode()))
        if request.headers.get(b"if-none-match", b"").removeprefix(b"W/") == plan.etag.encode():
            return Answer(304, headers=headers)
        return Answer(200, plan.body, headers=headers)

    async def _get_health(self, _request: Request) -> Answer:
        return Answer(200, b'{"status":"ok"}')

    async def _get_readiness(self, _request: Request) -> Answer:
        await asyncio.to_thread(_check_metadata, self._stores.metadata)
        return Answer(200, b'{"status":"ready"}')

    async def _get_metrics(self, _request: Request) -> Answer:
        body = (
            self.selfmetrics.render()
            + tallies(self.door, self.connections, self._clock.monotonic_seconds()).render()
            + self._durations.render()
        )
        return Answer(200, body.encode(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _terms(config: GatewayConfig) -> Terms:
    return Terms(round(config.agent_token_days * MS_PER_DAY), round(config.agent_token_grace_hours * MS_PER_HOUR))


def _foreign_settings(config: GatewayConfig, bounds: Bounds) -> ForeignSettings:
    return ForeignSettings(bounds.future_ms, bounds.past_ms, config.foreign_series, config.foreign_host_labels)


async def _send(send: Send, answer: Answer, received_ms: int, sent_ms: int) -> None:
    length = str(len(answer.body)).encode()
    about_body: Sequence[tuple[bytes, bytes]] = ((b"content-type", answer.content_type), (b"content-length", length))
    headers: Sequence[tuple[bytes, bytes]] = (
        *(() if answer.status == NO_CONTENT else about_body),
        (b"x-secondsight-received-ms", str(received_ms).encode()),
        (b"x-secondsight-sent-ms", str(sent_ms).encode()),
        *answer.headers,
    )
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _no_more() -> MutableMapping[str, Any]:
    """Tell that nothing more of a request comes."""
    return {"type": "http.disconnect"}


async def _wrong_method(allowed: str, request: Request) -> Answer:
    raise WrongMethod(request.method, request.path, allowed)


async def _not_found(request: Request) -> Answer:
    raise Rejected("not_found", f"there is no {request.path}", NOT_FOUND_HINT)


def _interval_ms(request: Request) -> int:
    """Return the cadence that an agent says it is set to, 0 where it says none."""
    told = parse_qs(request.query.decode("latin-1")).get("interval", [""])[0]
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 10 else 0


def _check_metadata(metadata: Engine) -> None:
    with reading(metadata) as connection:
        connection.execute(text("SELECT 1"))


def _pair_bytes(pair: Pair) -> int:
    return len(pair[1])


def _blob_bytes(definition: Definition) -> int:
    return len(definition.blob)


def _one(_item: object) -> int:
    return 1
