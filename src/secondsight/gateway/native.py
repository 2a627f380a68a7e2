"""Take native frames in: from an authenticated body to records that are durable before the answer is sent.

The order is: read and check the whole body, know its definitions, put plans on record, decide about each frame, append
everything in one go. A step that raises leaves nothing of the frames in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from secondsight.access.identity import Identity
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds, Refusal
from secondsight.gateway.frames import Post, Verdict, admit, read_post, unknown_definitions
from secondsight.gateway.known import KnownDefinitions, inline_definitions
from secondsight.gateway.plan import InForce, Plans, Wish
from secondsight.gateway.repeats import Repeats

CONTENT_TYPE = b"application/x-secondsight-frame"
LARGE_BODY_BYTES = 1 << 20
"""A larger body is read in a thread, so that other requests do not wait for it."""


class SchemaUnknown(Rejected):
    """Frames name definitions that nobody sent; `hashes` lists them."""

    def __init__(self, refusal: Rejected, hashes: Sequence[bytes]) -> None:
        super().__init__(refusal.code, refusal.message, refusal.hint)
        self.hashes = tuple(name.hex() for name in hashes)


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where an intake makes things durable; each returns when they are, or raises Retryable.

    Attributes:
        records: Takes (key, value) for the topic `ingest`.
        definitions: Takes (hash, blob).
        plans: Takes wishes and returns what is in force then.
    """

    records: Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[None]]
    definitions: Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[None]]
    plans: Callable[[Sequence[Wish]], Awaitable[InForce]]


class Intake:
    """Takes bodies of native frames. Lives in one event loop; concurrent bodies are independent of each other."""

    def __init__(self, known: KnownDefinitions, plans: Plans, sinks: Sinks, bounds: Bounds, clock: Clock) -> None:
        self._known = known
        self._plans = plans
        self._sinks = sinks
        self._bounds = bounds
        self._clock = clock
        self._repeats = Repeats()

    async def take(self, identity: Identity, body: bytes) -> Verdict:
        """Store what is admissible of a body and return what became of each frame; durable when it returns.

        Raises:
            Rejected: The whole body is refused, see `read_post`; nothing of it is stored.
            SchemaUnknown: Likewise, until the definitions are sent.
            Retryable: The log or the metadata store is away; sending the body again is right.
        """
        post = await self._read(identity, body)
        post = await self._learn_definitions(post)
        verdict = admit(post, self._known, self._repeats, self._bounds)
        wishes = self._plans.learnt(identity, verdict.accepted)
        if wishes:
            self._plans.settle(wishes, await self._sinks.plans(wishes))
        if verdict.records:
            await self._sinks.records(verdict.records)
        self._repeats.add(verdict.repeat_keys)
        return verdict

    async def _read(self, identity: Identity, body: bytes) -> Post:
        now_ms = self._clock.now_ms()
        if len(body) > LARGE_BODY_BYTES:
            return await asyncio.to_thread(read_post, identity, body, now_ms)
        return read_post(identity, body, now_ms)

    async def _learn_definitions(self, post: Post) -> Post:
        """Return the post, its definitions known and its unreadable frames marked."""
        lacking = self._known.lacking(post.headers)
        if not lacking:
            return post
        await asyncio.to_thread(self._known.load, lacking)
        blobs, faults = await asyncio.to_thread(_read_inline, post, self._known.lacking(post.headers))
        if blobs:
            await self._sinks.definitions(list(blobs.items()))
        sound = [head.header for index, head in enumerate(post.heads) if index not in faults]
        unknown = sorted(self._known.lacking(sound))
        if unknown:
            raise SchemaUnknown(unknown_definitions(unknown, post), unknown)
        return replace(post, faults=faults)


def _read_inline(post: Post, lacking: set[bytes]) -> tuple[dict[bytes, bytes], dict[int, Refusal]]:
    """Return the lacking definitions that frames carry, and the frames whose definitions could not be read."""
    blobs: dict[bytes, bytes] = {}
    faults: dict[int, Refusal] = {}
    for index, head in enumerate(post.heads):
        wanted = {head.header.schema_hash, head.header.entities_hash} & lacking - blobs.keys()
        if not head.inline or not wanted:
            continue
        try:
            found = inline_definitions(post.body, head)
            blobs.update((name, found[name]) for name in wanted)
        except Rejected as error:
            faults[index] = Refusal(error.code, f"collector {head.header.collector_id}: {error.message}")
    return blobs, faults
