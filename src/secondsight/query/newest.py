"""Choose the newest second of the fleet that is worth showing.

Two seconds before now, where most hosts have told so far. Where a processor lags it is the second up to which they
have, so that a lag is a time and not a fleet without values. Who is silent beside others that tell is not waited for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

SLOTS = 3
"""So many of its intervals a value is shown for."""
SECOND_MS = 1_000
BEHIND_MS = 2_000
"""How far behind now the newest second is: most GPUs have told by then."""
WAITED_MS = 30_000
"""So far back the newest second may be: so long lists say of a GPU that it reports."""
APART_MS = 15_000
"""Who is so far behind most of the others is not waited for."""
FEW_SHARE = 10
"""One of so many hosts of a cluster, and one of any two, may be behind the newest second."""

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
HostKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Hosts:
    """The hosts of a layout, in its order.

    Attributes:
        keys: Tenant, cluster and host.
        first: Position of the first cell of each.
        cluster: Number of the cluster of each, ascending.
        cadence_ms: How often each tells.
    """

    keys: tuple[HostKey, ...]
    first: NDArray[np.intp]
    cluster: I64
    cadence_ms: I64


def hosts_of(cells: Sequence[tuple[HostKey, int]]) -> Hosts:
    """Return the hosts of cells, given as the host and the cadence of each, those of a host one after another."""
    runs = [(key, list(places)) for key, places in groupby(range(len(cells)), lambda place: cells[place][0])]
    clusters = {key[:2]: None for key, _ in runs}
    numbers = {cluster: number for number, cluster in enumerate(clusters)}
    return Hosts(
        keys=tuple(key for key, _ in runs),
        first=np.array([places[0] for _, places in runs], np.intp),
        cluster=np.array([numbers[key[:2]] for key, _ in runs], np.int64),
        cadence_ms=np.array([max(cells[place][1] for place in places) for _, places in runs], np.int64),
    )


def latest_second(now_ms: int) -> int:
    """Return the newest second that can be asked for."""
    return (now_ms - BEHIND_MS) // SECOND_MS * SECOND_MS


def second_told(hosts: Hosts, told_ms: I64, latest_ms: int) -> int:
    """Return the newest second, up to `latest_ms`, at which all but a few hosts of every cluster have values.

    Hosts that told nothing within `WAITED_MS`, and those further than `APART_MS` behind most, are not waited for. Where
    no host told anything it is the earliest second there may be, from which it goes on without going back.

    Args:
        hosts: Who is expected.
        told_ms: Time of the newest row of each; 0 where none is known.
        latest_ms: The newest second that can be asked for.
    """
    if not told_ms.size:
        return latest_ms
    earliest_ms = latest_ms - WAITED_MS
    through_ms = np.minimum(told_ms + hosts.cadence_ms - 1, latest_ms)
    known = through_ms[through_ms > earliest_ms]
    if not known.size:
        return earliest_ms
    most_ms = np.sort(known)[known.size // 2]
    waited = through_ms > max(earliest_ms, most_ms - APART_MS)
    cluster = hosts.cluster[waited]
    shown_ms = told_ms[waited] + SLOTS * hosts.cadence_ms[waited]
    if (_of_all_but_few(cluster, shown_ms) > latest_ms).all():
        return latest_ms
    return int(_of_all_but_few(cluster, through_ms[waited]).min()) // SECOND_MS * SECOND_MS


def _of_all_but_few(cluster: I64, time_ms: I64) -> I64:
    """Return of each cluster the least time of its hosts, a few of the least left out."""
    order = np.lexsort((time_ms, cluster))
    _, first, count = np.unique(cluster[order], return_index=True, return_counts=True)
    few = np.maximum(count // FEW_SHARE, count > 1)
    found: I64 = time_ms[order][first + few]
    return found
