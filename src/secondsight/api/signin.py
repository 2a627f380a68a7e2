"""Serve sign-in by an issuer for the pages: authorization code with PKCE, bound to the browser that began it."""

import html
import secrets
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from secondsight.access.audit import AuditEntry
from secondsight.access.issuer import Issuer
from secondsight.access.oidc import OidcConfig, identity_of
from secondsight.access.sessions import start_session
from secondsight.access.signins import LASTS_MS, begin, finish
from secondsight.api.attempts import ISSUER, address_of
from secondsight.api.models import ErrorAnswer, SessionAnswer, Shape
from secondsight.api.services import Services, Shared, authenticated
from secondsight.api.session import session_answer, set_session
from secondsight.errors import Rejected

COOKIE = "secondsight_sign_in"
PATH = "/v1/session"
POLICY = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"
_BACK = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Secondsight</title>
<meta http-equiv="refresh" content="0;url={}"></html>
"""
"""A page of our own leads on: the session's cookie is sent only where another site did not begin."""

router = APIRouter(tags=["session"], responses={code: {"model": ErrorAnswer} for code in (400, 403, 404)})


class WaysAnswer(Shape):
    """How people can sign in, and who has.

    `issuer` is where `GET /v1/session/login` leads, null where it leads nowhere; `session` is null of nobody.
    """

    token: bool
    issuer: str | None
    session: SessionAnswer | None


@router.get("/v1/session/ways")
def ways(services: Shared, request: Request) -> WaysAnswer:
    """Return how people can sign in, and who is signed in already; that nobody is, is no refusal."""
    issuer = services.config.oidc.issuer if services.config.oidc else None
    return WaysAnswer(token=True, issuer=issuer, session=_signed_in(services, request))


def _signed_in(services: Services, request: Request) -> SessionAnswer | None:
    try:
        return session_answer(authenticated(request, services))
    except Rejected:
        return None


@router.get("/v1/session/login", response_class=Response, status_code=303)
def login(services: Shared, request: Request, back: Annotated[str, Query(max_length=2_000)] = "/") -> Response:
    """Send a browser to the issuer."""
    config, issuer = _configured(services)
    services.attempts.begin(address_of(request, services.config.proxies))
    made = begin(services.metadata, back, services.clock.now_ms())
    asked = {
        "response_type": "code",
        "client_id": config.client_id,
        "redirect_uri": _redirect(config, request),
        "scope": config.scopes,
        "state": made.state,
        "nonce": made.nonce,
        "code_challenge": made.challenge,
        "code_challenge_method": "S256",
    }
    endpoint = issuer.endpoints().authorization
    answer = RedirectResponse(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}", 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(
        COOKIE, made.state, max_age=LASTS_MS // 1000, path=PATH, secure=secure, httponly=True, samesite="lax"
    )
    return answer


@router.get("/v1/session/callback", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def callback(
    services: Shared,
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4_000)] = "",
) -> Response:
    """Take a browser back from the issuer and start its session."""
    with services.attempts.of(address_of(request, services.config.proxies), state, ISSUER):
        return _finished(services, request, state, code)


def _finished(services: Services, request: Request, state: str, code: str) -> Response:
    config, issuer = _configured(services)
    now_ms = services.clock.now_ms()
    if not state or not secrets.compare_digest(request.cookies.get(COOKIE, "").encode(), state.encode()):
        raise Rejected("sign_in_refused", "this sign-in was begun by another browser", "sign in again")
    begun = finish(services.metadata, state, now_ms)
    if not code:
        raise Rejected("sign_in_refused", "the issuer refused the sign-in", "sign in again")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": _redirect(config, request),
        "client_id": config.client_id,
        "code_verifier": begun.verifier,
    }
    if config.client_secret_file is not None:
        form["client_secret"] = config.client_secret_file.read_text().strip()
    token = issuer.exchange(form).get("id_token")
    claims = issuer.claims(str(token), begun.nonce)
    with services.attempts.of("", f"{config.issuer} {claims.get('sub')}", ISSUER):
        identity = identity_of(services.metadata, config, claims, now_ms)
    lasts_seconds = services.config.session_seconds
    answer = HTMLResponse(
        _BACK.format(html.escape(begun.back, quote=True)), headers={"Content-Security-Policy": POLICY}
    )
    session_id = start_session(services.metadata, identity, now_ms, lasts_seconds)
    set_session(answer, request, session_id, lasts_seconds)
    answer.delete_cookie(COOKIE, path=PATH)
    services.audit.record(AuditEntry(now_ms, identity.subject, identity.tenant_id, "sign_in"))
    return answer


def _configured(services: Services) -> tuple[OidcConfig, Issuer]:
    if services.config.oidc is None or services.issuer is None:
        raise Rejected("not_found", "people sign in with tokens here", "POST /v1/session")
    return services.config.oidc, services.issuer


def _redirect(config: OidcConfig, request: Request) -> str:
    return config.redirect_url or f"{request.url.scheme}://{request.url.netloc}{PATH}/callback"
