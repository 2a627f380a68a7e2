"""Take a renewed certificate into use without a restart."""

import logging
import ssl
from pathlib import Path

_log = logging.getLogger(__name__)


class Certificate:
    """A certificate and key in files that may be replaced. Connections that exist keep what they began with."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._seen = self._versions()

    def refresh(self, context: ssl.SSLContext) -> bool:
        """Load the files into a server's context if they changed; return whether they were.

        Files that do not fit together (one was replaced, the other not yet) are tried again next time.
        """
        versions = self._versions()
        if versions is None or versions == self._seen:
            return False
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            _log.warning("the new certificate cannot be used yet: %s", error)
            return False
        self._seen = versions
        return True

    def _versions(self) -> tuple[tuple[int, int], ...] | None:
        try:
            found = [path.stat() for path in (self._certificate, self._key)]
        except OSError:
            return None
        return tuple((status.st_ino, status.st_mtime_ns) for status in found)
