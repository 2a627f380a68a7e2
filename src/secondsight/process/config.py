"""Say what a processor can be told."""

from dataclasses import dataclass
from pathlib import Path

from secondsight.log.kafka.config import KafkaConfig
from secondsight.store.clickhouse.config import ClickHouseConfig


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Settings of a processor and the store that it owns.

    Attributes:
        data: Folder of the platform: log, store, addresses.
        kafka: Brokers that hold the log, instead of files in `data`; they keep it as their topics say.
        clickhouse: Server that keeps the tables, instead of files in `data`; wanted where several processors share the
            log.
        readers: Questions that the store answers at once; further ones wait.
        questions: Questions of people in SQL that run at once besides; further ones are sent away. At least as many as
            `api.sql.at_once`.
        log_hours: Age beyond which segments of the log are deleted, once they are processed.
        log_mib: Size beyond which the oldest segments are deleted, processed or not; what was not is counted.
        catalogue: Further catalogue files of the operator.
        raw_rows: Changed rows that are written at once.
        raw_seconds: Longest time that a row waits for being written.
        rollup_rows: Rollup rows that are written at once.
        rollup_seconds: Longest time that a closed window waits for being written.
        letter_days: Age beyond which dead letters are deleted, whole months at a time.
        window_mib: Memory of open windows; beyond it the oldest are written as they stand, and read back when more of
            them comes. 0 for a third of the memory that there is.
        metrics_listen: Where `/metrics` and `/healthz` are answered, HOST:PORT; port 0 is any free one, noted in
            `run/*.metrics` of the data folder. Empty for none.
    """

    data: Path
    kafka: KafkaConfig | None = None
    clickhouse: ClickHouseConfig | None = None
    readers: int = 4
    questions: int = 2
    log_hours: float = 48.0
    log_mib: int = 32_768
    catalogue: tuple[Path, ...] = ()
    raw_rows: int = 100_000
    raw_seconds: float = 1.0
    rollup_rows: int = 40_000
    rollup_seconds: float = 5.0
    window_mib: int = 0
    letter_days: float = 90.0
    metrics_listen: str = "127.0.0.1:0"
