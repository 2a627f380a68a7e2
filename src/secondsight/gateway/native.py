"""Take native frames in: from an authenticated body to records that are durable before the answer is sent.

The order is: read and check the whole body, know its definitions, put plans on record, decide about each frame, append
everything in one go. A step that raises leaves nothing of the frames in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from secondsight.access.identity import Identity
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds, Refusal
from secondsight.gateway.frames import Post, Verdict, admit, read_post, unknown_definitions
from secondsight.gateway.known import Definition, KnownDefinitions, inline_definitions
from secondsight.gateway.plan import InForce, Plans, Wish
from secondsight.gateway.repeats import Repeats
from secondsight.wire.frame import split

CONTENT_TYPE = b"application/x-secondsight-frame"
LARGE_BYTES = 1 << 20
"""A larger body, or more unpacked bytes with definitions among them, is read in a thread: others do not wait for it."""


class SchemaUnknown(Rejected):
    """Frames name definitions that nobody sent; `hashes` lists them."""

    def __init__(self, refusal: Rejected, hashes: Sequence[bytes]) -> None:
        super().__init__(refusal.code, refusal.message, refusal.hint)
        self.hashes = tuple(name.hex() for name in hashes)


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where an intake makes things durable and finds them again; each returns when it is done, or raises Retryable.

    Attributes:
        records: Takes (key, value) for the topic `ingest`.
        definitions: Takes definitions.
        find_definitions: Takes hashes and returns those definitions that are stored, perhaps beside others.
        plans: Takes wishes and returns what is in force then.
    """

    records: Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[None]]
    definitions: Callable[[Sequence[Definition]], Awaitable[None]]
    find_definitions: Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, Definition]]]
    plans: Callable[[Sequence[Wish]], Awaitable[InForce]]


class Intake:
    """Takes bodies of native frames. Lives in one event loop; concurrent bodies are independent of each other."""

    def __init__(self, plans: Plans, sinks: Sinks, bounds: Bounds, catalog: Catalog, clock: Clock) -> None:
        self._plans = plans
        self._sinks = sinks
        self._bounds = bounds
        self._catalog = catalog
        self._clock = clock
        self._known = KnownDefinitions()
        self._repeats = Repeats()

    async def take(self, identity: Identity, body: bytes) -> Verdict:
        """Store what is admissible of a body and return what became of each frame; durable when it returns.

        Raises:
            Rejected: The whole body is refused, see `read_post`; nothing of it is stored.
            SchemaUnknown: Likewise, until the definitions are sent.
            Retryable: The log or the metadata store is away; sending the body again is right.
        """
        post = await self._read(identity, body)
        lacking = self._known.lacking(post.heads)
        if lacking:
            post = await self._learn_definitions(post, lacking)
        return await self._store(post, ())

    async def take_made(
        self,
        identity: Identity,
        frames: Sequence[bytes],
        definitions: Mapping[bytes, Callable[[], Definition]],
        others: Sequence[tuple[bytes, bytes]],
    ) -> Verdict:
        """Store frames that this gateway made itself of a foreign request, and further records with them.

        Args:
            identity: Who sent the request.
            frames: Of hosts and collectors that the identity may write of.
            definitions: Hash -> what reads that definition, of all that the frames name.
            others: (key, value) of records that go into the same append.

        Raises:
            Retryable: The log or the metadata store is away; sending the request again is right.
        """
        body = b"".join(frames)
        post = Post(identity, body, tuple(split(body)), self._clock.now_ms())
        lacking = [definitions[name]() for name in self._known.lacking(post.heads)]
        if lacking:
            await self._sinks.definitions(lacking)
            self._known.remember(lacking)
        return await self._store(post, others)

    async def _store(self, post: Post, others: Sequence[tuple[bytes, bytes]]) -> Verdict:
        """Append what is admissible of a post whose definitions are known."""
        verdict = admit(post, self._known, self._repeats, self._bounds)
        await self._learn_plans(post.identity, verdict)
        if verdict.records or others:
            await self._sinks.records([*verdict.records, *others])
        self._repeats.add(verdict.repeat_keys)
        return verdict

    async def _learn_plans(self, identity: Identity, verdict: Verdict) -> None:
        """Put on record what the frames show of their cadence; what follows a first one in the same post counts too."""
        for _ in range(2):
            wishes = self._plans.learnt(identity, verdict.accepted)
            if not wishes:
                return
            self._plans.settle(wishes, await self._sinks.plans(wishes))

    async def _read(self, identity: Identity, body: bytes) -> Post:
        now_ms = self._clock.now_ms()
        if len(body) > LARGE_BYTES:
            return await asyncio.to_thread(read_post, identity, body, now_ms)
        return read_post(identity, body, now_ms)

    async def _learn_definitions(self, post: Post, lacking: set[bytes]) -> Post:
        """Return the post, its definitions known and its unreadable frames marked."""
        if sum(head.raw_bytes for head in post.heads if head.inline) > LARGE_BYTES:
            inline, faults = await asyncio.to_thread(_read_inline, post, lacking, self._catalog)
        else:
            inline, faults = _read_inline(post, lacking, self._catalog)
        if inline:
            await self._sinks.definitions(list(inline.values()))
            self._known.remember(inline.values())
        sound = [head for index, head in enumerate(post.heads) if index not in faults]
        elsewhere = self._known.lacking(sound)
        if elsewhere:
            found = await self._sinks.find_definitions(list(elsewhere))
            self._known.remember(found[name] for name in elsewhere if name in found)
        unknown = sorted(self._known.lacking(sound))
        if unknown:
            raise SchemaUnknown(unknown_definitions(unknown, post), unknown)
        return replace(post, faults=faults)


def _read_inline(
    post: Post, lacking: set[bytes], catalog: Catalog
) -> tuple[dict[bytes, Definition], dict[int, Refusal]]:
    """Return the lacking definitions that frames carry, and the frames whose definitions could not be read."""
    found: dict[bytes, Definition] = {}
    faults: dict[int, Refusal] = {}
    for index, head in enumerate(post.heads):
        wanted = {head.schema_hash, head.entities_hash} & lacking - found.keys()
        if not head.inline or not wanted:
            continue
        try:
            found.update((item.name, item) for item in inline_definitions(post.body, head, wanted, catalog))
        except Rejected as error:
            faults[index] = Refusal(error.code, f"collector {head.collector_id}: {error.message}")
    return found, faults
