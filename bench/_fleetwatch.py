"""Look at a platform under load as its users do: how old samples are when a query first returns them, and a dashboard.

Freshness is per sample: the moment at which a query first returns it minus its own time, so it holds the 5 s that a
batch takes and up to half a second until the next look. `newest` is that of the last tick of each batch alone: what the
platform itself adds, and 50 ms. Four hosts spread over the phases are watched, by their key and in the parts alone that
hold newer rows than were seen: sixteen hosts four times a second over a whole minute cost the store up to 85 ms of
processor time a look, several times what the inserts did. A dashboard asks the api one question a second, in turn: the
mean power of the cluster over 15 min in 30 s steps, the five hottest GPUs of the last minute, four metrics of one GPU
over 15 min at 1 s.
"""

import http.client
import threading
import time
from urllib.parse import urlsplit

import numpy as np

import _fleet
import _platform
from secondsight.store.client import FlightStore

WATCHED = 4
LOOK_SECONDS = 0.5
PATHS = (
    "/v1/metrics/query?metric=gpu_power_watts&cluster=local&from=now-15m&to=now&resolution=30s&aggregate=avg&groupBy=cluster",
    "/v1/top?metric=gpu_temperature_celsius&window=1m&n=5&by=gpu",
    "/v1/gpus/{gpu}/telemetry?metrics=gpu_power_watts,gpu_utilization_ratio,gpu_temperature_celsius,"
    "gpu_memory_used_bytes&from=now-15m&to=now&resolution=1s",
)


class Watch:
    """Watches from two threads until it is stopped; what was seen before `begin` does not count.

    Args:
        since_seconds: Ticks before this epoch time are not of the load.
    """

    def __init__(self, running: _platform.Running, hosts: int, since_seconds: float) -> None:
        self._running = running
        self._since_ms = since_seconds * 1000
        self._names = [_fleet.host_name(host) for host in range(0, hosts, max(1, hosts // WATCHED))][:WATCHED]
        self._newest: dict[str, int] = {}
        self._ages: list[float] = []
        self._newest_ages: list[float] = []
        self._asked: list[list[float]] = [[] for _ in PATHS]
        self._failed: list[str] = []
        self._rss: dict[str, float] = {}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._look, self._ask)]

    def start(self) -> None:
        """Begin to look and to ask."""
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """Forget what was seen so far: the window begins."""
        self._ages, self._newest_ages, self._failed = [], [], []
        self._asked = [[] for _ in PATHS]

    def stop(self) -> None:
        """Stop looking and asking."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def figures(self) -> dict[str, object]:
        """Return what was seen."""
        asked = [seconds * 1000 for took in self._asked for seconds in took]
        return {
            **_percentiles("freshness", self._ages),
            **_percentiles("newest", self._newest_ages),
            **_percentiles("question", asked),
            "question_p50_ms_each": [round(float(np.median(took)) * 1000, 1) for took in self._asked if took],
            "questions_failed": len(self._failed),
            "questions_failed_first": self._failed[:1],
            "rss_mib": sum(self._rss.values()),
            "rss_mib_by_part": {part: round(mib) for part, mib in self._rss.items()},
        }

    def _look(self) -> None:
        store = FlightStore(self._running.data / "run" / "store.address")
        names = ", ".join(f"'{name}'" for name in self._names)
        seen = "fromUnixTimestamp64Milli({seen:Int64}, 'UTC')"
        sql = (
            "SELECT host_id, toUnixTimestamp64Milli(max(event_time)) AS at FROM gpu_1s"
            " WHERE tenant_id = 'default' AND cluster_id = 'local'"
            f" AND toStartOfTenMinutes(event_time) >= toStartOfTenMinutes({seen})"
            f" AND host_id IN ({names}) AND event_time > {seen} GROUP BY host_id"
        )
        while not self._stop.wait(LOOK_SECONDS):
            oldest = min((self._newest.get(name, 0) for name in self._names), default=0)
            rows = store.query(sql, {"seen": max(oldest, round(self._since_ms))}).to_pylist()
            now_ms = time.time() * 1000
            for row in rows:
                self._note(row["host_id"], int(row["at"]), now_ms)
            for part, mib in self._running.rss_mib_by_part().items():
                self._rss[part] = max(mib, self._rss.get(part, 0.0))
        store.close()

    def _note(self, host: str, at_ms: int, now_ms: float) -> None:
        before = self._newest.get(host, 0)
        ticks = [tick for tick in range(at_ms, max(before, at_ms - 60_000), -1000) if tick >= self._since_ms]
        self._ages += [now_ms - tick for tick in ticks]
        self._newest_ages += [now_ms - tick for tick in ticks[:: _fleet.TICKS]]
        self._newest[host] = max(at_ms, before)

    def _ask(self) -> None:
        address = urlsplit(self._running.address)
        token = (self._running.data / "tokens" / "admin").read_text().strip()
        number = 0
        while not self._stop.wait(1.0 - time.time() % 1.0):
            kind = number % len(PATHS)
            path = PATHS[kind].format(gpu=_fleet.gpu_id(7 * number % len(self._names), number % _fleet.GPUS))
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
            asked = time.perf_counter()
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    self._failed.append(f"{path}: {answer.status} {body[:200]!r}")
            except OSError as error:
                self._failed.append(f"{path}: {error!r}")
            finally:
                connection.close()
            self._asked[kind].append(time.perf_counter() - asked)
            number += 1


def _percentiles(name: str, milliseconds: list[float]) -> dict[str, float]:
    seen = np.array(milliseconds or [float("nan")])
    return {f"{name}_p50_ms": float(np.percentile(seen, 50)), f"{name}_p99_ms": float(np.percentile(seen, 99))}
