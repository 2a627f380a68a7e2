"""Take native frames in: from an authenticated body to records that are durable before the answer is sent.

The order is: read and check the whole body, know its definitions, put plans on record, decide about each frame, append
everything in one go. A step that raises leaves nothing of the frames in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from secondsight.access.identity import Identity
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.admission import Bounds, Refusal
from secondsight.gateway.door import Door
from secondsight.gateway.frames import (
    Post,
    RefuseSeries,
    Verdict,
    admit,
    cost_of,
    post_of,
    read_post,
    unknown_definitions,
)
from secondsight.gateway.known import Definition, KnownDefinitions, inline_definitions
from secondsight.gateway.plan import InForce, Plans, Wish
from secondsight.gateway.quotas import Allowance
from secondsight.gateway.records import Pair
from secondsight.gateway.repeats import Repeats
from secondsight.gateway.shares import Entry
from secondsight.wire.frame import HeadView, split

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

    Each is told whose the things are.

    Attributes:
        records: Takes (key, value) for the topic `ingest`.
        definitions: Takes definitions.
        find_definitions: Takes hashes and returns those definitions that are stored, perhaps beside others.
        plans: Takes wishes and returns what is in force then.
    """

    records: Callable[[Sequence[Pair], Entry], Awaitable[None]]
    definitions: Callable[[Sequence[Definition], Entry], Awaitable[None]]
    find_definitions: Callable[[Sequence[bytes], Entry], Awaitable[Mapping[bytes, Definition]]]
    plans: Callable[[Sequence[Wish], Entry], Awaitable[InForce]]


