"""The tables of the metadata store, and how it is opened, read and written.

Every column added after its table has a server default or may be null: `schema.py` grows a store that is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from secondsight.access.schema import alone, grow_schema, open_engine
from secondsight.errors import Retryable

ID_LENGTH_MAXIMUM = 200
"""Characters of a tenant, a cluster or a region."""

NAME_LENGTH_MAXIMUM = 512
"""Characters of a collector, a host or a subject; as long as a frame allows."""

METADATA = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only in INTEGER

TENANTS = Table(
    "tenants",
    METADATA,
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

TENANT_QUOTAS = Table(
    "tenant_quotas",
    METADATA,
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("values_per_second", BigInteger),
    Column("bytes_per_second", BigInteger),
    Column("burst_seconds", BigInteger),
    Column("active_series", BigInteger),
    Column("new_series_per_minute", BigInteger),
    Column("weight", BigInteger),
    Column("changed_ms", BigInteger, nullable=False),
)

RETENTION = Table(
    "retention",
    METADATA,
    Column("table_name", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("retention_class", Integer, primary_key=True, autoincrement=False),
    Column("days", Float),
    Column("changed_ms", BigInteger, nullable=False),
)

HOT_FLOORS = Table(
    "hot_floors",
    METADATA,
    Column("table_name", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("floor_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("token_id", String(32), primary_key=True),
    Column("secret_sha256", LargeBinary(32), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("name", Text, nullable=False),
    Column("region", String(ID_LENGTH_MAXIMUM), nullable=False, server_default=""),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), nullable=False, server_default=""),
    Column("collector_pattern", Text, nullable=False, server_default=""),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("host_id", String(NAME_LENGTH_MAXIMUM), nullable=False, server_default=""),
)

JOIN_TOKENS = Table(
    "join_tokens",
    METADATA,
    Column("token_id", String(32), primary_key=True),
    Column("secret_sha256", LargeBinary(32), nullable=False, unique=True),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("region", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("collector_pattern", Text, nullable=False),
    Column("uses_maximum", BigInteger),
    Column("uses", BigInteger, nullable=False, server_default="0"),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
)

ENROLMENTS = Table(
    "enrolments",
    METADATA,
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("collector_id", String(NAME_LENGTH_MAXIMUM), primary_key=True),
    Column("host_id", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("machine_sha256", LargeBinary(32), nullable=False),
    Column("token_id", String(32), nullable=False),
    Column("enrolled_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id_sha256", LargeBinary(32), primary_key=True),
    Column("token_id", String(32), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("user_id", String(32), nullable=False, server_default=""),
    Index("sessions_by_expiry", "expires_ms"),
)

GRANTS = Table(
    "grants",
    METADATA,
    Column("grant_id", _Id, primary_key=True),
    Column("subject", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("clusters", Text),
    Column("teams", Text),
    Column("jobs", Text),
    Column("model_ids", Text),
    Column("denied_metrics", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
    Column("source", String(20), nullable=False, server_default=""),
    Index("grants_by_subject", "subject"),
)

USERS = Table(
    "users",
    METADATA,
    Column("user_id", String(32), primary_key=True),
    Column("subject_sha256", LargeBinary(32), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("created_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("disabled_ms", BigInteger),
)

SIGN_INS = Table(
    "sign_ins",
    METADATA,
    Column("state_sha256", LargeBinary(32), primary_key=True),
    Column("verifier", String(128), nullable=False),
    Column("nonce", String(64), nullable=False),
    Column("back", Text, nullable=False, server_default=""),
    Column("expires_ms", BigInteger, nullable=False),
)

DEFINITIONS = Table(
    "definitions",
    METADATA,
    Column("hash", LargeBinary(16), primary_key=True),
    Column("blob", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

PLANS = Table(
    "plans",
    METADATA,
    Column("plan_id", _Id, primary_key=True),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("collector_id", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("host_id", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("kind", String(40), nullable=False),
    Column("interval_ms", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger),
    Column("version", BigInteger, nullable=False),
    Column("learnt", Boolean, nullable=False, server_default=false()),
    Column("unlogged", Boolean, nullable=False, server_default=false()),
    Column("without", Text, nullable=False, server_default=""),
    UniqueConstraint("tenant_id", "cluster_id", "collector_id", "kind", "version", name="plans_version"),
)

SAMPLING_RULES = Table(
    "sampling_rules",
    METADATA,
    Column("rule_id", _Id, primary_key=True),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), nullable=False, server_default=""),
    Column("host_id", String(NAME_LENGTH_MAXIMUM), nullable=False, server_default=""),
    Column("gpu_id", String(NAME_LENGTH_MAXIMUM), nullable=False, server_default=""),
    Column("job_id", String(NAME_LENGTH_MAXIMUM), nullable=False, server_default=""),
    Column("kind", String(40), nullable=False, server_default=""),
    Column("interval_ms", BigInteger, nullable=False),
    Column("metrics", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("removed_ms", BigInteger),
)

METRIC_STAGES = Table(
    "metric_stages",
    METADATA,
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("metric", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("stage", String(20), nullable=False),
    Column("share_ppm", BigInteger, nullable=False, server_default="0"),
    Column("hosts", Text, nullable=False, server_default="[]"),
    Column("changed_ms", BigInteger, nullable=False),
)

DEBUG_SESSIONS = Table(
    "debug_sessions",
    METADATA,
    Column("session_id", String(32), primary_key=True),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("target_kind", String(20), nullable=False),
    Column("target", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("hosts", Text, nullable=False),
    Column("back_ms", BigInteger, nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("stopped_ms", BigInteger),
    Column("values_per_second", BigInteger, nullable=False),
    Column("subject", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Index("debug_sessions_by_end", "tenant_id", "until_ms"),
)

DEBUG_BUDGETS = Table(
    "debug_budgets",
    METADATA,
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), primary_key=True),
    Column("values_per_second", BigInteger, nullable=False),
)

MAINTENANCE = Table(
    "maintenance",
    METADATA,
    Column("window_id", String(32), primary_key=True),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("cluster_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("host_id", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("reason", Text, nullable=False),
    Column("subject", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("maintenance_by_end", "tenant_id", "until_ms"),
)

AUDIT = Table(
    "audit",
    METADATA,
    Column("audit_id", _Id, primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("subject", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("tenant_id", String(ID_LENGTH_MAXIMUM), nullable=False),
    Column("action", String(100), nullable=False),
    Column("outcome", String(100), nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Index("audit_by_time", "time_ms"),
)

QUESTIONS = Table(
    "questions",
    METADATA,
    Column("question_id", String(32), primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("subject", String(NAME_LENGTH_MAXIMUM), nullable=False),
    Column("tenants", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("channel", String(20), nullable=False),
    Column("parent_id", String(32), nullable=False, server_default=""),
    Column("author", Text, nullable=False, server_default=""),
    Column("outcome", String(100), nullable=False),
    Column("rule", String(100), nullable=False, server_default=""),
    Column("text_sha256", String(64), nullable=False),
    Column("generated_sha256", String(64), nullable=False, server_default=""),
    Column("result_sha256", String(64), nullable=False, server_default=""),
    Column("estimated_rows", BigInteger),
    Column("read_rows", BigInteger, nullable=False, server_default="0"),
    Column("read_bytes", BigInteger, nullable=False, server_default="0"),
    Column("result_rows", BigInteger, nullable=False, server_default="0"),
    Column("milliseconds", BigInteger, nullable=False, server_default="0"),
    Index("questions_by_time", "time_ms"),
    Index("questions_by_subject", "subject", "time_ms"),
    Index("questions_by_parent", "parent_id"),
)

QUESTION_TEXTS = Table(
    "question_texts",
    METADATA,
    Column("question_id", String(32), primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("question", Text, nullable=False, server_default=""),
    Column("sql", Text, nullable=False, server_default=""),
    Column("generated", Text, nullable=False, server_default=""),
    Index("question_texts_by_time", "time_ms"),
)

EVENT_IDS = Table(
    "event_ids",
    METADATA,
    Column("id_hash", LargeBinary(16), primary_key=True),
    Column("content_hash", LargeBinary(16), nullable=False),
    Column("first_ms", BigInteger, nullable=False),
    Index("event_ids_by_time", "first_ms"),
)


def open_metadata(url: str) -> Engine:
    """Open the metadata store and grow its schema to what this program needs.

    Args:
        url: SQLAlchemy address (`sqlite:////data/metadata.sqlite`), or the path of an SQLite file. The file's folder is
            made.
    """
    engine = open_engine(url)
    with alone(engine):
        grow_schema(engine, METADATA)
    return engine


@contextmanager
def reading(metadata: Engine) -> Iterator[Connection]:
    """Give a connection to read from.

    Raises:
        Retryable: The store is away or busy.
    """
    with _retryable(), metadata.connect() as connection:
        yield connection


@contextmanager
def writing(metadata: Engine) -> Iterator[Connection]:
    """Give a connection whose writes are kept together when the block ends, or not at all when it raises.

    Let the first statement write: SQLite then waits for its lock before it takes a view of the data.

    Raises:
        Retryable: The store is away or busy.
    """
    with _retryable(), metadata.begin() as connection:
        yield connection


@contextmanager
def _retryable() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise Retryable(f"the metadata store is away or busy: {type(error).__name__}") from error
