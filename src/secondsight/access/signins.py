"""Keep sign-ins that are under way: what was sent to the issuer, until the browser comes back with a code, once."""

import base64
import secrets
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Engine, delete, insert, select

from secondsight.access.metadata import SIGN_INS, writing
from secondsight.errors import Rejected

LASTS_MS = 600_000
LENGTH_MAXIMUM = 200


@dataclass(frozen=True, slots=True)
class SignIn:
    """One sign-in under way; `verifier` is the secret that the code is bound to (RFC 7636)."""

    state: str
    verifier: str
    nonce: str
    back: str

    @property
    def challenge(self) -> str:
        """Return what the issuer is told of the verifier."""
        return base64.urlsafe_b64encode(sha256(self.verifier.encode()).digest()).decode().rstrip("=")


def begin(metadata: Engine, back: str, now_ms: int) -> SignIn:
    """Begin a sign-in that leads back to a path of the pages."""
    made = SignIn(secrets.token_urlsafe(32), secrets.token_urlsafe(48), secrets.token_urlsafe(16), local_path(back))
    row = {"state_sha256": _digest(made.state), "verifier": made.verifier, "nonce": made.nonce, "back": made.back}
    with writing(metadata) as connection:
        connection.execute(delete(SIGN_INS).where(SIGN_INS.c.expires_ms <= now_ms))
        connection.execute(insert(SIGN_INS).values(**row, expires_ms=now_ms + LASTS_MS))
    return made


def finish(metadata: Engine, state: str, now_ms: int) -> SignIn:
    """Return a sign-in by its state and forget it, so that it serves once.

    Raises:
        Rejected(sign_in_refused): There is none, or it took too long.
    """
    mine = SIGN_INS.c.state_sha256 == _digest(state[:LENGTH_MAXIMUM])
    with writing(metadata) as connection:
        row = connection.execute(select(SIGN_INS).where(mine, SIGN_INS.c.expires_ms > now_ms)).first()
        taken = connection.execute(delete(SIGN_INS).where(mine)).rowcount
    if row is None or not taken:
        raise Rejected("sign_in_refused", "this sign-in is not under way any more", "sign in again")
    return SignIn(state, row.verifier, row.nonce, row.back)


def local_path(back: str) -> str:
    """Return a path of this address to go back to, the start where it is none."""
    is_local = back.startswith("/") and not back.startswith("//") and "\\" not in back and back.isprintable()
    return back if is_local and len(back) <= 2_000 else "/"


def _digest(state: str) -> bytes:
    return sha256(state.encode("utf-8", "surrogatepass")).digest()
