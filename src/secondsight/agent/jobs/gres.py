"""Turn Slurm's texts of generic resources, TRES, indexes and host lists into numbers and names.

Only `gpu` counts as a GPU and `mig` as a slice: other kinds (`tmp:844G`, `gpumem`, `shard`) are ignored. Commas inside
brackets separate nothing. `(null)`, `N/A` and nothing at all are 0, which Slurm means by them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

HOSTS_MAXIMUM = 65_536
INDEXES_MAXIMUM = 1024
DIGITS_MAXIMUM = 9
"""No count of Slurm's is longer."""

_EMPTY = frozenset({"", "(null)", "N/A", "none", "None assigned"})
_SPLIT = re.compile(r",(?![^(\[]*[)\]])").split
_INDEXES = re.compile(r"\(IDX:([^)]*)\)").search
_COUNT = re.compile(r"(\d{1,9})([KMGT]?)").fullmatch
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?").fullmatch
_PROFILE = re.compile(r"\dg\.\d+gb").search
_HOST = re.compile(r"([^\[\]]*)\[([^\[\]]*)\](.*)").fullmatch


@dataclass(frozen=True, slots=True)
class Gres:
    """One kind of generic resource.

    Attributes:
        type: Product as the site names it; "" if it does not.
        indexes: Which of the node's devices, where the text tells.
    """

    name: str
    type: str
    count: int
    indexes: tuple[int, ...] | None = None


def gres_of(text: str) -> list[Gres]:
    """Return the generic resources of a text such as `gpu:a100:4(S:0-1),mig:1g.10gb:7`; what is odd is left out."""
    if text.strip() in _EMPTY:
        return []
    return [found for item in _SPLIT(text.strip()) if (found := _gres(item.strip())) is not None]


def gres_count(text: str, name: str = "gpu") -> int:
    """Return how many of one kind a text of generic resources names."""
    return sum(each.count for each in gres_of(text) if each.name == name)


def tres_count(text: str, name: str = "gpu") -> int | None:
    """Return how many of one kind a TRES text names (`cpu=9,gres/gpu:h100=1,gres/gpu=1`), or None if it names none.

    The untyped figure is the total of the typed ones; where only typed ones stand, they are added up.
    """
    total, typed = None, None
    for item in text.split(","):
        key, _, value = item.strip().partition("=")
        if not value.isdecimal() or len(value) > DIGITS_MAXIMUM:
            continue
        if key == f"gres/{name}":
            total = int(value)
        elif key.startswith(f"gres/{name}:"):
            typed = (typed or 0) + int(value)
    return typed if total is None else total


def held_gpus(tres: str) -> int | None:
    """Return the GPUs of the TRES that a job holds, None where Slurm does not tell: whatever runs holds something."""
    return None if tres.strip() in _EMPTY else tres_count(tres) or 0


def node_indexes(gres: str) -> tuple[int, ...]:
    """Return which of a node's GPUs a text of generic resources names; the numbers of MIG slices name none."""
    found = (each for each in gres_of(gres) if each.name == "gpu" and not _PROFILE(each.type))
    return tuple(index for each in found for index in each.indexes or ())


def indexes_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as `0-3,6`; what is no number is left out."""
    found: list[int] = []
    for item in text.split(","):
        matched = _RANGE(item.strip())
        if matched:
            first, last = int(matched[1]), int(matched[2] or matched[1])
            found += range(first, min(last, first + INDEXES_MAXIMUM) + 1)
    return tuple(dict.fromkeys(found[:INDEXES_MAXIMUM]))


def hosts_of(text: str) -> tuple[str, ...]:
    """Return the hosts of a list such as `node-[001-002,7],login-1`, at most 65,536."""
    if text.strip() in _EMPTY:
        return ()
    hosts = (host for item in _SPLIT(text.strip()) for host in _expand(item.strip()))
    return tuple(dict.fromkeys(host for host, _ in zip(hosts, range(HOSTS_MAXIMUM), strict=False) if host))


def _gres(item: str) -> Gres | None:
    found = _INDEXES(item)
    plain = re.sub(r"\(.*?\)", "", item)
    name, *rest = re.sub(r"^gres[:/]", "", plain).replace("=", ":").split(":")
    number = _COUNT(rest[-1]) if rest else None
    indexes = indexes_of(found[1]) if found else None
    if number is None or number[2]:
        is_gpu = name == "gpu" and number is None and not "".join(rest[-1:]).isdecimal()
        return Gres(name, ":".join(rest), len(indexes or ()) or 1, indexes) if is_gpu else None
    return Gres(name, ":".join(rest[:-1]), int(number[1]), indexes)


def _expand(item: str) -> Iterator[str]:
    found = _HOST(item)
    if not found:
        yield item
        return
    before, ranges, after = found.groups()
    for part in ranges.split(","):
        for middle in _members(part.strip()):
            for rest in _expand(after) if after else ("",):
                yield f"{before}{middle}{rest}"


def _members(part: str) -> Iterator[str]:
    """Give the members of a range such as `001-128`, with as many digits as its first has, or the one text there is."""
    matched = _RANGE(part)
    if not matched:
        yield part
        return
    width = len(matched[1])
    for number in range(int(matched[1]), int(matched[2] or matched[1]) + 1):
        yield f"{number:0{width}d}"
