"""A small OpenID Connect issuer on loopback: real keys, real signatures, and codes bound by PKCE."""

import base64
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey


@dataclass
class FakeIssuer:
    """What it knows; `person` are the claims of whoever signs in."""

    url: str = ""
    client_id: str = "secondsight"
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "alice-1", "name": "A. Person", "groups": ["gpu"]})
    now: int = 1_700_000_000
    keys: list[Any] = field(default_factory=list)
    away: bool = False
    key_reads: int = 0
    asked: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def rotate(self, kind: str = "RS256") -> None:
        """Sign with a new key from now on; the old ones are shown no more."""
        number = f"key-{self.key_reads}-{len(self.keys)}-{kind}"
        self.keys = [
            RSAKey.generate_key(2048, {"kid": number})
            if kind == "RS256"
            else ECKey.generate_key("P-256", {"kid": number})
        ]

    def token(self, key: Any = None, algorithm: str = "", **changes: Any) -> str:
        """Return a signed token; claims that are None are left out."""
        signer = key or self.keys[-1]
        name = algorithm or ("ES256" if isinstance(signer, ECKey) else "RS256")
        claims = {
            "iss": self.url,
            "aud": self.client_id,
            "iat": self.now,
            "exp": self.now + 600,
            **self.person,
        } | changes
        claims = {claim: value for claim, value in claims.items() if value is not None}
        kid = {"kid": signer.kid} if signer.kid else {}
        return jwt.encode({"alg": name, **kid}, claims, signer, algorithms=[name])

    def confused(self) -> str:
        """Return a token that is signed with the public key as a shared secret, which anybody can do."""
        head, body, _ = self.token().split(".")
        told = json.loads(base64.urlsafe_b64decode(head + "=="))
        head = _packed(json.dumps(told | {"alg": "HS256"}).encode())
        secret = self.keys[-1].as_pem(private=False)
        return f"{head}.{body}.{_packed(hmac.digest(secret, f'{head}.{body}'.encode(), 'sha256'))}"


def _packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def issuing() -> Iterator[FakeIssuer]:
    """Run an issuer for a block."""
    issuer = FakeIssuer()
    issuer.rotate()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(issuer))
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(issuer: FakeIssuer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class made for one issuer
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.asked += 1
            if issuer.away:
                self._send(503, {})
            elif parts.path == "/.well-known/openid-configuration":
                ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
                self._send(200, {"issuer": issuer.url, **{name: f"{issuer.url}/{path}" for name, path in ends.items()}})
            elif parts.path == "/keys":
                issuer.key_reads += 1
                self._send(200, KeySet(issuer.keys).as_dict(private=False))
            elif parts.path == "/authorize":
                asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
                code = f"code-{len(issuer.codes)}"
                issuer.codes[code] = asked
                self.send_response(302)
                told = urlencode({"code": code, "state": asked["state"]})
                self.send_header("location", f"{asked['redirect_uri']}?{told}")
                self.send_header("content-length", "0")
                self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            begun = issuer.codes.pop(form.get("code", ""), None)
            told = (
                base64.urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
            )
            if begun is None or begun["code_challenge"] != told or begun["redirect_uri"] != form["redirect_uri"]:
                self._send(400, {"error": "invalid_grant"})
                return
            self._send(200, {"id_token": issuer.token(nonce=begun["nonce"]), "access_token": "x"})

        def _send(self, status: int, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler
