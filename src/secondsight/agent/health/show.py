"""Turn what an agent said of itself into lines for a terminal."""

from collections.abc import Iterator

from secondsight.agent.health.judge import State, Verdict
from secondsight.agent.health.words import count, plain, short, size, table, width

NONE = "-"
ERROR_CHARACTERS = 90


def lines_of(state: State, verdict: Verdict) -> list[str]:
    """Return everything worth seeing, what needs attention first."""
    lines = [*_head(state, verdict)]
    if verdict.attention:
        lines += ["", "needs attention", *(f"  ! {text}" for text in verdict.attention)]
    blocks = (_readers(state), _spool(state), _parts(state), _lost(state), _processes(state))
    for block in blocks:
        lines += ["", *block]
    return lines


def _head(state: State, verdict: Verdict) -> Iterator[str]:
    up_seconds = (int(state["writtenMs"]) - int(state["startedMs"])) / 1000
    cost = state["cost"]
    cpu = NONE if cost["cpuShare"] is None else f"{100 * cost['cpuShare']:.2f} % of a core"
    memory = NONE if cost["pssBytes"] is None else size(cost["pssBytes"])
    host = "" if state["hostId"] == state["collectorId"] else f" on host {plain(state['hostId'])}"
    said = "" if verdict.age_seconds is None else f"; as of {width(verdict.age_seconds)} ago"
    yield f"agent     {plain(state['collectorId'])}{host}, version {state['version']}, up {width(up_seconds)}{said}"
    yield f"cost      {cpu}, {memory} in {len(cost['processes'])} process(es)"
    yield f"gateway   {plain(state['gateway'])}, {_delivery(state)}"
    yield f"token     {_token(state)}"
    yield f"plan      {_plan(state)}"
    yield f"clock     {_clock(state)}"


def _delivery(state: State) -> str:
    delivery = state["delivery"]
    last = delivery["lastAgeSeconds"]
    waiting = sum(one["records"] for one in state["spool"]["classes"].values())
    held = state["spool"]["heldTicks"]
    done = "nothing delivered yet" if last is None else f"delivered {width(last)} ago"
    return f"{done}, {count(waiting)} records wait, {count(held)} ticks held for company"


def _token(state: State) -> str:
    identity = state["identity"]
    if not identity["hasToken"]:
        return "none"
    where = f"{'of its own' if identity['enrols'] else 'given'}, in {identity['tokenFile']}"
    if identity["renewMs"] is None:
        return where
    left = (identity["renewMs"] - int(state["writtenMs"])) / 1000
    return f"{where}, renewed in {width(left)}" if left > 0 else f"{where}, being renewed"


def _plan(state: State) -> str:
    plan = state["plan"]
    version = plain(plan["version"]) or "none yet"
    coarse = ", ".join(plan["coarseKinds"])
    mode = f"every 30 s of {coarse}" if coarse else "every second"
    return f"{version}, {mode}, {count(plan['sessionCount'])} debug session(s)"


def _clock(state: State) -> str:
    clock = state["clock"]
    if clock["offsetMs"] is None:
        return "not compared with the gateway's yet"
    return f"{clock['offsetMs']:+d} ms against the gateway's, within {clock['uncertaintyMs']} ms"


def _readers(state: State) -> list[str]:
    rows = [["READER", "EVERY", "LAST TICK", "TOOK", "FAILED", "TIMED OUT", "LAST ERROR"]]
    for one in state["readers"]:
        last, took = one["lastAgeSeconds"], one["tookSeconds"]
        error = plain(one["error"])[:ERROR_CHARACTERS] or NONE
        ago = one["errorAgeSeconds"]
        rows.append(
            [
                one["name"],
                width(one["intervalMs"] / 1000).replace(".0 s", " s"),
                NONE if last is None else width(last),
                NONE if took is None else short(took),
                count(one["failed"]),
                count(one["timedOut"]),
                error if ago is None else f"{error} ({width(ago)} ago)",
            ]
        )
    return table(rows)


def _spool(state: State) -> list[str]:
    spool = state["spool"]
    rows = [["SPOOL", "RECORDS", "SIZE", "OLDEST"]]
    for name, one in spool["classes"].items():
        oldest = one["oldestAgeSeconds"]
        age = NONE if oldest is None else width(oldest)
        rows.append([name, count(one["records"]), size(one["bytes"]), age])
    free = spool["freeBytes"]
    room = "" if free is None else f"; {size(free)} free, {size(spool['floorBytes'])} of it left to others"
    limit = f"at most {size(spool['limitBytes'])} in {spool['folder']}{room}"
    return [*table(rows), limit]


def _parts(state: State) -> list[str]:
    lines = []
    for name, facts in sorted(state["parts"].items()):
        if facts.get("isThere") is False:
            lines.append(f"{name}: no library of the driver on this host")
            continue
        words = [f"pid {facts.get('pid') or NONE}", f"started again {count(facts.get('restarts', 0))} times"]
        if "gpus" in facts:
            words.insert(0, f"{count(facts['gpus'])} GPUs")
        if facts.get("latencySeconds") is not None:
            words.append(f"slowest GPU {short(facts['latencySeconds'])}")
        lines.append(f"{name}: {', '.join(words)}")
    return lines or ["no child processes"]


def _lost(state: State) -> list[str]:
    lost, delivery = state["lost"], state["delivery"]
    lines = [
        f"since the start: {count(lost['ticksMissed'])} ticks missed, {count(delivery['failedTotal'])} deliveries "
        f"tried again, {size(delivery['bytesTotal'])} sent"
    ]
    for words, found in (
        ("records given up", lost["droppedRecords"]),
        ("spool writes failed", lost["writeFailures"]),
        ("values discarded", lost["discardedValues"]),
    ):
        if found:
            lines.append(f"{words}: " + ", ".join(f"{name} {count(times)}" for name, times in sorted(found.items())))
    return lines


def _processes(state: State) -> list[str]:
    rows = [["PROCESS", "PID", "CPU", "MEMORY"]]
    for one in state["cost"]["processes"]:
        memory = NONE if one["pssBytes"] is None else size(one["pssBytes"])
        rows.append([one["name"], str(one["pid"]), width(one["cpuSeconds"]), memory])
    return table(rows)
