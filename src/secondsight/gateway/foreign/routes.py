"""Serve the protocols of others: Prometheus remote write and OTLP over HTTP."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from secondsight.access.identity import Identity
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.answer import JSON, Answer
from secondsight.gateway.foreign import otlp
from secondsight.gateway.foreign.answers import PROTOBUF, otlp_answer, otlp_error, remote_write_answer
from secondsight.gateway.foreign.bodies import HTTP_ENCODINGS, Unpack, codings, unpack, unsnappy, unzstd
from secondsight.gateway.foreign.intake import Decode, ForeignIntake, Form
from secondsight.gateway.foreign.points import OTLP, REMOTE_WRITE, Points
from secondsight.gateway.foreign.remote_write import decode_first, decode_second
from secondsight.gateway.foreign.sender import Sender
from secondsight.gateway.foreign.taken import Taken
from secondsight.gateway.frames import Verdict
from secondsight.gateway.front import Front
from secondsight.gateway.records import QUARANTINE_CODES
from secondsight.gateway.request import Request

REMOTE_WRITE_ENCODINGS: Mapping[str, Unpack] = {"snappy": unsnappy, "zstd": unzstd}
FIRST_PROTO, SECOND_PROTO = "prometheus.writerequest", "io.prometheus.write.v2.request"
REMOTE_WRITE_HINT = (
    "send application/x-protobuf, with proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
)


class ForeignRoutes:
    """The routes of foreign senders. Lives in one event loop."""

    def __init__(self, intake: ForeignIntake, front: Front) -> None:
        self._intake = intake
        self._front = front

    async def post_remote_write(self, request: Request) -> Answer:
        """Take a request of remote write, 1.0 or 2.0."""
        identity = await self._front.authenticate(request)
        is_second = _is_second(request)
        encoding = codings(request.header(b"content-encoding") or "snappy", REMOTE_WRITE_ENCODINGS, 1)
        form = f"{SECOND_PROTO if is_second else FIRST_PROTO};{encoding[0]}"
        return remote_write_answer(await self._take(request, identity, REMOTE_WRITE, form))

    async def post_otlp(self, request: Request) -> Answer:
        """Take a request of OTLP metrics, protobuf or JSON; what goes wrong is told in the type that was sent."""
        content_type = request.media_type()
        answered = JSON if content_type == JSON.decode() else PROTOBUF
        try:
            return await self._post_otlp(request, content_type)
        except Rejected as error:
            self._front.metrics.count("gateway_refused_requests_total", code=error.code)
            return otlp_error(error, answered)
        except Retryable as error:
            answer = otlp_error(self._front.door.spread(error), answered)
            self._front.metrics.count("gateway_refused_requests_total", code=f"http_{answer.status}")
            return answer

    async def _post_otlp(self, request: Request, content_type: str) -> Answer:
        identity = await self._front.authenticate(request)
        if content_type not in _OTLP_READERS:
            message = f"the body is {content_type or 'of no type'}, not OTLP"
            raise Rejected("content_type", message, "send application/x-protobuf or application/json")
        encoding = codings(request.header(b"content-encoding"), HTTP_ENCODINGS)
        taken = await self._take(request, identity, OTLP, f"{content_type};{','.join(encoding)}")
        return otlp_answer(taken, content_type.encode())

    def decoder(self, protocol: str, form: str) -> Decode:
        """Return what decodes bodies of a protocol in a form, which is their type and encoding.

        Raises:
            Rejected(bad_form, content_encoding): There is no such protocol or form.
        """
        kind, _, encoding = form.partition(";")
        limit_bytes = self._front.limits.unpacked_bytes
        if protocol == REMOTE_WRITE and kind in (FIRST_PROTO, SECOND_PROTO):
            read = _decode_second if kind == SECOND_PROTO else _decode_first
            return partial(_unpacked, encoding, REMOTE_WRITE_ENCODINGS, limit_bytes, read)
        if protocol == OTLP and kind in _OTLP_READERS:
            return partial(_unpacked, encoding, HTTP_ENCODINGS, limit_bytes, partial(_decode_otlp, _OTLP_READERS[kind]))
        raise Rejected("bad_form", f"nothing here reads {protocol} in the form {form!r}")

    async def _take(self, request: Request, identity: Identity, protocol: str, form: str) -> Taken:
        decode = self.decoder(protocol, form)
        entry = await self._front.door.open(identity)
        with self._front.body(entry) as body:
            content = await body.read(request)
            taken, verdict = await self._intake.take(identity, entry, Form(protocol, form), content, decode)
        self._count(protocol, taken, verdict, len(content))
        return taken

    def _count(self, protocol: str, taken: Taken, verdict: Verdict, body_bytes: int) -> None:
        self._front.count(verdict, body_bytes)
        count = self._front.metrics.count
        count("foreign_samples_total", taken.samples, protocol=protocol, outcome="accepted")
        for refused, number in taken.refused.items():
            outcome = "quarantined" if refused.code in QUARANTINE_CODES else "rejected"
            count("foreign_samples_total", number, protocol=protocol, outcome=outcome)
            count("foreign_refused_samples_total", number, protocol=protocol, reason=refused.code)
        if taken.exemplars:
            count("foreign_dropped_exemplars_total", taken.exemplars, protocol=protocol, reason="not_kept")
        others = {
            "foreign_histograms_total": taken.histograms,
            "foreign_skewed_samples_total": taken.skewed,
            "foreign_overflow_series_total": taken.overflowed,
        }
        for name, number in others.items():
            if number:
                count(name, number, protocol=protocol)


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
    media_type, *parameters = (part.strip().lower() for part in request.header(b"content-type").split(";"))
    protos = [value.strip('"') for name, _, value in (part.partition("=") for part in parameters) if name == "proto"]
    proto = protos[0] if protos else FIRST_PROTO
    if media_type != PROTOBUF.decode() or proto not in (FIRST_PROTO, SECOND_PROTO):
        raise Rejected("content_type", f"the body is {media_type or 'of no type'}, not remote write", REMOTE_WRITE_HINT)
    return proto == SECOND_PROTO
