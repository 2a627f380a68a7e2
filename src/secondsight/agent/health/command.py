"""The command `secondsight agent status`: read what the agent of a spool folder last said, and show it."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secondsight.agent.health.judge import Instant, State, Verdict, judge
from secondsight.agent.health.process import pid_namespace, start_ticks, this_boot
from secondsight.agent.health.show import lines_of
from secondsight.agent.health.statefile import FORMAT, read_state
from secondsight.agent.health.words import plain
from secondsight.clock import Clock, SystemClock
from secondsight.config import read_settings
from secondsight.errors import Rejected

USUAL_CONFIG = Path("/etc/secondsight/agent.toml")
WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"


def status_command(arguments: argparse.Namespace) -> int:
    """Show how an agent is; 0 if it is alive, 1 if not."""
    folder = arguments.spool_dir or spool_folder(arguments.config, os.environ)
    clock = SystemClock()
    if not arguments.watch:
        return _once(folder, clock, arguments)
    code = 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            code = _once(folder, clock, arguments)
            sys.stdout.flush()
            clock.sleep(WATCH_SECONDS)
    return code


def spool_folder(config: Path | None, environment: Mapping[str, str]) -> Path:
    """Return the spool folder that settings name; other settings may be wrong.

    Raises:
        Rejected: `bad_config`, there is none.
    """
    file = config or (USUAL_CONFIG if USUAL_CONFIG.exists() else None)
    folder = read_settings(file, environment, "agent").get("spool_dir")
    if not isinstance(folder, str) or not folder:
        where = f"{file} names no agent.spool_dir" if file else f"there is no {USUAL_CONFIG}"
        raise Rejected("bad_config", f"which agent? {where}", "name it with --config FILE or --spool-dir DIR")
    return Path(folder).expanduser()


def examine(folder: Path, clock: Clock) -> tuple[State | None, Verdict]:
    """Return what the agent of a folder last said, and what is to be said of it.

    Raises:
        Rejected: `bad_state`.
        OSError: The status file may not be read.
    """
    state = read_state(folder)
    if state is not None and state.get("format") != FORMAT:
        whose = f"the agent of {folder} is of version {plain(str(state.get('version')))}"
        raise Rejected(
            "bad_state", f"{whose} and cannot be read by this program", "restart the agent, or ask with its own"
        )
    instant = Instant(clock.now_ms(), clock.monotonic_seconds(), this_boot(), is_running)
    return state, judge(state, str(folder), instant)


def is_running(state: State) -> bool | None:
    """Tell whether the process of a state is there, None where process numbers are others than the agent's."""
    if not state.get("pidNamespace") or state["pidNamespace"] != pid_namespace():
        return None
    return state.get("startTicks") is not None and start_ticks(int(state["pid"])) == state["startTicks"]


def _once(folder: Path, clock: Clock, arguments: argparse.Namespace) -> int:
    state, verdict = examine(folder, clock)
    if arguments.json:
        told: dict[str, Any] = {"alive": verdict.is_alive, "line": verdict.line, "attention": list(verdict.attention)}
        _say(json.dumps({**told, "state": state}, indent=2))
    elif verdict.is_alive and state is not None and not arguments.quiet:
        _say("\n".join(lines_of(state, verdict)))
    elif not verdict.is_alive:
        _say(f"secondsight agent: {verdict.line}")
    return 0 if verdict.is_alive else 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
