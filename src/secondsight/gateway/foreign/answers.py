"""Turn what became of a foreign request into the answer that its protocol has for it."""

from collections import Counter
from collections.abc import Mapping

import orjson
from google.protobuf.message import Message

from secondsight.errors import Rejected, Retryable
from secondsight.gateway.answer import JSON, Answer, refusal_answer, retry_answer
from secondsight.gateway.foreign.messages import otlp
from secondsight.gateway.foreign.points import INVALID
from secondsight.gateway.foreign.taken import Taken
from secondsight.mapping.cells import plain_text

PROTOBUF = b"application/x-protobuf"
EXEMPLARS = "exemplars_not_kept (their points are stored)"
NAMES_SHOWN = 5
NAME_CHARACTERS, WORDS_CHARACTERS = 200, 2000
REASONS_SHOWN = 20
REASONS: Mapping[str, str] = {
    "entities_limit": "one sender speaks of too many entities",
    "host_not_allowed": "the token may not write of this host",
    "label_reading": "a label that names a part holds a reading, which would be a new part each time",
    "label_too_long": "a label that names a part is too long",
    "no_histogram": "the catalogue has no histogram of this name",
    "no_identity": "no label names the host, or the GPU or other thing that it is of",
    "parse": "the catalogue has a histogram of this name, and this is no bucket, sum or count of one",
    "summary_quantile": "quantiles that others have computed cannot be put together",
    "unknown_metric": "the catalogue has no such name: register it in a catalogue file, or drop it at the sender",
}
"""What a person should read about a code where nothing more exact is known."""


def remote_write_answer(taken: Taken) -> Answer:
    """Return the answer of remote write: 204, or 400 where something was invalid; the rest is stored either way.

    Headers count what was stored. A request with series that this catalogue does not have is answered as a good one:
    its sender can do nothing about it, and who operates the platform sees them in the dead letters.
    """
    headers = (
        (b"x-prometheus-remote-write-samples-written", str(taken.samples).encode()),
        (b"x-prometheus-remote-write-histograms-written", str(taken.histograms).encode()),
        (b"x-prometheus-remote-write-exemplars-written", b"0"),
    )
    invalid = [refused for refused in taken.refused if refused.code in INVALID]
    if not invalid:
        return Answer(204, headers=headers)
    text = f"stored {taken.samples} samples and {taken.histograms} histograms; refused: {refusals_text(taken)}"
    error = {
        "code": invalid[0].code,
        "message": text,
        "hint": "what was refused would be refused again; nothing needs to be sent again",
        "stored": {"samples": taken.samples, "histograms": taken.histograms},
        "refused": _listed(taken),
    }
    return Answer(400, orjson.dumps({"error": error}), headers=headers)


def otlp_answer(taken: Taken, content_type: bytes) -> Answer:
    """Return the answer of OTLP: 200, with what was refused or left out as a partial success.

    Exemplars are no data points: where they alone are left out none is rejected, and the message is a warning.
    """
    response = otlp("ExportResponse")()
    rejected = taken.refused.total()
    left_out = [f"{taken.exemplars} {EXEMPLARS}"] if taken.exemplars else []
    text = "; ".join([*([refusals_text(taken)] if rejected else []), *left_out])
    if text:
        response.partial_success.rejected_data_points = rejected
        response.partial_success.error_message = text
    if content_type == JSON:
        partial = {"rejectedDataPoints": str(rejected), "errorMessage": text}
        return Answer(200, orjson.dumps({"partialSuccess": partial} if text else {}))
    return Answer(200, response.SerializeToString(), content_type)


def otlp_error(error: Rejected | Retryable, content_type: bytes) -> Answer:
    """Return the answer to an OTLP request of which nothing was stored: an HTTP status, and a `Status` in the body."""
    answer = refusal_answer(error) if isinstance(error, Rejected) else retry_answer(error)
    told = f"{error}; {error.hint}" if isinstance(error, Rejected) and error.hint else str(error)
    if content_type == JSON:
        body = orjson.dumps({"code": 3 if isinstance(error, Rejected) else 14, "message": told})
        return Answer(answer.status, body, JSON, answer.headers, answer.refused_caller)
    status: Message = otlp("Status")(code=3 if isinstance(error, Rejected) else 14, message=told)
    return Answer(answer.status, status.SerializeToString(), PROTOBUF, answer.headers, answer.refused_caller)


def refusals_text(taken: Taken) -> str:
    """Return what was refused and why, for a person."""
    parts = []
    for code, count in by_code(taken).most_common(REASONS_SHOWN):
        names = [refused.metric for refused in taken.refused if refused.code == code and refused.metric]
        shown = ", ".join(name[:NAME_CHARACTERS] for name in names[:NAMES_SHOWN])
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        what = taken.details.get(code, "") or ": ".join(filter(None, (REASONS.get(code, ""), f"{shown}{more}")))
        parts.append(f"{count} {code}" + (f" ({plain_text(what, WORDS_CHARACTERS)})" if what else ""))
    return "; ".join(parts)


def by_code(taken: Taken) -> Counter[str]:
    """Return how many points each reason refused."""
    found: Counter[str] = Counter()
    for refused, count in taken.refused.items():
        found[refused.code] += count
    return found


def _listed(taken: Taken) -> list[Mapping[str, object]]:
    return [
        {"code": refused.code, "metric": refused.metric, "count": count}
        for refused, count in taken.refused.most_common(REASONS_SHOWN)
    ]
