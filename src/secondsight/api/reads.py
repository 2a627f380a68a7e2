"""Answer reads without finding out for each request anew what their functions take.

FastAPI describes and routes them and answers all other requests. A read is a GET whose function takes the services, a
scope, and besides only texts of the path, headers, and one model of query parameters. Where each of these comes from is
known from the start, and who asks and what that one may see is remembered, so that a read changes threads once.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any, get_args, get_origin

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.params import Header, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from secondsight.access.scope import Scope
from secondsight.api.parameters import Parameters
from secondsight.api.services import Reader, Services, Shared, admitted, identity_of, read_scope

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_turn = asynccontextmanager(admitted)


@dataclass(frozen=True, slots=True)
class Read:
    """A request whose sender is known and has a turn."""

    request: Request
    services: Services
    scope: Scope


Source = Callable[[Read], Any]


@dataclass(frozen=True, slots=True)
class Plain:
    """A function that reads, and where each of its arguments comes from."""

    function: Callable[..., Any]
    sources: Mapping[str, Source]
    takes_query: bool


class ReadRoute(APIRoute):
    """A route that answers in this way where its function is a read, else as FastAPI does."""

    def get_route_handler(self) -> Handler:
        """Return what answers requests."""
        plain = plain_of(self)
        return super().get_route_handler() if plain is None else partial(_answer, plain)


def plain_of(route: APIRoute) -> Plain | None:
    """Return how a read is answered; None where the function of a route is none."""
    parameters = signature(route.endpoint).parameters
    is_plain = route.methods == {"GET"} and route.status_code is None and not route.dependencies
    if not is_plain or not any(one.annotation == Reader for one in parameters.values()):
        return None
    found = {name: _source(one, route) for name, one in parameters.items()}
    sources = {name: source for name, source in found.items() if source is not None}
    takes_query = any(_model_of(one.annotation) for one in parameters.values())
    return Plain(route.endpoint, sources, takes_query) if len(sources) == len(found) else None


def _source(parameter: Parameter, route: APIRoute) -> Source | None:
    name, hint = parameter.name, parameter.annotation
    if hint == Shared:
        return lambda read: read.services
    if hint == Reader:
        return lambda read: read.scope
    if hint is str and name in route.param_convertors:
        return lambda read: read.request.path_params[name]
    if any(isinstance(one, Header) for one in get_args(hint)) and get_args(hint)[0] is str:
        return lambda read: read.request.headers.get(name.replace("_", "-"), parameter.default)
    model = _model_of(hint)
    return None if model is None else partial(_parameters, model, frozenset(_lists(model)))


def _model_of(hint: Any) -> type[BaseModel] | None:
    """Return the model of query parameters that an argument is, None where it is something else."""
    kind, *told = get_args(hint) or (None,)
    is_query = any(isinstance(one, Query) for one in told)
    return kind if is_query and isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _lists(model: type[BaseModel]) -> list[str]:
    """Return the query parameters of a model that may be given several times."""
    return [field.alias or name for name, field in model.model_fields.items() if get_origin(field.annotation) is list]


def _parameters(model: type[BaseModel], lists: frozenset[str], read: Read) -> BaseModel:
    given: dict[str, Any] = {}
    for name, value in read.request.query_params.multi_items():
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise _invalid(name, "Given more than once: separate values by commas, where several may be named")
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        told = [{**one, "loc": ("query", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(told) from None


def _invalid(name: str, why: str) -> RequestValidationError:
    return RequestValidationError([{"type": "value_error", "loc": ("query", name), "msg": why}])


async def _answer(plain: Plain, request: Request) -> Response:
    services: Services = request.app.state.services
    identity = await identity_of(request, services)
    async with _turn(request, identity, services):
        read = Read(request, services, await read_scope(identity, services, None))
        if not plain.takes_query:
            _parameters(Parameters, frozenset(), read)
        arguments = {name: source(read) for name, source in plain.sources.items()}
        return await run_in_threadpool(_answered, plain.function, arguments)


def _answered(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Response:
    found = function(**arguments)
    if isinstance(found, Response):
        return found
    return Response(found.model_dump_json(by_alias=True), media_type="application/json")
