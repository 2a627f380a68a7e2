"""Serve enrolment: an agent shows a join token, or the token that it has, and is given one of its own.

Secrets come in the header and go in the answer's body alone; neither is logged. Attempts are limited by address, so
that whoever tries secrets costs no more than that.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Engine

from secondsight.access.audit import AuditEntry, write_entries
from secondsight.access.enrolment import (
    JOIN_PREFIX,
    Applicant,
    Enrolled,
    Terms,
    enrol_by_join_token,
    renew,
    tenant_of_join_token,
)
from secondsight.access.identity import Role
from secondsight.access.tokens import Authenticator
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.pressure import Overloaded
from secondsight.gateway.tls import require_applicant
from secondsight.wire.header import MAX_ID_LENGTH
from secondsight.wire.schema import is_text

BODY_BYTES = 16 << 10
MACHINE_LENGTH_MAXIMUM = 256
ADDRESSES_REMEMBERED = 10_000
FIELDS = ("collectorId", "hostId", "machine")


@dataclass(frozen=True, slots=True)
class Rate:
    """How many attempts an address has: some at once, and so many a second."""

    burst: float
    per_second: float


class Attempts:
    """Attempts left of each address. Lives in one thread."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> None:
        """Use one attempt.

        Raises:
            Overloaded: There is none left; its `retry_after_seconds` says when there is one.
        """
        now = self._clock.monotonic_seconds()
        left, at = self._left.pop(address, (self._rate.burst, now))
        left = min(left + (now - at) * self._rate.per_second, self._rate.burst)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > ADDRESSES_REMEMBERED:
            self._left.popitem(last=False)
        if left < 1:
            wait_seconds = (1 - left) / self._rate.per_second
            message = "too many enrolments from one address"
            raise Overloaded(message, reason="enrolments", retry_after_seconds=wait_seconds)


class Enrolments:
    """Enrols agents. `enrol` blocks and is for a thread."""

    def __init__(self, metadata: Engine, authenticator: Authenticator, terms: Terms, clock: Clock) -> None:
        self._metadata = metadata
        self._authenticator = authenticator
        self._terms = terms
        self._clock = clock

    def enrol(self, secret: str, body: bytes, peer: tuple[str, ...] | None = None) -> bytes:
        """Return the body of the answer: the token of the agent, shown once.

        Args:
            secret: Of the join token, or of the token that the agent has.
            body: Says who enrols.
            peer: Names in the agent's certificate; None where it showed none.

        Raises:
            Rejected: As `access.enrolment` says; `bad_enrolment` where the body is none; `certificate_mismatch`.
            Retryable: The metadata store is away.
        """
        applicant = read_applicant(body)
        now_ms = self._clock.now_ms()
        try:
            require_applicant(peer, applicant.collector_id, applicant.host_id)
            enrolled = self._enrolled(secret, applicant, now_ms)
        except Rejected as error:
            if error.code not in ("token_missing", "token_invalid"):
                self._audit(applicant, self._tenant_of(secret), now_ms, error.code)
            raise
        self._audit(applicant, enrolled.tenant_id, now_ms, "ok", enrolled)
        return orjson.dumps(
            {
                "collectorId": applicant.collector_id,
                "token": enrolled.token.secret,
                "tokenId": enrolled.token.token_id,
                "expiresMs": enrolled.expires_ms,
                "renewed": enrolled.renewed,
            }
        )

    def _enrolled(self, secret: str, applicant: Applicant, now_ms: int) -> Enrolled:
        if secret.startswith(JOIN_PREFIX):
            return enrol_by_join_token(self._metadata, secret, applicant, self._terms, now_ms)
        identity = self._authenticator.authenticate(secret)
        if identity.role is not Role.COLLECTOR:
            message = f"the token {identity.name!r} has the role {identity.role} and enrols nobody"
            raise Rejected("role_cannot_write", message, "use a join token")
        return renew(self._metadata, identity, applicant, self._terms, now_ms)

    def _tenant_of(self, secret: str) -> str:
        """Return whose tenant a refusal concerns, "" where a secret is nobody's."""
        if secret.startswith(JOIN_PREFIX):
            return tenant_of_join_token(self._metadata, secret)
        try:
            return self._authenticator.authenticate(secret).tenant_id
        except Rejected:
            return ""

    def _audit(
        self, applicant: Applicant, tenant_id: str, now_ms: int, outcome: str, enrolled: Enrolled | None = None
    ) -> None:
        detail = f"collector {applicant.collector_id} on host {applicant.host_id}"
        subject = f"collector:{applicant.collector_id}"
        if enrolled is not None:
            detail += f", token {enrolled.token.token_id}{' in place of another' if enrolled.renewed else ''}"
        write_entries(self._metadata, [AuditEntry(now_ms, subject, tenant_id, "agent_enrol", outcome, detail)])


def read_applicant(body: bytes) -> Applicant:
    """Return who a body says that it is.

    Raises:
        Rejected: `bad_enrolment`.
    """
    try:
        told: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        told = None
    found = [told.get(name) for name in FIELDS] if isinstance(told, dict) else []
    names = [name for name in found if isinstance(name, str) and name]
    if len(names) != len(FIELDS):
        raise Rejected("bad_enrolment", "an enrolment is JSON with collectorId, hostId and machine, all texts")
    collector_id, host_id, machine = names
    if not (is_text(collector_id, MAX_ID_LENGTH) and is_text(host_id, MAX_ID_LENGTH)) or any(
        mark in collector_id for mark in "*,/"
    ):
        raise Rejected("bad_enrolment", "collectorId and hostId are plain ids, without '*', ',' or '/'")
    if len(machine) > MACHINE_LENGTH_MAXIMUM:
        raise Rejected("bad_enrolment", f"machine has at most {MACHINE_LENGTH_MAXIMUM} characters")
    return Applicant(collector_id, host_id, machine)
