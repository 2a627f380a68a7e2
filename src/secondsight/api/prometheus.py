"""Serve Prometheus' own read API over the catalogue, so that its dashboards and tools read this store."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qs

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Request, Response

from secondsight.api.services import Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.promql.answer import instant, ranged
from secondsight.promql.evaluate import evaluate, selector
from secondsight.promql.matrix import NAME, Labels
from secondsight.promql.names import names_of, reading_of
from secondsight.promql.read import Reader as SeriesReader
from secondsight.promql.read import Sources, Steps
from secondsight.query.times import UNITS_MS, parse_time
from secondsight.release import VERSION

BODY_MAXIMUM = 65_536
STEPS_MAXIMUM = 11_000
SERIES_BACK_MS = 3_600_000
_DURATION = re.compile(r"(?:\d{1,9}(?:ms|[smhdw]))+", re.ASCII)
_PIECE = re.compile(r"(\d+)(ms|[smhdw])", re.ASCII)

router = APIRouter(prefix="/api/v1", tags=["prometheus"])


@dataclass(frozen=True, slots=True)
class Asked:
    """Parameters of a request, from its address and its form."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Return one parameter, "" where it is not given."""
        return next(iter(self.fields.get(name, ())), "")

    def needed(self, name: str) -> str:
        """Return one parameter that has to be given."""
        text = self.text(name)
        if not text:
            raise Rejected("promql_parse", f"the parameter {name} is missing")
        return text

    def time_ms(self, name: str, default_ms: int) -> int:
        """Return an instant in epoch ms, given as RFC 3339 or as seconds."""
        text = self.text(name)
        if not text:
            return default_ms
        return parse_time(str(round(float(text) * 1000)) if _is_number(text) else text, default_ms)


async def asked_of(request: Request) -> Asked:
    """Return what a request asks, and keep it for the record."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_MAXIMUM:
            raise Rejected("promql_parse", "the form is too long", f"send {BODY_MAXIMUM} bytes at most")
    written = [request.url.query, body.decode("utf-8", "replace")]
    try:
        form = parse_qs("&".join(filter(None, written)), keep_blank_values=True, max_num_fields=1_000)
    except ValueError as error:
        raise Rejected("promql_parse", f"the form cannot be read: {error}") from None
    request.state.asked = "&".join(filter(None, written))
    return Asked(form)


Form = Annotated[Asked, Depends(asked_of)]


def _described(*names: str) -> dict[str, Any]:
    """Return how the parameters of a route are described; they come in the address or in a form."""
    listed = [
        {"name": name.rstrip("!"), "in": "query", "required": name.endswith("!"), "schema": {"type": "string"}}
        for name in names
    ]
    return {"parameters": listed}


def _both(path: str, *names: str) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """Register a route for GET and for POST, as Prometheus' clients use them."""

    def register(function: Callable[..., Response]) -> Callable[..., Response]:
        extra = _described(*names)
        router.get(path, openapi_extra=extra)(function)
        router.post(path, openapi_extra={}, name=f"{function.__name__}_by_form")(function)
        return function

    return register


@_both("/query", "query!", "time")
def query(services: Shared, scope: Reader, asked: Form) -> Response:
    """Evaluate an expression at one instant, by default now."""
    at_ms = asked.time_ms("time", services.clock.now_ms())
    steps = Steps(np.array([at_ms], np.int64), 0)
    value, warnings = evaluate(asked.needed("query"), steps, _sources(services), scope)
    return _success(instant(value, steps.times_ms), warnings)


@_both("/query_range", "query!", "start!", "end!", "step!")
def query_range(services: Shared, scope: Reader, asked: Form) -> Response:
    """Evaluate an expression at every step of a range."""
    asked.needed("start"), asked.needed("end")
    start_ms, end_ms, step_ms = asked.time_ms("start", 0), asked.time_ms("end", 0), _step_ms(asked.needed("step"))
    if end_ms < start_ms:
        raise Rejected("bad_time", "end is before start", "swap them")
    if (end_ms - start_ms) // step_ms >= STEPS_MAXIMUM:
        raise Rejected("range_too_wide", f"the range has over {STEPS_MAXIMUM} steps", "use a wider step")
    steps = Steps(np.arange(start_ms, end_ms + 1, step_ms, dtype=np.int64), step_ms)
    value, warnings = evaluate(asked.needed("query"), steps, _sources(services), scope)
    return _success(ranged(value, steps.times_ms), warnings)


