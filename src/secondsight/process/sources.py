"""Say what is known of sources by their names: which of several counts, and whose clock their times are of.

A source of an agent stamps its ticks with the clock of its host, a foreign sender with whatever it likes.
"""

AGENT_SOURCES: dict[str, int] = {
    "fabric": 0,
    "host": 0,
    "kernel_log": 0,
    "nvml": 0,
    "self": 0,
    "simulate": 0,
    "training": 0,
    "xid_counts": 0,
    "dcgm": 1,
    "kubernetes": 1,
    "logs": 1,
    "sacct": 1,
    "slurm": 1,
    "scrape": 2,
    "lifecycle": 3,
    "smi": 3,
}
"""Source of an agent -> its rank: of several sources of one entity the lowest counts."""
FOREIGN_RANK = 3


def source_rank(source: str) -> int:
    """Return the rank of a source; lower counts first."""
    return AGENT_SOURCES.get(source, FOREIGN_RANK)


def is_agents(source: str) -> bool:
    """Tell whether an agent read it, so that its ticks come in order and with its host's clock."""
    return source in AGENT_SOURCES
