"""Say where tables stand: in an engine of their own, on a server, or on every replica of a cluster."""

from dataclasses import dataclass, replace

from secondsight.store.spec import TableSpec, quoted

DEDUPLICATED_INSERTS = 1_000
"""Inserts of a table that a server without replicas remembers, so that one sent again adds nothing."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """How the tables of a catalogue are made.

    Attributes:
        server: A server keeps them, which may be sent an insert twice.
        cluster: Name of the cluster, as its servers' settings have it, on all of whose replicas they are made; "" for
            one server. The servers' macros and `default_replica_path` say where replicas meet.
        definer: User with whose rights curated views read their tables; "" for the rights of whoever asks.
        credentials: ` USER '...' PASSWORD '...'` that a server reads its own tables with, to look products up.
    """

    server: bool = False
    cluster: str = ""
    definer: str = ""
    credentials: str = ""

    @property
    def on_cluster(self) -> str:
        """Return what CREATE and ALTER say after the name, with a space before it."""
        return f" ON CLUSTER {quoted(self.cluster)}" if self.cluster else ""

    def of(self, spec: TableSpec) -> TableSpec:
        """Return the table as it is made here."""
        if self.cluster:
            return replace(spec, engine=f"Replicated{spec.engine}")
        if self.server:
            remembered = ("non_replicated_deduplication_window", str(DEDUPLICATED_INSERTS))
            return replace(spec, settings=(*spec.settings, remembered))
        return spec


EMBEDDED = Deployment()
