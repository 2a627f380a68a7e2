"""Turn one data folder into a running platform: tokens, settings for each part, and the parts in their order.

What stands in the folder: `tokens/` (one secret a file, mode 0600), `run/` (settings and addresses of this run), `log/`
(the embedded log), `hot/` (the store), `lake/` (its copy in open files), `metadata.sqlite`, `spool/`, `logs/`, and
`ready`, which holds the address while the platform serves.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine

from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import Authenticator, TokenSpec, create_token
from secondsight.agent.simulate.incidents import incident_named
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.reach import reach_store
from secondsight.supervise import Part, Supervisor, answers, listening_socket, lock_data

TENANT = "default"
REGION = "local"
LOCAL_CLUSTER = "local"
CANARY = "canary"
"""Name of the part, of its token, and of the tenant and cluster of its series, which nobody is granted."""
SIMULATED_CLUSTERS = (("cedar", "H100", 0.5), ("iris", "H200", 0.3), ("lotus", "A100", 0.2))


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `secondsight up` was asked for.

    Attributes:
        host, port: Public address; port 0 picks a free one.
        simulate: Hosts and GPUs a host of the simulated fleet, or None for no fleet.
        incidents: Incidents of the simulated fleet, by name.
        history_seconds: Past that a new simulated fleet is given, in the background.
        local_agent: Collect from this machine too.
        kafka: Brokers that hold the log, `HOST:PORT` divided by commas; "" for files in `data`.
        clickhouse: Server that keeps the tables; files in `data` if absent.
        processors: How many processes share the log; more than one want brokers and a server.
        lake: Keep what is stored in a lake of open files in `data` as well.
        canary: Send series that are known in advance, and read them back from every tier.
        catalogue: Further catalogue files of the operator, for every part.
    """

    data: Path
    host: str
    port: int
    simulate: tuple[int, int] | None
    incidents: tuple[str, ...]
    seed: int
    history_seconds: int
    local_agent: bool
    kafka: str = ""
    clickhouse: ClickHouseConfig | None = None
    processors: int = 1
    lake: bool = True
    canary: bool = True
    catalogue: tuple[Path, ...] = ()


def run_up(options: UpOptions, clock: Clock, say: Callable[[str], None], supervisor: Supervisor) -> bool:
    """Start everything, announce it, and keep it running until the supervisor is asked to stop.

    Returns whether every part stopped by itself.

    Raises:
        Rejected: `bad_data`, `unknown_incident`.
        Retryable: The folder or an address is taken, or a part did not start.
        OSError: The folder cannot be written.
    """
    data = options.data
    _require(options, clock)
    lock = lock_data(data)
    try:
        for name in ("ready", "run/store.address"):
            (data / name).unlink(missing_ok=True)
        public = listening_socket(options.host, options.port)
        inner = listening_socket(options.host, 0 if options.port == 0 else options.port + 1)
        clusters = simulated_clusters(options.simulate)
        make_tokens(data, [name for name, _, _ in clusters], clock)
        for part in _parts(options, public, inner):
            supervisor.start(part)
        if not supervisor.is_stopping:
            _announce(options, public, say)
        supervisor.watch()
        say("stopping: what was taken in is stored first")
        return supervisor.stop()
    finally:
        supervisor.stop()
        (data / "ready").unlink(missing_ok=True)
        os.close(lock)


def _require(options: UpOptions, clock: Clock) -> None:
    """Refuse before anything starts what no part could work with.

    Raises:
        Rejected: `bad_data`, `bad_config`, `unknown_incident`, or what a server refuses.
        Retryable: A server is away.
    """
    odd = sorted({letter for letter in str(options.data) if letter in "?#" or not letter.isprintable()})
    if odd:
        raise Rejected("bad_data", f"--data {str(options.data)!r} holds {odd[0]!r}", "choose a folder without it")
    for name in options.incidents:
        incident_named(name)
    if options.processors < 1 or (options.processors > 1 and not (options.kafka and options.clickhouse)):
        raise Rejected(
            "bad_config",
            f"{options.processors} processors cannot share files of this machine",
            "say --kafka and --clickhouse as well, or --processors 1",
        )
    if options.clickhouse is not None:
        store = reach_store("", options.clickhouse, clock)
        try:
            store.query("SELECT 1")
        finally:
            store.close()


