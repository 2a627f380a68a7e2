"""Look at how the agent shows who it is: token, join token, renewal. Secrets are never shown."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

from secondsight.agent.client.enrol import EXPIRY_FILE
from secondsight.agent.config import AgentConfig
from secondsight.agent.health.judge import clock_time
from secondsight.agent.health.words import width
from secondsight.clock import Clock
from secondsight.doctor.findings import Finding, fault, ok, warning


def identity(config: AgentConfig, clock: Clock) -> Iterator[Finding]:
    """Check the token that goes with requests, and where it comes from."""
    path = config.token_path
    if config.enrol is None:
        yield from _secret(path, "the token", "write the token of this collector into it, mode 0600")
        return
    join = config.enrol.join_token_file
    if path.exists():
        yield from _secret(path, "the agent's own token", f"delete it; the agent enrols anew with {join}")
        yield from _renewal(config, clock)
        if not join.exists():
            lost = "an agent that was away for longer than its token lives could not enrol again"
            yield warning(f"the join token file {join} is not there: {lost}", "leave it there, mode 0600")
    else:
        yield warning(f"{config.collector} is not enrolled yet", "the agent enrols at its start; see the checks below")
        yield from _secret(join, "the join token", "secondsight tokens join create --cluster ID, on the platform")


def _secret(path: Path, name: str, remedy: str) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
        text = path.read_text()
    except FileNotFoundError:
        yield fault(f"{name} is not there: {path}", remedy)
        return
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        yield fault(f"{name} in {path} cannot be read: {reason}", "let the agent's user read it, mode 0600")
        return
    secret = text.strip()
    if not secret:
        yield fault(f"{name} in {path} is empty", remedy)
    elif len(secret.split()) > 1 or not secret.isascii():
        yield fault(f"{path} holds more than {name}", "the file holds the secret alone, in one line")
    elif mode & (stat.S_IWGRP | stat.S_IRWXO):
        yield warning(f"{name} in {path} is open to others (mode {stat.S_IMODE(mode):04o})", f"chmod g-w,o-rwx {path}")
    else:
        yield ok(f"{name} is in {path}, mode {stat.S_IMODE(mode):04o}")


def _renewal(config: AgentConfig, clock: Clock) -> Iterator[Finding]:
    renew_ms = _renew_ms(config.spool_dir / EXPIRY_FILE)
    if not isinstance(renew_ms, int) or renew_ms <= 0:
        yield ok("the token does not expire")
        return
    left = (renew_ms - clock.now_ms()) / 1000
    if left < 0:
        remedy = "start the agent, or see the checks of the gateway below"
        yield warning(f"the token should have been renewed {width(-left)} ago", remedy)
    else:
        yield ok(f"the token is renewed by itself in {width(left)}, at {clock_time(renew_ms)}")


def _renew_ms(path: Path) -> object:
    try:
        return json.loads(path.read_text()).get("renewMs")
    except (OSError, ValueError, AttributeError):
        return None
