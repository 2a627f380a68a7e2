"""Serve the protocols of others: Prometheus remote write and OTLP over HTTP."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from secondsight.access.identity import Identity
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.answer import JSON, Answer, refusal_answer
from secondsight.gateway.door import Door
from secondsight.gateway.foreign import otlp
from secondsight.gateway.foreign.answers import PROTOBUF, otlp_answer, otlp_error, remote_write_answer
from secondsight.gateway.foreign.bodies import Unpack, gunzip, inflate, plain, unpack, unsnappy, unzstd
from secondsight.gateway.foreign.intake import Decode, ForeignIntake, Form
from secondsight.gateway.foreign.points import Points
from secondsight.gateway.foreign.remote_write import decode_first, decode_second
from secondsight.gateway.foreign.sender import Sender
from secondsight.gateway.foreign.taken import Taken
from secondsight.gateway.frames import QUARANTINE_CODES, Verdict
from secondsight.gateway.request import Body, Request
from secondsight.selfmetrics import SelfMetrics

REMOTE_WRITE, OTLP = "remote-write", "otlp"
"""Second part of the ids of collectors, and source of their frames."""
REMOTE_WRITE_ENCODINGS: Mapping[str, Unpack] = {"snappy": unsnappy, "zstd": unzstd}
OTLP_ENCODINGS: Mapping[str, Unpack] = {
    "": plain,
    "identity": plain,
    "gzip": gunzip,
    "zstd": unzstd,
    "deflate": inflate,
}
EXPANSION = 2
"""So many times the bound of a body it may have when it is unpacked."""
FIRST_PROTO, SECOND_PROTO = "prometheus.writerequest", "io.prometheus.write.v2.request"
REMOTE_WRITE_HINT = (
    "send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
)

Authenticate = Callable[[Request], Awaitable[Identity]]


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds of one body.

    Attributes:
        received_bytes: As it comes.
        timeout_seconds: Until it is complete.
    """

    received_bytes: int
    timeout_seconds: float

    @property
    def unpacked_bytes(self) -> int:
        """Return how large it may be when it is unpacked."""
        return EXPANSION * self.received_bytes


