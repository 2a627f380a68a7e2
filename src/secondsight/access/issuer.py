"""Check tokens of an OpenID Connect issuer: its keys, kept and looked up again when they rotate, and its claims.

Only signatures by asymmetric algorithms that the settings allow are taken. Keys are asked for when a token names one
that is not known, by one thread at a time, at most once in `ROTATION_SECONDS` whatever comes of it, and kept when the
issuer is away.
"""

import json
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from secondsight.access.oidc import OidcConfig
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable

ROTATION_SECONDS = 10.0
AWAY_SECONDS = 1.0
"""So long after it was away an issuer without whose keys nobody comes in is not asked again."""
KEPT_SECONDS = 3600.0
ANSWER_BYTES_MAXIMUM = 1 << 20
PATIENCE_SECONDS = 5.0
TOKEN_LENGTH_MAXIMUM = 16_384


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where an issuer is asked what."""

    authorization: str
    token: str
    keys: str


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_asked: Any) -> None:
        """Follow none: an issuer answers where it says it does."""


class Issuer:
    """One issuer. Safe from several threads; asks over the network when it has to.

    Raises:
        OSError: The file of certificates to trust cannot be read.
    """

    def __init__(self, config: OidcConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock, self._asking = Lock(), Lock()
        context = ssl.create_default_context(cafile=config.ca_file)
        self._opener = build_opener(_NoRedirects, HTTPSHandler(context=context))
        self._endpoints: Endpoints | None = None
        self._keys: KeySet | None = None
        self._got_seconds = self._asked_seconds = -KEPT_SECONDS
        self._known_ids: frozenset[str] = frozenset()

    def endpoints(self) -> Endpoints:
        """Return where the issuer is asked what, by its own description.

        Raises:
            Retryable: It is away, or its description is not usable.
        """
        with self._lock:
            if self._endpoints is None:
                base = self._config.issuer.rstrip("/")
                told = self._get(f"{base}/.well-known/openid-configuration")
                if told.get("issuer") != self._config.issuer:
                    raise Retryable("the issuer describes itself by another name than the settings have")
                names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
                if any(not isinstance(told.get(name), str) for name in names):
                    raise Retryable("the issuer's description lacks an endpoint")
                self._endpoints = Endpoints(*(self._same_scheme(str(told[name])) for name in names))
            return self._endpoints

    def claims(self, token: str, nonce: str | None = None) -> Mapping[str, Any]:
        """Return the claims of a token that this issuer made for us and that is good now.

        Raises:
            Rejected(token_invalid, token_expired): It is not; the text holds nothing of it.
            Retryable: The issuer's keys are needed and it is away.
        """
        if len(token) > TOKEN_LENGTH_MAXIMUM:
            raise _invalid("it is too long")
        try:
            found = jwt.decode(token, self._keys_for(_key_id(token)), algorithms=list(self._config.algorithms))
            now = self._clock.now_ms() // 1000
            self._registry(now, nonce).validate(found.claims)
            _check_forms(found.claims)
        except JoseError as error:
            if error.error == "expired_token":
                raise Rejected("token_expired", "the issuer's token has expired", "sign in again") from None
            raise _invalid(error.error.replace("_", " ")) from None
        except (ValueError, TypeError, KeyError):
            raise _invalid("it cannot be read") from None
        return dict(found.claims)

    def exchange(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        """Return what the token endpoint answers to a form.

        Raises:
            Rejected(sign_in_refused): The issuer refuses.
            Retryable: The issuer is away.
        """
        from urllib.parse import urlencode

        endpoint = self.endpoints().token
        request = Request(endpoint, urlencode(form).encode(), {"accept": "application/json"})  # noqa: S310 - checked
        return self._open(request, refused="sign_in_refused")

    def _registry(self, now: int, nonce: str | None) -> jwt.JWTClaimsRegistry:
        wanted: dict[str, Any] = {
            "iss": {"essential": True, "value": self._config.issuer},
            "aud": {"essential": True, "value": self._config.audience or self._config.client_id},
            "exp": {"essential": True},
            "sub": {"essential": True},
        }
        if nonce is not None:
            wanted["nonce"] = {"essential": True, "value": nonce}
            wanted["azp"] = {"value": self._config.client_id}
        return jwt.JWTClaimsRegistry(now=now, leeway=self._config.leeway_seconds, **wanted)

    def _keys_for(self, key_id: str) -> KeySet:
        found = self._kept(key_id)
        if found is not None:
            return found
        with self._asking:
            found = self._kept(key_id)
            return self._ask() if found is None else found

    def _kept(self, key_id: str) -> KeySet | None:
        """Return the keys that are there; None where the issuer is to be asked now.

        Raises:
            Retryable: There are none, and the issuer was away a moment ago.
        """
        with self._lock:
            now = self._clock.monotonic_seconds()
            since_asked = now - self._asked_seconds
            if self._keys is None:
                if since_asked < AWAY_SECONDS:
                    raise Retryable("the issuer was away a moment ago")
                return None
            is_old = now - self._got_seconds >= KEPT_SECONDS
            is_wanted = is_old or key_id not in self._known_ids
            return None if is_wanted and since_asked >= ROTATION_SECONDS else self._keys

    def _ask(self) -> KeySet:
        """Return the issuer's keys, those that are there where it is away."""
        keys = self._keys
        try:
            told: Any = self._get(self.endpoints().keys)
            fresh = KeySet.import_key_set(told)
        except Retryable:
            if keys is None:
                raise
            return keys
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise Retryable(f"the issuer's keys cannot be read: {type(error).__name__}") from None
        finally:
            with self._lock:
                self._asked_seconds = self._clock.monotonic_seconds()
        with self._lock:
            self._keys, self._got_seconds = fresh, self._asked_seconds
            self._known_ids = frozenset(str(key.kid) for key in fresh.keys)
        return fresh

    def _get(self, url: str) -> Mapping[str, Any]:
        request = Request(self._same_scheme(url), headers={"accept": "application/json"})  # noqa: S310 - checked
        return self._open(request)

    def _open(self, request: Request, refused: str = "") -> Mapping[str, Any]:
        from urllib.error import HTTPError

        try:
            with self._opener.open(request, timeout=PATIENCE_SECONDS) as answer:
                told = json.loads(answer.read(ANSWER_BYTES_MAXIMUM))
        except HTTPError as error:
            error.close()
            if refused and 400 <= error.code < 500:
                raise Rejected(refused, "the issuer refused the sign-in", "sign in again") from None
            raise Retryable(f"the issuer answers {error.code}") from None
        except (URLError, OSError, ValueError) as error:
            raise Retryable(f"the issuer is away: {type(error).__name__}") from None
        if not isinstance(told, dict):
            raise Retryable("the issuer's answer is no object")
        return told

    def _same_scheme(self, url: str) -> str:
        """Return an address that is as safe as the issuer's own.

        Raises:
            Retryable: It is another scheme's.
        """
        wanted = urlsplit(self._config.issuer).scheme
        if urlsplit(url).scheme not in ("https", wanted):
            raise Retryable("the issuer names an endpoint that is less safe than its own address")
        return url


def is_jwt(secret: str) -> bool:
    """Tell whether a bearer secret looks like an issuer's token and not like one of ours."""
    return secret.count(".") == 2


def _key_id(token: str) -> str:
    """Return the key that a token says to be signed with, "" where it says nothing that can be read."""
    import base64

    try:
        head = token.split(".", 1)[0]
        told = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        return str(told.get("kid", ""))
    except (ValueError, AttributeError):
        return ""


def _check_forms(claims: Mapping[str, Any]) -> None:
    """Refuse a subject or an expiry of another form than the standard has.

    Raises:
        ValueError: One is.
    """
    subject, expiry = claims["sub"], claims["exp"]
    if not isinstance(subject, str) or not subject or isinstance(expiry, bool) or not math.isfinite(expiry):
        raise ValueError("a claim has another form")


def _invalid(why: str) -> Rejected:
    return Rejected("token_invalid", f"the issuer's token is not good: {why}", "sign in again")
