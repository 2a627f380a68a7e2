"""The stage of rollups as a process of its own, over a store that another one owns; killed before its n-th insert."""

import os
import signal
import sys
from pathlib import Path

from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.rollup.run import Roller
from secondsight.store.client import FlightStore

STEPS, STEP_SECONDS = 6, 100.0


class Killing:
    """A store that ends this process, as kill -9 does, in place of one of the inserts."""

    def __init__(self, store, inserts):
        self._store, self._left = store, inserts
        self.query = store.query

    def insert(self, table, data):
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        self._store.insert(table, data)

    def close(self):
        self._store.close()


def main(address: str, now_ms: str, inserts: str) -> None:
    store, clock = FlightStore(Path(address)), ManualClock(int(now_ms))
    roller = Roller(Killing(store, int(inserts)), load_catalog(), clock)
    for _ in range(STEPS):
        roller.step()
        clock.move(STEP_SECONDS)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
