"""Turn the description of one table into ClickHouse DDL."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column.

    Attributes:
        type: ClickHouse type, with Nullable where it applies.
        codec: Text inside `CODEC(...)`, or "" for the engine's default.
        default: Default expression, or "".
    """

    name: str
    type: str
    codec: str = ""
    default: str = ""

    @property
    def ddl(self) -> str:
        """Return the column as CREATE and ADD COLUMN write it."""
        default = f" DEFAULT {self.default}" if self.default else ""
        codec = f" CODEC({self.codec})" if self.codec else ""
        return f"{quoted(self.name)} {self.type}{default}{codec}"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table of the hot store.

    Attributes:
        order: Expressions of the order key; rows equal in all of them are one row.
        partition: Expressions of the partition key; empty for one partition.
        settings: Table settings, as (name, literal) pairs.
    """

    name: str
    columns: tuple[ColumnSpec, ...]
    engine: str
    order: tuple[str, ...]
    partition: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = field(default=())

    def column(self, name: str) -> ColumnSpec:
        """Return the column of that name.

        Raises:
            KeyError: There is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name}")

    def create_statement(self, database: str, on_cluster: str = "") -> str:
        """Return the CREATE TABLE that is safe to run twice; `on_cluster` stands after the name."""
        columns = ",\n  ".join(column.ddl for column in self.columns)
        lines = [
            f"CREATE TABLE IF NOT EXISTS {quoted(database)}.{quoted(self.name)}{on_cluster} (\n  {columns}\n)",
            f"ENGINE = {self.engine}",
            *([f"PARTITION BY ({', '.join(self.partition)})"] if self.partition else []),
            f"ORDER BY ({', '.join(self.order)})",
            *([f"SETTINGS {', '.join(f'{name} = {value}' for name, value in self.settings)}"] if self.settings else []),
        ]
        return "\n".join(lines)


def quoted(name: str) -> str:
    """Quote an identifier."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"