class Intake:
    """Takes bodies of native frames. Lives in one event loop; concurrent bodies are independent of each other."""

    def __init__(self, plans: Plans, sinks: Sinks, door: Door, bounds: Bounds, catalog: Catalog, clock: Clock) -> None:
        self._plans = plans
        self._sinks = sinks
        self._door = door
        self._bounds = bounds
        self._catalog = catalog
        self._clock = clock
        self._known = KnownDefinitions()
        self._repeats = Repeats()

    def renew(self) -> None:
        """Judge definitions anew: the catalogue has more metrics now."""
        self._known = KnownDefinitions()

    async def take(self, identity: Identity, entry: Entry, body: bytes) -> Verdict:
        """Store what is admissible of a body and return what became of each frame; durable when it returns.

        Raises:
            Rejected: The whole body is refused, see `read_post`; nothing of it is stored.
            SchemaUnknown: Likewise, until the definitions are sent.
            Overloaded: Likewise; the tenant has used up its quota, or the body is not as urgent as its entry says.
            Retryable: The log or the metadata store is away; sending the body again is right.
        """
        allowance = self._door.allowance(entry)
        try:
            now_ms = self._clock.now_ms()
            if len(body) > LARGE_BYTES:
                read = partial(read_post, identity, body, now_ms)
                post = await self._door.turns.run(entry, len(body), read)
            else:
                post = read_post(identity, body, now_ms)
        except Rejected:
            allowance.charge(0, len(body))
            raise
        values, size_bytes = self._charge(post, entry, allowance)
        try:
            return await self._take(post, entry, allowance)
        except (SchemaUnknown, Retryable, asyncio.CancelledError):
            allowance.give_back(values, size_bytes)
            raise

    async def take_made(
        self,
        identity: Identity,
        entry: Entry,
        frames: Sequence[bytes],
        definitions: Mapping[bytes, Callable[[], Definition]],
        others: Sequence[Pair],
    ) -> Verdict:
        """Store frames that this gateway made itself of a foreign request, and further records with them.

        Args:
            identity: Who sent the request.
            entry: What it was let in by.
            frames: Of hosts and collectors that the identity may write of; their series are counted by who made them.
            definitions: Hash -> what reads that definition, of all that the frames name.
            others: (key, value) of records that go into the same append.

        Raises:
            Overloaded: The tenant has used up its quota.
            Retryable: The log or the metadata store is away; sending the request again is right.
        """
        body = b"".join(frames)
        post = post_of(identity, body, tuple(split(body)), self._clock.now_ms())
        allowance = self._door.allowance(entry)
        values, size_bytes = self._charge(post, entry, allowance)
        try:
            lacking = [definitions[name]() for name in self._known.lacking(post.heads)]
            if lacking:
                await self._sinks.definitions(lacking, entry)
                self._known.remember(lacking)
            return await self._store(post, entry, others, _refuse_none)
        except (Retryable, asyncio.CancelledError):
            allowance.give_back(values, size_bytes)
            raise

    def _charge(self, post: Post, entry: Entry, allowance: Allowance) -> tuple[int, int]:
        """Charge what is no repeat of a post, and return it: values and bytes."""
        values, size_bytes = cost_of(post, self._repeats)
        if size_bytes:
            self._door.quotas.require(entry)
            allowance.charge(values, size_bytes)
        return values, size_bytes

    async def _take(self, post: Post, entry: Entry, allowance: Allowance) -> Verdict:
        lacking = self._known.lacking(post.heads)
        if lacking:
            post = await self._learn_definitions(post, lacking, entry)
        if entry.urgent and not all(map(self._known.is_urgent, post.heads)):
            entry = entry._replace(urgent=False)
            await self._door.require(entry)
        return await self._store(post, entry, (), partial(self._refuse_series, post.identity, allowance))

    async def _store(self, post: Post, entry: Entry, others: Sequence[Pair], refuse_series: RefuseSeries) -> Verdict:
        """Append what is admissible of a post whose definitions are known."""
        verdict = admit(post, self._known, self._repeats, self._bounds, refuse_series)
        wishes = self._plans.learnt(post.identity, verdict.accepted)
        if wishes:
            await self._learn_plans(wishes, post.identity, entry, verdict)
        if verdict.records or others:
            records = [*verdict.records, *others]
            await self._sinks.records(records, entry)
            self._door.pressure.appended(entry, sum([len(value) for _, value in records]))
        self._repeats.add(verdict.repeat_keys)
        return verdict

    def _refuse_series(self, identity: Identity, allowance: Allowance, head: HeadView) -> Refusal | None:
        """Return why the series of a frame are too many for its tenant, None where they are not."""
        now = self._clock.monotonic_seconds()
        key = (identity.cluster_id, head.collector_id, head.schema_hash)
        if allowance.series.knows(key, head.entities_hash, now):
            return None
        entities, columns = self._known.series(head)
        code = allowance.series.admit(key, head.entities_hash, entities, columns, now) if columns else ""
        if not code:
            return None
        allowance.refused[code] += 1
        words = allowance.series.words(identity.tenant_id, code)
        return Refusal(code, f"collector {head.collector_id} on host {head.host_id}: {words}")

    async def _learn_plans(self, wishes: Sequence[Wish], identity: Identity, entry: Entry, verdict: Verdict) -> None:
        """Put on record what the frames show of their cadence; what follows a first one in the same post counts too."""
        self._plans.settle(wishes, await self._sinks.plans(wishes, entry))
        further = self._plans.learnt(identity, verdict.accepted)
        if further:
            self._plans.settle(further, await self._sinks.plans(further, entry))

    async def _learn_definitions(self, post: Post, lacking: set[bytes], entry: Entry) -> Post:
        """Return the post, its definitions known and its unreadable frames marked."""
        raw_bytes = sum(head.raw_bytes for head in post.heads if head.inline)
        if raw_bytes > LARGE_BYTES:
            read = partial(_read_inline, post, lacking, self._catalog)
            inline, faults = await self._door.turns.run(entry, raw_bytes, read)
        else:
            inline, faults = _read_inline(post, lacking, self._catalog)
        if inline:
            await self._sinks.definitions(list(inline.values()), entry)
            self._known.remember(inline.values())
        sound = [head for index, head in enumerate(post.heads) if index not in faults]
        elsewhere = self._known.lacking(sound)
        if elsewhere:
            found = await self._sinks.find_definitions(list(elsewhere), entry)
            self._known.remember(found[name] for name in elsewhere if name in found)
        unknown = sorted(self._known.lacking(sound))
        if unknown:
            raise SchemaUnknown(unknown_definitions(unknown, post), unknown)
        return replace(post, faults=faults)


def _refuse_none(_head: HeadView) -> None:
    """Refuse no series."""


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
