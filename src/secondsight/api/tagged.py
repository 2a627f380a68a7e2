"""Give answers that are whole a tag by their content, and tell who has that content already that nothing changed."""

from hashlib import blake2b
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders

from secondsight.api.forward import App, Receive, Scope, Send

TAGGED_BYTES_MAXIMUM = 16 << 20


class Tagged:
    """An ASGI application around another one."""

    def __init__(self, app: App) -> None:
        self._inner = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(("/v1/", "/openapi")):
            await self._inner(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        held: Scope | None = None

        async def send_tagged(message: Scope) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
                held = message
                return
            if held is not None:
                start, held = held, None
                body = message.get("body", b"")
                if not message.get("more_body", False) and len(body) <= TAGGED_BYTES_MAXIMUM:
                    message = _tagged(start, body, message, known)
                await send(start)
            await send(message)

        await self._inner(scope, receive, send_tagged)


def _tagged(start: Scope, body: bytes, message: Scope, known: str) -> Scope:
    """Add the tag of a body to the head of its answer; return the message that is to follow the head."""
    headers = MutableHeaders(raw=start["headers"])
    tag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
    headers["ETag"] = tag
    if not is_known(tag, known):
        return message
    start["status"] = HTTPStatus.NOT_MODIFIED.value
    del headers["content-length"]
    return {**message, "body": b""}


def is_known(tag: str, known: str) -> bool:
    """Tell whether If-None-Match names a tag; weak and strong ones compare alike."""
    told = {each.strip().removeprefix("W/") for each in known.split(",")}
    return "*" in told or tag.removeprefix("W/") in told