def simulated_clusters(fleet: tuple[int, int] | None) -> list[tuple[str, str, int]]:
    """Return (cluster, board, hosts) of a simulated fleet; few hosts make one cluster, more make three."""
    if fleet is None:
        return []
    hosts = fleet[0]
    if hosts < 6:
        return [(SIMULATED_CLUSTERS[0][0], SIMULATED_CLUSTERS[0][1], hosts)]
    first, second = round(hosts * SIMULATED_CLUSTERS[0][2]), round(hosts * SIMULATED_CLUSTERS[1][2])
    shares = (first, second, hosts - first - second)
    return [(name, board, share) for (name, board, _), share in zip(SIMULATED_CLUSTERS, shares, strict=True)]


def parse_fleet(text: str) -> tuple[int, int]:
    """Return (hosts, GPUs a host) of a text such as `200x8`.

    Raises:
        Rejected: `bad_fleet`.
    """
    hosts, _, gpus = text.partition("x")
    if not (hosts.isdigit() and gpus.isdigit() and 0 < int(hosts) <= 100_000 and 0 < int(gpus) <= 64):
        raise Rejected("bad_fleet", f"{text!r} is not HOSTSxGPUS", "for example 200x8")
    return int(hosts), int(gpus)


def make_tokens(data: Path, clusters: list[str], clock: Clock) -> None:
    """Write the tokens that the folder lacks, or whose token the metadata store no longer knows."""
    (data / "tokens").mkdir(mode=0o700, exist_ok=True)
    metadata = open_metadata(str(data / "metadata.sqlite"))
    try:
        _make_token(data, metadata, clock, "admin", TokenSpec(Role.ADMIN, TENANT, "admin"))
        _make_token(data, metadata, clock, "collector", _collector("collector", LOCAL_CLUSTER))
        _make_token(data, metadata, clock, CANARY, replace(_collector(CANARY, CANARY), tenant_id=CANARY))
        for cluster in clusters:
            _make_token(data, metadata, clock, f"simulate-{cluster}", _collector(f"simulate-{cluster}", cluster))
    finally:
        metadata.dispose()


def _collector(name: str, cluster: str) -> TokenSpec:
    return TokenSpec(Role.COLLECTOR, TENANT, name, cluster_id=cluster, region=REGION, collector_pattern="*")


def _make_token(data: Path, metadata: Engine, clock: Clock, name: str, spec: TokenSpec) -> None:
    path = data / "tokens" / name
    if path.exists():
        try:
            Authenticator(metadata, clock).authenticate(path.read_text().strip())
        except Rejected:
            path.unlink()
        else:
            return
    secret = create_token(metadata, spec, clock.now_ms()).secret
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(secret + "\n")


def _parts(options: UpOptions, public: socket.socket, inner: socket.socket) -> list[Part]:
    config = options.data / "run" / "config.toml"
    gateway_port, public_port = inner.getsockname()[1], public.getsockname()[1]
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text(_settings(options, public, inner))
    settings = ("--config", str(config))
    parts = [
        *_processors(options, config),
        Part("rollup", ("rollup", *settings), lambda: True),
        Part("gateway", ("gateway", *settings), lambda: answers(options.host, gateway_port, "/healthz"), (inner,)),
        Part("api", ("api", *settings), lambda: answers(options.host, public_port, "/healthz"), (public,)),
    ]
    if options.lake:
        parts.append(Part("lake", ("lake", *settings), lambda: True))
        parts.append(Part("retention", ("retention", "run", *settings), lambda: True))
    if options.canary:
        parts.append(Part(CANARY, (CANARY, *settings), lambda: True))
    if options.local_agent:
        parts.append(Part("agent", ("agent", *settings), lambda: True))
    if options.simulate is not None:
        parts.append(Part("simulate", ("simulate", *settings), lambda: True))
    return parts


def _processors(options: UpOptions, config: Path) -> list[Part]:
    """Return the processors: one over the settings of all parts, further ones with their own name in the group."""
    if options.clickhouse is None:
        ready = (options.data / "run" / "store.address").exists
        return [Part("processor", ("processor", "--config", str(config)), ready)]
    parts = []
    for number in range(1, options.processors + 1):
        name = "processor" if number == 1 else f"processor-{number}"
        own = config.with_name(f"{name}.toml")
        own.write_text("".join(_table(*each) for each in _processor_tables(options, name).items()))
        parts.append(Part(name, ("processor", "--config", str(own)), lambda: True))
    return parts


