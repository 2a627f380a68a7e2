"""Speak with an Iceberg REST catalogue that may hang: every request of the client library gets a deadline."""

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

CONNECT_SECONDS = "s3.connect-timeout"
REQUEST_SECONDS = "s3.request-timeout"


class BoundedRestCatalog(RestCatalog):
    """A REST catalogue whose requests end in time; the library itself would wait for ever."""

    def _config_headers(self, session: Session) -> None:
        """Set up a session before its first request."""
        seconds = (float(self.properties[CONNECT_SECONDS]), float(self.properties[REQUEST_SECONDS]))
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Bounded(seconds))
        super()._config_headers(session)


class _Bounded(HTTPAdapter):
    def __init__(self, seconds: tuple[float, float]) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *_: Any, **options: Any) -> Response:
        """Send a request, and wait for its answer no longer than that."""
        return super().send(request, **options | {"timeout": self._seconds})
