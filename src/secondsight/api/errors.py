"""Turn errors into answers: the right status, a code, a message that is safe to show, and nothing else."""

import json
import logging
import math
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from secondsight.access.debug import OverBudget
from secondsight.api.admission import Throttled
from secondsight.errors import Rejected, Retryable
from secondsight.guard.budget import OverQuota
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.failures import QueryLimited

RETRY_AFTER_SECONDS = 1.0
PROMETHEUS_PATHS = "/api/v1/"
"""Where errors are told as Prometheus tells them."""

STATUS: Mapping[str, HTTPStatus] = {
    "token_missing": HTTPStatus.UNAUTHORIZED,
    "token_invalid": HTTPStatus.UNAUTHORIZED,
    "token_expired": HTTPStatus.UNAUTHORIZED,
    "session_ended": HTTPStatus.UNAUTHORIZED,
    "no_grant": HTTPStatus.FORBIDDEN,
    "role_cannot_read": HTTPStatus.FORBIDDEN,
    "forbidden_metric": HTTPStatus.FORBIDDEN,
    "role_cannot_operate": HTTPStatus.FORBIDDEN,
    "sign_in_refused": HTTPStatus.FORBIDDEN,
    "role_cannot_administer": HTTPStatus.FORBIDDEN,
    "tenant_exists": HTTPStatus.CONFLICT,
    "not_found": HTTPStatus.NOT_FOUND,
    "debug_budget": HTTPStatus.TOO_MANY_REQUESTS,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "query_budget": HTTPStatus.TOO_MANY_REQUESTS,
    "too_many_queries": HTTPStatus.TOO_MANY_REQUESTS,
    "too_many_streams": HTTPStatus.TOO_MANY_REQUESTS,
    "too_many_at_once": HTTPStatus.TOO_MANY_REQUESTS,
    "daily_quota": HTTPStatus.TOO_MANY_REQUESTS,
    "ambiguous_target": HTTPStatus.UNPROCESSABLE_ENTITY,
    "range_too_wide": HTTPStatus.UNPROCESSABLE_ENTITY,
    "too_many_series": HTTPStatus.UNPROCESSABLE_ENTITY,
    "query_too_expensive": HTTPStatus.UNPROCESSABLE_ENTITY,
    "query_too_slow": HTTPStatus.UNPROCESSABLE_ENTITY,
    "query_too_large": HTTPStatus.UNPROCESSABLE_ENTITY,
    "result_too_large": HTTPStatus.UNPROCESSABLE_ENTITY,
    "query_failed": HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""Code -> status; every other code is a 400."""

_log = logging.getLogger(__name__)


def refusal(error: Rejected) -> JSONResponse:
    """Return the answer that a refusal means; limits of the store read as one code."""
    if isinstance(error, QueryLimited):
        error = Rejected("query_too_expensive", error.message, error.hint)
    status = STATUS.get(error.code, HTTPStatus.BAD_REQUEST)
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    if isinstance(error, OverBudget | OverQuota | Throttled) and error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(math.ceil(error.retry_after_seconds), 1))
    return answer(status, error.code, error.message, error.hint, headers)


def come_back(error: Retryable) -> JSONResponse:
    """Return the answer to a request that may succeed later."""
    seconds = max(round(error.retry_after_seconds or RETRY_AFTER_SECONDS), 1)
    headers = {"Retry-After": str(seconds)}
    return answer(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "the store does not answer now", "try again", headers)


def fault() -> JSONResponse:
    """Return the answer to a request that met a bug; its text says nothing of the bug."""
    return answer(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the request met a fault", "see the log of the api")


def answer(
    status: HTTPStatus, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error in the one shape that errors have; half a surrogate pair in a message becomes `?`."""
    whole = message.encode("utf-8", "replace").decode()
    body = {"error": {"code": code, "message": whole, "hint": hint}}
    return JSONResponse(body, status.value, dict(headers or {}))


def prometheus_shape(response: JSONResponse) -> JSONResponse:
    """Return an error as clients of Prometheus read it."""
    error = json.loads(bytes(response.body))["error"]
    kind = "unavailable" if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE else "bad_data"
    text = "; ".join(filter(None, (error["message"], error["hint"])))
    body = {"status": "error", "errorType": kind, "error": f"{error['code']}: {text}"}
    kept = {name: value for name, value in response.headers.items() if name in ("retry-after", "www-authenticate")}
    return JSONResponse(body, response.status_code, kept)


def handle_errors(app: FastAPI, selfmetrics: SelfMetrics) -> None:
    """Let every error of the routes become an answer, and count it."""

    def shaped(request: Request, response: JSONResponse) -> JSONResponse:
        return prometheus_shape(response) if request.url.path.startswith(PROMETHEUS_PATHS) else response

    async def on_rejected(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Rejected)  # noqa: S101 - what the registration below promises
        request.state.refusal = error.code
        selfmetrics.count("api_refusals_total", code=error.code)
        return shaped(request, refusal(error))

    async def on_retryable(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Retryable)  # noqa: S101 - what the registration below promises
        selfmetrics.count("api_refusals_total", code="unavailable")
        _log.warning("a request has to come back: %s", error)
        return shaped(request, come_back(error))

    async def on_invalid(_: Request, error: Exception) -> JSONResponse:
        selfmetrics.count("api_refusals_total", code="bad_request")
        assert isinstance(error, RequestValidationError)  # noqa: S101 - what the registration below promises
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, "bad_request", _what_is_wrong(error), "see /openapi.json")

    async def on_http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - what the registration below promises
        status = HTTPStatus(error.status_code)
        code = status.phrase.lower().replace(" ", "_")
        return answer(status, code, status.description or status.phrase, headers=error.headers)

    async def on_fault(_: Request, error: Exception) -> JSONResponse:
        selfmetrics.count("api_faults_total")
        _log.error("a request met a fault", exc_info=error)
        return fault()

    app.add_exception_handler(Rejected, on_rejected)
    app.add_exception_handler(Retryable, on_retryable)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_fault)


def _what_is_wrong(error: RequestValidationError) -> str:
    first = error.errors()[0]
    return f"{first['loc'][-1]}: {first['msg']}"
