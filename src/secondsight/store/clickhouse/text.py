"""Write statements as the HTTP interface of ClickHouse takes them: inserts, parameters, settings."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from secondsight.errors import Rejected
from secondsight.store.params import literal
from secondsight.store.spec import quoted
from secondsight.store.statement import wide_columns

PARAMETER_BYTES = 1_000
"""Longest list that is sent as a parameter: servers and proxies before them bound the length of an address."""
WIDE_BYTES = 16
_SETTING_NAME = re.compile(r"\A[a-z_][a-z0-9_]*\Z")
_LIST = re.compile(r"\{([a-z_][a-z0-9_]*):(Array\([^{}]*\))\}", re.IGNORECASE)


def insert_body(table: str, data: pa.Table) -> bytes:
    """Return an INSERT with the rows of an Arrow table; halves X_hi and X_lo of uint64 become one column X."""
    rows = _joined(data.unify_dictionaries().combine_chunks())
    columns = ", ".join(quoted(name) for name in rows.column_names)
    sink = pa.BufferOutputStream()
    sink.write(f"INSERT INTO {quoted(table)} ({columns}) FORMAT ArrowStream\n".encode())
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def split_params(sql: str, params: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return a statement and its parameters, where lists too long for a parameter have become part of the statement."""
    long = {name for name, text in params.items() if len(text) > PARAMETER_BYTES} & {
        found[1] for found in _LIST.finditer(sql)
    }

    def written(found: re.Match[str]) -> str:
        return f"CAST({literal(params[found[1]])} AS {found[2]})" if found[1] in long else found[0]

    return _LIST.sub(written, sql), {name: text for name, text in params.items() if name not in long}


def setting_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as text.

    Raises:
        Rejected: `bad_setting`.
    """
    return {_setting_name(name): _setting_text(value) for name, value in settings.items()}


def _joined(rows: pa.Table) -> pa.Table:
    """Return the rows with each pair of halves as one column of 16 bytes, least significant first."""
    for name in wide_columns(rows.column_names):
        halves = [rows.column(f"{name}{half}").to_numpy() for half in ("_lo", "_hi")]
        whole = pa.py_buffer(np.stack(halves, axis=1).astype("<u8"))
        wide = pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDE_BYTES), rows.num_rows, [None, whole])
        rows = rows.drop_columns([f"{name}_hi", f"{name}_lo"]).append_column(name, wide)
    return rows


def _setting_name(name: str) -> str:
    if not _SETTING_NAME.match(name):
        raise Rejected("bad_setting", f"no setting is called {name!r}")
    return name


def _setting_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
