"""Serve TLS by files that may be replaced, and know by which names senders show who they are.

A renewed certificate, key or CA file is taken into use without a restart; connections that exist keep what they began
with. A client's certificate is no token: it says on which machine a token may be used.
"""

import logging
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from secondsight.access.identity import Identity
from secondsight.errors import Rejected

NAME_KINDS = frozenset({"DNS", "URI"})

_log = logging.getLogger(__name__)


class Certificate:
    """A server's certificate and key, and whose certificates it asks senders for.

    Args:
        certificate, key: PEM files.
        client_ca: PEM file of who signs the certificates of senders; None to ask for none.
        is_client_required: Nobody is served without one.
    """

    def __init__(
        self, certificate: Path, key: Path, client_ca: Path | None = None, *, is_client_required: bool = False
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._verify_mode = ssl.CERT_REQUIRED if is_client_required else ssl.CERT_OPTIONAL
        self._seen = self._versions()

    def context(self) -> ssl.SSLContext:
        """Return a server's context by the files as they are now.

        Raises:
            OSError: They cannot be read, or do not fit together.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        if self._client_ca is not None:
            context.verify_mode = self._verify_mode
            context.load_verify_locations(self._client_ca)
            context.options |= ssl.OP_NO_TICKET  # a session that goes on would not be checked by a newer file
            context.num_tickets = 0
        return context

    def refresh(self, context: ssl.SSLContext) -> bool:
        """Have a server's context serve new connections by the files if they changed; return whether they were.

        Files that do not fit together (one was replaced, the other not yet) are tried again next time.
        """
        versions = self._versions()
        if versions is None or versions == self._seen:
            return False
        try:
            fresh = self.context()
        except OSError as error:
            _log.warning("the new certificate cannot be used yet: %s", error)
            return False
        context.sni_callback = partial(_use, fresh)
        self._seen = versions
        return True

    def _versions(self) -> tuple[tuple[int, int], ...] | None:
        files = (self._certificate, self._key, *((self._client_ca,) if self._client_ca else ()))
        try:
            found = [path.stat() for path in files]
        except OSError:
            return None
        return tuple((status.st_ino, status.st_mtime_ns) for status in found)


def names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return the names in a sender's certificate, as `getpeercert` gives it; None where it showed none."""
    if not certificate:
        return None
    common = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in NAME_KINDS]
    return tuple(dict.fromkeys([*common, *others]))


def require_named(names: Iterable[str] | None, identity: Identity) -> None:
    """Return if a token may be used with a certificate that has these names, or without one where none was shown.

    Raises:
        Rejected(certificate_mismatch): The token is of none of them, neither as a collector nor as a host.
    """
    if names is None:
        return
    listed = tuple(names)
    if not any(name == identity.host_id or identity.allows_collector(name) for name in listed):
        message = (
            f"the token {identity.name!r} is not for {', '.join(map(repr, listed)) or 'a certificate without names'}"
        )
        raise Rejected("certificate_mismatch", message, "use the certificate of the collector whose token this is")


def require_applicant(names: Iterable[str] | None, collector_id: str, host_id: str) -> None:
    """Return if who shows a certificate with these names may enrol as a collector on a host.

    Raises:
        Rejected(certificate_mismatch): Neither is among the names.
    """
    if names is not None and not {collector_id, host_id} & set(names):
        message = f"the certificate is neither that of collector {collector_id!r} nor of host {host_id!r}"
        raise Rejected("certificate_mismatch", message, "enrol with the certificate of this machine")


def _use(fresh: ssl.SSLContext, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
    connection.context = fresh
