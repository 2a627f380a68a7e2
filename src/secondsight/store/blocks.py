"""Tell what was inserted since a look: a part is named by the numbers of the inserts in it, which only grow."""

from secondsight.contracts import Store

BLOCK = "toInt64OrZero(splitByChar('_', _part)[3])"
"""SQL expression for the newest insert of the part that a row lies in."""


def newest_blocks(store: Store) -> dict[str, int]:
    """Return the newest insert that each table has; empty tables are left out.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT table, max(max_block_number) AS block FROM system.parts "
        "WHERE database = currentDatabase() AND active GROUP BY table"
    )
    return {row["table"]: int(row["block"]) for row in rows.to_pylist()}
