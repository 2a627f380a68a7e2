"""Notice that a client has gone, and end what runs for it in the store."""

import asyncio
from typing import Any

from secondsight.api.forward import App, Receive, Scope, Send
from secondsight.store.cancel import Cancellation, cancellable

GONE = "http.disconnect"
MOMENT_SECONDS = 0.05
"""So long nobody looks out: most answers are there by then."""


class Attended:
    """An ASGI application around another one, whose reads end when nobody waits for them any more."""

    def __init__(self, app: App) -> None:
        self._inner = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        cancellation = Cancellation()
        attendant = _Attendant(receive, cancellation, has_body=scope["method"] not in ("GET", "HEAD"))
        with cancellable(cancellation):
            try:
                await self._inner(scope, attendant.receive, send)
            finally:
                await attendant.close()


class _Attendant:
    """Hands messages on, and looks out for the last one once a body is there and the answer takes a moment."""

    def __init__(self, receive: Receive, cancellation: Cancellation, *, has_body: bool) -> None:
        self._receive = receive
        self._cancellation = cancellation
        self._has_body = has_body
        self._first: asyncio.Queue[Any] = asyncio.Queue()
        self._watching: asyncio.Task[Any] | None = None
        self._timer = None if has_body else asyncio.get_running_loop().call_later(MOMENT_SECONDS, self._look_out)

    async def receive(self) -> Any:
        """Return the next message."""
        if self._has_body and self._watching is None:
            message = await self._receive()
            if message["type"] == GONE or not message.get("more_body", False):
                self._watching = asyncio.create_task(self._watch(message["type"] == GONE))
            return message
        watching = self._look_out()
        if watching.done() and self._first.empty():
            return {"type": GONE}
        return await self._first.get()

    async def close(self) -> None:
        """Look out no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None and not self._watching.done():
            self._watching.cancel()

    def _look_out(self) -> asyncio.Task[Any]:
        self._watching = self._watching or asyncio.create_task(self._watch())
        return self._watching

    async def _watch(self, is_gone: bool = False) -> None:
        while not is_gone:
            message = await self._receive()
            is_gone = message["type"] == GONE
            if not is_gone:
                self._first.put_nowait(message)
        self._first.put_nowait({"type": GONE})
        await asyncio.to_thread(self._cancellation.cancel)
