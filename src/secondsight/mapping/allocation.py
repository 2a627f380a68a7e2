"""Say who holds which GPU: the words that every allocator's reader and the interval tracker share.

A GPU is its UUID, a MIG slice the part `gi=N` (`ci=M,gi=N` where a slice is cut further). People are ids. A time-sliced
or MPS replica is permission to use a GPU, not a place on it: it never makes its holder the owner.
"""

from dataclasses import dataclass
from enum import StrEnum

from secondsight.mapping.cells import Key, plain_text
from secondsight.wire.content import Event

ALLOCATION = "job_gpu_allocation"
CONFLICT = "job_gpu_conflict"
TEXT_CHARACTERS = 400


class Share(StrEnum):
    """How a holder has a GPU."""

    SOLE = "sole"
    SHARED = "shared"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose work it is.

    Attributes:
        job_id: Id of the job in its scheduler; `namespace/pod` under Kubernetes where nothing names a job.
        workload_id: What runs: a job's name, or `namespace/pod/container`.
        owner_team: Account or namespace, or what the operator maps it to.
        model_id: AI model, where known.
        user_id: Numeric id of the user, never a name.
    """

    job_id: str
    workload_id: str = ""
    owner_team: str = ""
    model_id: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """One line of what an allocator says now: this owner has this GPU.

    Attributes:
        start_ms: When it was given, epoch ms, or None where the allocator does not tell.
        exact: True if the allocator itself states the start; False for a good guess.
    """

    entity: str
    part: str
    owner: Owner
    share: Share = Share.SOLE
    start_ms: int | None = None
    exact: bool = False

    @property
    def place(self) -> Key:
        """Return the GPU or slice."""
        return self.entity, self.part


@dataclass(frozen=True, slots=True)
class Interval:
    """A GPU held from `start_ms` on; the greater version of one (entity, part, job, start) replaces the smaller.

    Attributes:
        end_ms: None while open.
        last_seen_ms: When the allocator last said so.
        end_exact: True if the end is the allocator's own word.
        correction_ms: What is added to both times to make them the platform's; stays as it was at the start, so that
            every version states the same start.
    """

    entity: str
    part: str
    owner: Owner
    share: Share
    start_ms: int
    exact: bool
    last_seen_ms: int
    version: int = 1
    end_ms: int | None = None
    end_exact: bool = False
    correction_ms: int = 0

    @property
    def place(self) -> Key:
        """Return the GPU or slice."""
        return self.entity, self.part

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """Return what stays the same in every version."""
        return self.entity, self.part, self.owner.job_id, self.start_ms


def event_of(interval: Interval, via: str) -> Event:
    """Return the event that reports an interval as it is known now.

    Args:
        interval: The interval.
        via: Which allocator told.
    """
    owner = interval.owner
    attributes = {
        "job_id": owner.job_id,
        "workload_id": owner.workload_id,
        "owner_team": owner.owner_team,
        "model_id": owner.model_id,
        "via": via,
        "start": "exact" if interval.exact else "estimate",
        "clock_correction_ms": str(interval.correction_ms),
    }
    if owner.user_id:
        attributes["user_id"] = owner.user_id
    if interval.end_ms is not None:
        attributes["end"] = "exact" if interval.end_exact else "estimate"
    if interval.share is not Share.SOLE:
        attributes["share"] = interval.share.value
    texts = {name: plain_text(text, TEXT_CHARACTERS) for name, text in attributes.items()}
    return Event(ALLOCATION, *interval.place, interval.start_ms, 0, interval.end_ms, interval.version, texts)


def conflict_event(place: Key, jobs: tuple[str, ...], tick_ms: int, via: str) -> Event:
    """Return the event that says that an allocator lists several sole holders of one GPU."""
    text = plain_text("listed for one GPU: " + ", ".join(jobs), TEXT_CHARACTERS)
    return Event(CONFLICT, *place, tick_ms, len(jobs), attributes={"text": text, "via": via})
