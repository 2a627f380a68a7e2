"""Serve sign-in for the pages: a token becomes a session, named by a cookie that scripts and other sites cannot use."""

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response

from secondsight.access.audit import AuditEntry
from secondsight.access.identity import Identity
from secondsight.access.scope import scopes_of
from secondsight.access.sessions import end_session, start_session
from secondsight.api.attempts import SESSION, address_of
from secondsight.api.models import ErrorAnswer, SessionAnswer, SessionRequest
from secondsight.api.services import COOKIE, Caller, Shared

router = APIRouter(tags=["session"], responses={401: {"model": ErrorAnswer}})


@router.post("/v1/session")
def sign_in(
    services: Shared, request: Request, response: Response, asked: Annotated[SessionRequest, Body()]
) -> SessionAnswer:
    """Sign in with a token that may read."""
    with services.attempts.of(address_of(request, services.config.proxies), asked.token.strip(), SESSION):
        identity = services.authenticator.authenticate(asked.token.strip())
        scopes_of(identity, services.metadata)
    lasts_seconds = services.config.session_seconds
    session_id = start_session(services.metadata, identity, services.clock.now_ms(), lasts_seconds)
    set_session(response, request, session_id, lasts_seconds)
    services.audit.record(AuditEntry(services.clock.now_ms(), identity.subject, identity.tenant_id, "sign_in"))
    return session_answer(identity)


def set_session(response: Response, request: Request, session_id: str, lasts_seconds: int) -> None:
    """Give a browser the cookie of its session."""
    response.set_cookie(
        COOKIE,
        session_id,
        max_age=lasts_seconds,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


@router.get("/v1/session")
def session(caller: Caller) -> SessionAnswer:
    """Return who is signed in."""
    return session_answer(caller)


@router.delete("/v1/session", status_code=204)
def sign_out(services: Shared, request: Request, response: Response) -> None:
    """End the session; does nothing where nobody is signed in."""
    end_session(services.metadata, request.cookies.get(COOKIE, ""))
    secure = request.url.scheme == "https"
    response.delete_cookie(COOKIE, path="/", secure=secure, httponly=True, samesite="strict")


def session_answer(identity: Identity) -> SessionAnswer:
    """Return who somebody is, as answers have it."""
    return SessionAnswer(tenant_id=identity.tenant_id, name=identity.name, role=identity.role.value)