@_both("/series", "match[]!", "start", "end")
def series(services: Shared, scope: Reader, asked: Form) -> Response:
    """Return the labels of the series that selectors name."""
    if not asked.fields.get("match[]"):
        raise Rejected("promql_parse", "the parameter match[] is missing")
    return _success(_series(services, scope, asked))


@_both("/labels", "match[]", "start", "end")
def labels(services: Shared, scope: Reader, asked: Form) -> Response:
    """Return the names of labels, of some series or of all."""
    return _success(sorted({name for one in _series(services, scope, asked) for name in one}))


@router.get("/label/{name}/values", openapi_extra=_described("match[]", "start", "end"))
def label_values(name: str, services: Shared, scope: Reader, asked: Form) -> Response:
    """Return the values of a label, of some series or of all."""
    if name == NAME and not asked.fields.get("match[]"):
        return _success(names_of(services.catalog, scope.shows))
    found = {one[name] for one in _series(services, scope, asked) if name in one}
    return _success(sorted(found))


@router.get("/metadata", openapi_extra=_described("metric", "limit"))
def metadata(services: Shared, scope: Reader, asked: Form) -> Response:
    """Return type, unit and meaning of metrics."""
    wanted, limit = asked.text("metric"), asked.text("limit")
    names = [name for name in names_of(services.catalog, scope.shows) if wanted in ("", name)]
    if limit and not (limit.isascii() and limit.isdecimal() and len(limit) < 10):
        raise Rejected("promql_parse", "the parameter limit is no whole number")
    kept = names[: int(limit)] if limit else names
    readings = [reading_of(name, services.catalog) for name in kept]
    described = {
        one.name: [{"type": one.type, "help": one.metric.description, "unit": _unit(one.factor, one.metric.unit)}]
        for one in readings
    }
    return _success(described)


@router.get("/status/buildinfo")
def build_info(_: Reader) -> Response:
    """Return what Grafana asks for to learn which functions there are."""
    return _success({"version": VERSION, "application": "secondsight", "features": {}})


def _sources(services: Services) -> Sources:
    return Sources(services.runner, services.inventory, services.catalog)


def _series(services: Services, scope: Reader, asked: Asked) -> list[Labels]:
    now_ms = services.clock.now_ms()
    to_ms = asked.time_ms("end", now_ms)
    from_ms = asked.time_ms("start", to_ms - SERIES_BACK_MS)
    steps = Steps(np.array([to_ms], np.int64), 0)
    reader = SeriesReader(_sources(services), scope, steps, frozenset())
    texts = asked.fields.get("match[]") or _one_of_each(services, scope)
    found: dict[tuple[tuple[str, str], ...], Labels] = {}
    for text in texts:
        name, matchers = selector(text)
        for reading in reader.readings(name, matchers):
            if scope.shows(reading.metric.name):
                for one in reader.series(reading, matchers, from_ms, to_ms + 1):
                    found[tuple(one.items())] = one
    return list(found.values())


def _one_of_each(services: Services, scope: Reader) -> list[str]:
    """Return a name for every set of labels that there is: one metric of each kind, and one of the exporter's names."""
    catalog = services.catalog
    firsts: dict[object, str] = {}
    for name in names_of(catalog, scope.shows):
        reading = reading_of(name, catalog)
        firsts.setdefault((reading.metric.kind, reading.is_dcgm, reading.metric.labels), name)
    return list(firsts.values())


def _step_ms(text: str) -> int:
    if _is_number(text):
        step_ms = round(float(text) * 1000) if float(text) < 10**9 else 0
    elif _DURATION.fullmatch(text):
        step_ms = sum(int(number) * UNITS_MS[unit] for number, unit in _PIECE.findall(text))
    else:
        step_ms = 0
    if step_ms < 1_000:
        raise Rejected("bad_resolution", f"step {text[:40]!r} is not a second or more", "use step=15s")
    return step_ms


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?|\.\d+", text, re.ASCII) is not None


def _unit(factor: float, unit: str) -> str:
    return unit if factor == 1.0 else ""


def _success(data: Any, warnings: Sequence[str] = ()) -> Response:
    body = {"status": "success", "data": data} | ({"warnings": list(warnings)} if warnings else {})
    return Response(orjson.dumps(body), media_type="application/json")