def _processor_tables(options: UpOptions, name: str) -> dict[str, dict[str, object]]:
    tables: dict[str, dict[str, object]] = {"processor": {"data": options.data}}
    if options.kafka:
        tables["processor.kafka"] = {"brokers": options.kafka, "replication": 1, "instance": name}
    if options.clickhouse is not None:
        tables["processor.clickhouse"] = _clickhouse_table(options.clickhouse)
    return tables


def _clickhouse_table(config: ClickHouseConfig) -> dict[str, object]:
    table: dict[str, object] = {"url": config.url, "user": config.user, "database": config.database}
    files = {"password_file": config.password_file, "ca_file": config.ca_file}
    return table | {name: path.absolute() for name, path in files.items() if path is not None}


def _settings(options: UpOptions, public: socket.socket, inner: socket.socket) -> str:
    """Return the settings of every part as TOML."""
    data = options.data
    gateway_url = _address(options.host, inner)
    tables: dict[str, dict[str, object]] = {
        "gateway": {"data": data, "listen": f"fd:{inner.fileno()}"},
        "rollup": {"data": data},
        "lake": {"data": data},
        "retention": {"data": data},
        "api": {"data": data, "listen": f"fd:{public.fileno()}", "gateway": gateway_url},
        "agent": {
            "gateway": gateway_url,
            "token_file": data / "tokens" / "collector",
            "spool_dir": data / "spool" / "agent",
        },
        CANARY: {
            "data": data,
            "gateway": gateway_url,
            "token_file": data / "tokens" / CANARY,
            "events_token_file": data / "tokens" / "collector",
            "lake": options.lake,
        },
    }
    tables |= _processor_tables(options, "processor")
    if options.kafka:
        tables["gateway.kafka"] = {"brokers": options.kafka, "replication": 1}
    if options.clickhouse is not None:
        server = _clickhouse_table(options.clickhouse)
        tables |= {f"{part}.clickhouse": server for part in ("api", "rollup", "lake", "retention", CANARY)}
    if options.catalogue:
        files = [str(path.absolute()) for path in options.catalogue]
        tables["api.cold"] = {}
        for name in ("gateway", "processor", "rollup", "lake", "retention", "api", "api.cold", CANARY):
            tables[name] = tables[name] | {"catalogue": files}
        tables["agent"] = tables["agent"] | {"catalog_files": files}
    text = "".join(_table(name, values) for name, values in tables.items())
    return text + _simulate_settings(options, gateway_url)


def _simulate_settings(options: UpOptions, gateway_url: str) -> str:
    if options.simulate is None:
        return ""
    data = options.data
    text = _table(
        "simulate",
        {
            "gateway": gateway_url,
            "spool_dir": data / "spool" / "simulate",
            "gpus_per_host": options.simulate[1],
            "seed": options.seed,
            "incidents": list(options.incidents),
            "history_seconds": options.history_seconds,
        },
    )
    for name, board, hosts in simulated_clusters(options.simulate):
        token = data / "tokens" / f"simulate-{name}"
        text += _table("[simulate.clusters]", {"name": name, "board": board, "hosts": hosts, "token_file": token})
    return text


def _table(name: str, values: dict[str, object]) -> str:
    lines = [f"{key} = {_toml(value)}\n" for key, value in values.items()]
    return f"[{name}]\n{''.join(lines)}\n"


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, int):
        return str(value).lower()
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _announce(options: UpOptions, public: socket.socket, say: Callable[[str], None]) -> None:
    address = _address(options.host, public)
    waiting = options.data / "ready.new"
    waiting.write_text(address + "\n")
    waiting.rename(options.data / "ready")
    say(f"ready: {address}")
    say(f"sign in with the token in {options.data / 'tokens' / 'admin'}")


def _address(host: str, listening: socket.socket) -> str:
    """Return the HTTP address that reaches a listening socket; a host that means "all" is reached at loopback."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return (
        f"http://[{reached}]:{listening.getsockname()[1]}"
        if ":" in reached
        else f"http://{reached}:{listening.getsockname()[1]}"
    )
