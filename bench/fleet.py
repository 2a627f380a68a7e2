"""A whole fleet end to end: 10,000 hosts x 8 GPUs x 100 metrics at 1 Hz over HTTP into the platform that `up` runs.

Frames are prepared ahead and re-stamped while `_agents.py`, a process of its own, sends them: one kept-alive connection
a host, 5 s of samples a request, each host at a phase of its own. Gateway, embedded log, processor, store with raw rows
and 30 s rollups run at their defaults; one dashboard question a second is asked of the api beside it. Every figure is
of a window that begins after the first rows of all hosts are stored and BENCH_WARM_UP seconds have passed.

`cores_used` is gateway, processor and api, ledger and window in memory included; `cores_used_all_on` is the supervisor
and all of its parts: rollups, lake and retention as well.

BENCH_MODE: `all` (sustained, growth, ceiling), or one of `sustained`, `growth`, `ceiling`. BENCH_SECONDS: the window
(300). BENCH_HOSTS: of the sustained run (10,000). BENCH_SPLIT=1: frames divided by the priority of their metrics, and
rows of hosts, as an agent of the product sends them. BENCH_QUICK=1: 1,000 hosts, a short look.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _fleet
import _fleetrun
import _platform
import _site

QUICK = os.environ.get("BENCH_QUICK") == "1"
SPLIT = os.environ.get("BENCH_SPLIT") == "1"
MODE = os.environ.get("BENCH_MODE", "all")
HOSTS = int(os.environ.get("BENCH_HOSTS", "1000" if QUICK else "10000"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "8" if QUICK else "300"))
WARM_UP = float(os.environ.get("BENCH_WARM_UP", "2" if QUICK else "30"))
GROWTH_SECONDS = min(SECONDS, 60.0)
GROWTH_HOSTS = (100,) if QUICK else (100, 1000)
CEILING_SECONDS = min(SECONDS, 90.0)
CEILING_BACKLOG_BYTES = 64 << 20
"""Flat out: log that is not processed yet from which senders must wait, so that what is stored keeps up."""

LATE_MAXIMUM_MS = 500.0
CORES_MAXIMUM = 0.35


def main() -> None:
    """Run the modes and print one JSON line."""
    print(f"versions {json.dumps(_platform.versions())}")
    print(f"load average before {_platform.load_average():.2f}")
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        path = str(_site.write_catalogue(Path(folder)))
        catalogue = {f"SECONDSIGHT_{part}_CATALOGUE": path for part in ("GATEWAY", "PROCESSOR", "API")}
        runs = {name: _run(name, load, catalogue) for name, load in _loads().items()}
    print(json.dumps({"name": "fleet", "figures": _figures(runs)}))
    limits = [f"{name}: {why}" for name, run in runs.items() if (why := _generator_limit(run, _loads()[name]))]
    if limits:
        sys.exit(f"the generator, not the product, was the limit; figures do not hold: {'; '.join(limits)}")


def _loads() -> dict[str, _fleetrun.Load]:
    chosen: dict[str, _fleetrun.Load] = {}
    if MODE in ("all", "sustained"):
        chosen["sustained"] = _load(HOSTS, SECONDS, WARM_UP)
    if MODE in ("all", "growth"):
        sizes = [hosts for hosts in (*GROWTH_HOSTS, HOSTS) if hosts != HOSTS or MODE == "growth"]
        chosen |= {f"growth_{hosts}": _load(hosts, GROWTH_SECONDS, min(WARM_UP, 30.0)) for hosts in sizes}
    if MODE == "ceiling" or (MODE == "all" and not QUICK):
        chosen["ceiling"] = _load(HOSTS, CEILING_SECONDS, WARM_UP, flat_out=True)
    if not chosen:
        raise SystemExit(f"BENCH_MODE={MODE} is unknown: all, sustained, growth, ceiling")
    return chosen


def _load(hosts: int, seconds: float, warm_up: float, *, flat_out: bool = False) -> _fleetrun.Load:
    return _fleetrun.Load(hosts, seconds, warm_up, flat_out=flat_out, split=SPLIT)


def _run(name: str, load: _fleetrun.Load, catalogue: Mapping[str, str]) -> dict[str, Any]:
    """Run one load against a new platform and tell what it was."""
    limited = {"SECONDSIGHT_GATEWAY_BACKLOG_BYTES": str(CEILING_BACKLOG_BYTES)} if load.flat_out else {}
    run = _fleetrun.run(load, {**catalogue, **limited})
    print(
        f"{name}: {load.hosts} hosts, window {load.seconds:g} s after {load.warm_up:g} s,"
        f" {run['values_per_batch'] / _fleet.TICKS:.0f} values a host and second,"
        f" {run['noisy_share']:.0%} of GPU columns noisy, {run['wire_bytes_per_value']:.2f} bytes/value on the wire"
    )
    shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in run.items()}
    print(f"{name}: {json.dumps(shown)}", flush=True)
    return run


def _figures(runs: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    main_run = runs.get("sustained") or next(iter(runs.values()))
    by_hosts = {run["hosts"]: run["cpu_ns_per_value"] for name, run in runs.items() if name != "ceiling"}
    ceiling = runs.get("ceiling", {})
    keys = (
        "values_per_second cpu_ns_per_value freshness_p50_ms freshness_p99_ms bytes_per_value rss_mib cores_used"
        " cores_used_all_on hosts offered_values_per_second acked_values_per_second gateway_ns_per_value"
        " processor_ns_per_value"
        " merge_ns_per_value api_ns_per_value gateway_us_per_request ack_p50_ms ack_p99_ms newest_p50_ms newest_p99_ms"
        " lag_seconds_at_end rollup_bytes_per_value generator_cores question_p50_ms question_p99_ms"
    )
    return {
        **{key: _rounded(main_run[key]) for key in keys.split()},
        **{f"cpu_ns_per_value_{hosts}": _rounded(by_hosts.get(hosts)) for hosts in (100, 1000, 10_000)},
        "ceiling_values_per_second": _rounded(ceiling.get("values_per_second")),
        "ceiling_cores_used": _rounded(ceiling.get("cores_used")),
        "seconds": main_run["seconds"],
    }


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _generator_limit(run: Mapping[str, Any], load: _fleetrun.Load) -> str:
    """Say why the generator stood in the way, "" where it did not."""
    if load.flat_out:
        return "its core was never idle" if run["generator_cores"] > 0.9 else ""
    if run["generator_cores"] > CORES_MAXIMUM:
        return f"it took {run['generator_cores']:.2f} cores"
    if run["late_p99_ms"] > LATE_MAXIMUM_MS:
        return f"a hundredth of requests left {run['late_p99_ms']:.0f} ms late or more though their host was free"
    return ""


if __name__ == "__main__":
    main()
