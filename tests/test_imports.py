"""Processes start without libraries that nothing in them uses."""

import subprocess
import sys

ARRAYS = """
import sys
from secondsight.imports import leave_out_unused
leave_out_unused()
leave_out_unused()
import duckdb, pyarrow, pyarrow.dataset
held = pyarrow.table({"x": pyarrow.array([1, 2, 3])})
assert duckdb.sql("SELECT sum(x) FROM held").fetchall() == [(6,)]
assert duckdb.sql("SELECT x FROM held").to_arrow_table().to_pylist() == held.to_pylist()
print("pandas" in sys.modules)
"""


def test_arrays_and_cold_reads_do_without_pandas() -> None:
    told = subprocess.run([sys.executable, "-c", ARRAYS], capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "False", told.stderr
