"""Look at the agent that runs here, by what it says of itself."""

from collections.abc import Iterator

from secondsight.agent.config import AgentConfig
from secondsight.agent.health.command import examine
from secondsight.agent.health.judge import State, Verdict
from secondsight.agent.health.words import size
from secondsight.clock import Clock
from secondsight.doctor.findings import Finding, ok, warning
from secondsight.errors import Rejected
from secondsight.release import VERSION

CPU_SHARE, PSS_BYTES = 0.02, 96 << 20
"""Twice and half as much again as what an agent of 8 GPUs may cost."""


def look(config: AgentConfig, clock: Clock) -> tuple[State | None, Verdict | Rejected]:
    """Return what a running agent says, None where none runs, and what is to be said of it."""
    try:
        state, verdict = examine(config.spool_dir, clock)
    except Rejected as error:
        return None, error
    return (state if verdict.is_alive else None), verdict


def running(state: State | None, verdict: Verdict | Rejected) -> Iterator[Finding]:
    """Tell how the agent is."""
    if isinstance(verdict, Rejected):
        yield warning(verdict.message, verdict.hint)
        return
    if state is None:
        yield warning(verdict.line, "systemctl start secondsight-agent, or kubectl -n secondsight get pods")
        return
    yield ok(f"the agent runs, process {state['pid']}, version {state['version']}")
    if state["version"] != VERSION:
        words = f"the agent that runs is {state['version']}, this program is {VERSION}"
        yield warning(words, "restart the agent to finish the upgrade")
    for text in verdict.attention:
        yield warning(text)
    cost = state["cost"]
    if cost["cpuShare"] is not None and cost["cpuShare"] > CPU_SHARE:
        remedy = "secondsight agent status shows how long each reader takes"
        yield warning(f"the agent uses {100 * cost['cpuShare']:.1f} % of a core", remedy)
    if cost["pssBytes"] is not None and cost["pssBytes"] > PSS_BYTES:
        yield warning(
            f"the agent holds {size(cost['pssBytes'])} of memory", "large scrape targets are the usual reason"
        )
