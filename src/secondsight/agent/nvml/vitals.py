"""Say how the driver is, as the reader of GPU rows knows it: which GPUs answer, how quickly, and what is wrong."""

from typing import Any

from secondsight.agent.health.vitals import Facts
from secondsight.agent.nvml import channel
from secondsight.agent.nvml.source import GpuSource


def driver_facts(source: GpuSource) -> Facts:
    """Return the state of the driver of one host; asks nothing of the driver."""
    driver = source.driver
    facts: dict[str, Any] = {
        "isThere": source.found,
        "pid": driver.pid,
        "restarts": max(driver.generation - 1, 0),
        "trouble": driver.trouble,
        "gpus": len(source.by_number),
    }
    newest, answered = driver.newest, driver.answered
    if newest is None or answered is None:
        return facts
    read = [one for one in newest.records if one.what == channel.MAIN]
    silent = sorted(one.number for one in newest.records if one.what == channel.BUSY)
    seconds = [one.taken_us / 1e6 for one in read] + [one.busy_ms / 1e3 for one in newest.records]
    names = {number: f"{gpu.uuid} (index {gpu.index}, {gpu.pci_bus_id})" for number, gpu in source.by_number.items()}
    return facts | {
        "answeredAgeSeconds": round(max(source.clock.monotonic_seconds() - answered, 0.0), 3),
        "code": newest.code,
        "listed": newest.listed,
        "latencySeconds": max(seconds, default=None),
        "failing": {names[one.number]: one.code for one in read if one.code and one.number in names},
        "silent": [names[number] for number in silent if number in names],
    }