class ForeignRoutes:
    """The routes of foreign senders. Lives in one event loop."""

    def __init__(
        self,
        intake: ForeignIntake,
        authenticate: Authenticate,
        door: Door,
        limits: BodyLimits,
        metrics: SelfMetrics,
    ) -> None:
        self._intake = intake
        self._authenticate = authenticate
        self._door = door
        self._limits = limits
        self._metrics = metrics

    async def post_remote_write(self, request: Request) -> Answer:
        """Take a request of remote write, 1.0 or 2.0."""
        identity = await self._authenticate(request)
        is_second = _is_second(request)
        encoding = _header(request, b"content-encoding") or "snappy"
        if encoding not in REMOTE_WRITE_ENCODINGS:
            return self._other_encoding(encoding)
        form = f"{SECOND_PROTO if is_second else FIRST_PROTO};{encoding}"
        return remote_write_answer(await self._take(request, identity, REMOTE_WRITE, form))

    def _other_encoding(self, encoding: str) -> Answer:
        """Return the answer that lets a sender fall back to what is taken."""
        taken = ", ".join(REMOTE_WRITE_ENCODINGS)
        error = Rejected("content_encoding", f"Content-Encoding {encoding!r} is not taken here", f"use one of: {taken}")
        self._metrics.count("gateway_refused_requests_total", code=error.code)
        answer = refusal_answer(error)
        return replace(answer, headers=((b"accept-encoding", taken.encode()),))

    async def post_otlp(self, request: Request) -> Answer:
        """Take a request of OTLP metrics, protobuf or JSON; what goes wrong is told in the type that was sent."""
        content_type = _media_type(request)
        answered = JSON if content_type == JSON.decode() else PROTOBUF
        try:
            return await self._post_otlp(request, content_type)
        except Rejected as error:
            self._metrics.count("gateway_refused_requests_total", code=error.code)
            return otlp_error(error, answered)
        except Retryable as error:
            answer = otlp_error(self._door.spread(error), answered)
            self._metrics.count("gateway_refused_requests_total", code=f"http_{answer.status}")
            return answer

    async def _post_otlp(self, request: Request, content_type: str) -> Answer:
        identity = await self._authenticate(request)
        if content_type not in _OTLP_READERS:
            message = f"the body is {content_type or 'of no type'}, not OTLP"
            raise Rejected("content_type", message, "send application/x-protobuf or application/json")
        encoding = _header(request, b"content-encoding")
        _require_encoding(encoding, OTLP_ENCODINGS)
        taken = await self._take(request, identity, OTLP, f"{content_type};{encoding}")
        return otlp_answer(taken, content_type.encode())

    def decoder(self, protocol: str, form: str) -> Decode:
        """Return what decodes bodies of a protocol in a form, which is their type and encoding.

        Raises:
            Rejected(bad_form): There is no such protocol or form.
        """
        kind, _, encoding = form.partition(";")
        limit_bytes = self._limits.unpacked_bytes
        if protocol == REMOTE_WRITE and encoding in REMOTE_WRITE_ENCODINGS and kind in (FIRST_PROTO, SECOND_PROTO):
            read = _decode_second if kind == SECOND_PROTO else _decode_first
            return partial(_unpacked, encoding, REMOTE_WRITE_ENCODINGS, limit_bytes, read)
        if protocol == OTLP and encoding in OTLP_ENCODINGS and kind in _OTLP_READERS:
            return partial(_unpacked, encoding, OTLP_ENCODINGS, limit_bytes, partial(_decode_otlp, _OTLP_READERS[kind]))
        raise Rejected("bad_form", f"nothing here reads {protocol} in the form {form!r}")

    async def _take(self, request: Request, identity: Identity, protocol: str, form: str) -> Taken:
        decode = self.decoder(protocol, form)
        entry = await self._door.open(identity)
        limits = self._limits
        with Body(self._door.pressure, limits.received_bytes, limits.timeout_seconds, entry) as body:
            content = await body.read(request)
            taken, verdict = await self._intake.take(identity, entry, Form(protocol, form), content, decode)
        self._count(protocol, taken, verdict, len(content))
        return taken

    def _count(self, protocol: str, taken: Taken, verdict: Verdict, body_bytes: int) -> None:
        count = self._metrics.count
        count("gateway_body_bytes_total", body_bytes)
        count("foreign_samples_total", taken.samples, protocol=protocol, outcome="accepted")
        for refused, number in taken.refused.items():
            outcome = "quarantined" if refused.code in QUARANTINE_CODES else "rejected"
            count("foreign_samples_total", number, protocol=protocol, outcome=outcome)
            count("foreign_refused_samples_total", number, protocol=protocol, reason=refused.code)
        others = {
            "foreign_histograms_total": taken.histograms,
            "foreign_dropped_exemplars_total": taken.exemplars,
            "foreign_skewed_samples_total": taken.skewed,
            "foreign_overflow_series_total": taken.overflowed,
        }
        for name, number in others.items():
            if number:
                count(name, number, protocol=protocol)
        for outcome, rows in verdict.rows.items():
            count("ingest_records_total", rows, outcome=outcome)
        for outcome, number in (("accepted", len(verdict.accepted)), ("duplicate", verdict.duplicate)):
            if number:
                count("gateway_frames_total", number, outcome=outcome)


def _decode_first(body: bytes, sender: Sender) -> Points:
    return decode_first(body, sender.index, sender.learn_help)


def _decode_second(body: bytes, sender: Sender) -> Points:
    return decode_second(body, sender.index)


def _decode_otlp(read: Callable[[bytes], Any], body: bytes, sender: Sender) -> Points:
    return otlp.decode(read(body), sender.index)


_OTLP_READERS = {JSON.decode(): otlp.read_json, PROTOBUF.decode(): otlp.read_protobuf}


def _unpacked(
    encoding: str,
    allowed: Mapping[str, Unpack],
    limit_bytes: int,
    read: Callable[[bytes, Sender], Points],
    body: bytes,
    sender: Sender,
) -> Points:
    return read(unpack(body, encoding, allowed, limit_bytes), sender)


def _is_second(request: Request) -> bool:
    """Tell which version a request of remote write is of.

    Raises:
        Rejected(content_type): It is neither.
    """
    media_type, *parameters = (part.strip().lower() for part in _header(request, b"content-type").split(";"))
    protos = [value.strip('"') for name, _, value in (part.partition("=") for part in parameters) if name == "proto"]
    proto = protos[0] if protos else FIRST_PROTO
    if media_type != PROTOBUF.decode() or proto not in (FIRST_PROTO, SECOND_PROTO):
        raise Rejected("content_type", f"the body is {media_type or 'of no type'}, not remote write", REMOTE_WRITE_HINT)
    return proto == SECOND_PROTO


def _require_encoding(encoding: str, allowed: Mapping[str, Unpack]) -> None:
    """Check an encoding before a body is read.

    Raises:
        Rejected(content_encoding)
    """
    unpack(b"", encoding, dict.fromkeys(allowed, plain), 0)


def _media_type(request: Request) -> str:
    return _header(request, b"content-type").partition(";")[0].strip()


def _header(request: Request, name: bytes) -> str:
    return request.headers.get(name, b"").decode("latin-1").strip().lower()
