"""Say who may try to sign in now: so many failures a minute of one address, and of one account.

An account is whoever a secret, a state or a subject of the issuer stands for, known here by its hash. Whoever is over a
limit is refused before anything is looked up, so that the answer is the same for right and wrong secrets. A secret that
was right lately passes the limit of its address: neighbours who guess shut nobody out. Memory is bounded by count.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address, ip_network
from threading import Lock

from fastapi import Request

from secondsight.access.audit import AuditEntry, AuditLog
from secondsight.api.admission import Throttled
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.buckets import Bucket
from secondsight.selfmetrics import SelfMetrics

KEPT_MAXIMUM = 20_000
MINUTE_SECONDS = 60.0
PLATFORM_TENANT = "default"
"""Whose audit holds what is of nobody yet."""
FAILURES = frozenset({"token_invalid", "token_expired", "sign_in_refused", "no_grant"})
TOKEN, SESSION, ISSUER = "token", "session", "issuer"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Failures:
    bucket: Bucket
    told: bool = False


class Attempts:
    """Counts failures. Safe from several threads.

    Args:
        address_failures, account_failures: How many may come in a minute.
    """

    def __init__(
        self, address_failures: int, account_failures: int, audit: AuditLog, metrics: SelfMetrics, clock: Clock
    ) -> None:
        self._sizes = {"address": address_failures, "account": account_failures, "begun": address_failures}
        self._failures: dict[str, OrderedDict[bytes, _Failures]] = {name: OrderedDict() for name in self._sizes}
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._audit = audit
        self._metrics = metrics
        self._clock = clock
        self._lock = Lock()

    @contextmanager
    def of(self, address: str, account: str, way: str) -> Iterator[None]:
        """Hold one attempt to prove an identity; the block raises where it fails.

        Args:
            address: Where it comes from; "" counts for the account alone.
            account: What it is proven with.
            way: token, session or issuer.

        Raises:
            Throttled(rate_limited): Too many failed of late; nothing was looked at.
        """
        digest = sha256(account.encode("utf-8", "surrogatepass")).digest()
        self._check(address, digest, way)
        try:
            yield
        except Rejected as error:
            if error.code in FAILURES:
                self._fail(address, digest, way, error.code)
            raise
        with self._lock:
            self._good[digest] = None
            self._good.move_to_end(digest)
            if len(self._good) > KEPT_MAXIMUM:
                self._good.popitem(last=False)

    def begin(self, address: str) -> None:
        """Count a sign-in by the issuer that is begun.

        Raises:
            Throttled(rate_limited): Too many were begun of late.
        """
        self._refuse_over("begun", _key(address), address, ISSUER)
        self._take("begun", _key(address))

    @property
    def kept(self) -> int:
        """Return how many addresses, accounts and secrets are remembered."""
        return len(self._good) + sum(map(len, self._failures.values()))

    def _check(self, address: str, digest: bytes, way: str) -> None:
        self._refuse_over("account", digest, address, way)
        with self._lock:
            is_good = digest in self._good
        if address and not is_good:
            self._refuse_over("address", _key(address), address, way)

    def _refuse_over(self, limit: str, key: bytes, address: str, way: str) -> None:
        with self._lock:
            failures = self._failures[limit].get(key)
            wait_seconds = failures.bucket.wait_seconds(self._clock.monotonic_seconds()) if failures else 0.0
            if failures is None or not wait_seconds:
                return
            is_new, failures.told = not failures.told, True
        self._metrics.count("api_sign_in_limited_total", limit=limit, way=way)
        if is_new:
            self._record(address, "rate_limited", f"{way}: too many failures of one {limit}")
        raise Throttled("rate_limited", "too many sign-ins failed", wait_seconds)

    def _fail(self, address: str, digest: bytes, way: str, code: str) -> None:
        self._metrics.count("api_sign_in_failures_total", way=way, reason=code)
        self._take("account", digest)
        with self._lock:
            self._good.pop(digest, None)
        if address:
            self._take("address", _key(address))
            if way != TOKEN:
                self._record(address, code, way)

    def _take(self, limit: str, key: bytes) -> None:
        size, now = self._sizes[limit], self._clock.monotonic_seconds()
        kept = self._failures[limit]
        with self._lock:
            failures = kept.pop(key, None) or _Failures(Bucket(size / MINUTE_SECONDS, size, now))
            if not failures.bucket.wait_seconds(now):
                failures.told = False
            failures.bucket.take(1)
            kept[key] = failures
            if len(kept) > KEPT_MAXIMUM:
                kept.popitem(last=False)

    def _record(self, address: str, outcome: str, detail: str) -> None:
        entry = AuditEntry(
            self._clock.now_ms(), f"network:{_network(address)}", PLATFORM_TENANT, "sign_in", outcome, detail
        )
        try:
            self._audit.record(entry)
        except Retryable as error:
            _log.warning("a failed sign-in waits to be put on record: %s", error)


def address_of(request: Request, proxies: tuple[str, ...]) -> str:
    """Return where a request comes from: what proxies that are known say, else its peer; "" where nobody says."""
    peer = request.client.host if request.client else ""
    if peer not in proxies:
        return peer
    told = [text.strip() for text in request.headers.get("x-forwarded-for", "").split(",")]
    return next((text for text in reversed(told) if text and text not in proxies), peer)


def _key(address: str) -> bytes:
    """Return what is counted as one address: of IPv6 the 64 bits that one site has."""
    return _network(address, 32).encode("utf-8", "surrogatepass")


def _network(address: str, bits: int = 24) -> str:
    """Return the network of an address, which is not one person's."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    return str(ip_network(f"{parsed}/{bits if parsed.version == 4 else 64}", strict=False))
