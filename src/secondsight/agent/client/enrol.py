"""Get a token of this agent's own, renew it in time, and say clearly when there is none to be had.

With a join token the agent enrols by itself at its first start; the token that it is given lies beside the spool, for
its user alone, and is renewed long before it expires. Nothing is lost meanwhile: what was collected waits in the spool.
A gateway that refuses the token is asked again, with the join token, from time to time. No secret is ever logged.
"""

import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from secondsight.agent.client.answers import code_and_message, json_of, sent_ms
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.pace import Backoff
from secondsight.agent.client.secret import read_secret
from secondsight.agent.client.transport import Observed, Transport
from secondsight.agent.counts import Counts
from secondsight.agent.wholefile import write_whole
from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable

logger = logging.getLogger(__name__)

TOKEN_MODE = 0o600
TOKEN_FILE, EXPIRY_FILE, MACHINE_FILE = "token", "token.expiry", "machine"
RENEW_SHARE = 2 / 3
"""A token is renewed when so much of its life is over."""

BACKOFF_SECONDS = 2.0
BACKOFF_MAXIMUM_SECONDS = 300.0
LEAST_SECONDS = 1.0
LOOK_SECONDS = 3600.0
SECRET_CHARACTERS = 200
FOREVER_MS = 253_402_300_799_999
JOIN_SECONDS = 5.0
NO_TOKEN_STATUS = frozenset({401})


@dataclass(frozen=True, slots=True)
class EnrolSettings:
    """How the agent comes by its token; table `[agent.enrol]`.

    Attributes:
        join_token_file: File that holds a join token; needed until the agent is enrolled, and when it was away for
            longer than its token lived.
    """

    join_token_file: Path


class Asking(Protocol):
    """Shows a secret to the gateway and asks to be enrolled. One thread uses it."""

    def enrol(self, secret: str, body: bytes) -> Answer:
        """Return the gateway's answer.

        Raises:
            Retryable: No answer came.
        """
        ...

    def close(self) -> None:
        """Close connections, from any thread, ending a request under way; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class EnrolParts:
    """What an enroller works with.

    Attributes:
        folder: Where the token is kept.
        root: Folder that holds the host's `etc`.
        random: Gives numbers in [0, 1).
    """

    settings: EnrolSettings
    asking: Asking
    folder: Path
    root: Path
    collector_id: str
    host_id: str
    counts: Counts
    random: Callable[[], float]


class Enroller:
    """Keeps the token of one agent good. One thread calls `run`; `note_answer` is for any thread."""

    def __init__(self, parts: EnrolParts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._changed = threading.Condition()
        self._refused = False
        self._ending = False
        self._said = ""
        self._backoff = Backoff(BACKOFF_SECONDS, BACKOFF_MAXIMUM_SECONDS, parts.random)
        self._on_token: Callable[[], None] = lambda: None

    @property
    def has_token(self) -> bool:
        """Tell whether there is a token."""
        return (self._parts.folder / TOKEN_FILE).is_file()

    @property
    def trouble(self) -> str:
        """Return why there is no good token, "" while there is one."""
        return self._said

    @property
    def renew_ms(self) -> int | None:
        """Return when the token is to be renewed, epoch ms; None where there is none that ever expires.

        Where this host's clock has gone back since the token came, that is now: how old it is cannot be told.
        """
        try:
            told = json.loads((self._parts.folder / EXPIRY_FILE).read_text())
            renew_ms, kept_ms = told["renewMs"], told.get("keptMs", 0)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not (isinstance(renew_ms, int) and isinstance(kept_ms, int) and renew_ms > 0):
            return None
        now_ms = self._clock.now_ms()
        return renew_ms if kept_ms <= now_ms else min(renew_ms, now_ms)

    def note_answer(self, status: int) -> None:
        """Take note of the gateway's answer to something else: a token that it refuses is of no use."""
        if status in NO_TOKEN_STATUS and not self._refused:
            with self._changed:
                self._refused = True
                self._changed.notify()

    def end(self) -> None:
        """Let `run` return, ending the request that it is at; may be called twice."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._parts.asking.close()

    def run(self, on_token: Callable[[], None]) -> None:
        """Enrol and renew until told to end; call `on_token` whenever there is a new token."""
        self._on_token = on_token
        while not self._ending:
            if self._guarded_step():
                self._backoff.reset()
                self._wait(max(self._seconds_left(), LEAST_SECONDS), until_refused=True)
            else:
                self._wait(self._backoff.next_seconds(None))

    def step(self) -> bool:
        """Do what is due; return whether all is well now."""
        if not self.has_token or self._refused:
            return self._enrol()
        if self._seconds_left() <= 0:
            return self._renew()
        return True

    def _guarded_step(self) -> bool:
        try:
            return self.step()
        except (Retryable, Permanent, OSError) as error:
            self._say(f"this agent could not be enrolled, what it collects waits in its spool: {error}")
        except Exception:
            logger.exception("enrolling failed on a fault of this program")
        self._parts.counts.add("enrol_failed")
        return False

    def _enrol(self) -> bool:
        path = self._parts.settings.join_token_file
        try:
            secret = read_secret(path, "join token file")
        except Retryable as error:
            reason = "its token is refused" if self._refused else "it has no token yet"
            raise Retryable(f"{reason}, and the {error}") from error
        return self._ask(secret, "enrolled")

    def _renew(self) -> bool:
        return self._ask(read_secret(self._parts.folder / TOKEN_FILE), "renewed its token")

    def _ask(self, secret: str, word: str) -> bool:
        parts = self._parts
        applicant = {"collectorId": parts.collector_id, "hostId": parts.host_id, "machine": self._machine()}
        self._keep_times(min(self.renew_ms or FOREVER_MS, self._clock.now_ms()))
        answer = parts.asking.enrol(secret, json.dumps(applicant).encode())
        told = json_of(answer)
        if answer.status == 200 and _is_secret(told.get("token")):
            self._keep(told, answer)
            self._refused, self._said = False, ""
            logger.info("agent %s %s; its token is in %s", parts.collector_id, word, parts.folder / TOKEN_FILE)
            self._on_token()
            return True
        code, message = code_and_message(answer)
        self._say(
            f"the gateway does not enrol this agent ({answer.status} {code}: {message}); "
            "what it collects waits in its spool"
        )
        parts.counts.add("enrol_failed")
        return False

    def _keep(self, told: dict[str, Any], answer: Answer) -> None:
        """Keep a token, and when to renew it by this host's clock, which need not be right."""
        now_ms = self._clock.now_ms()
        expires_ms = told.get("expiresMs")
        write_whole(self._parts.folder / TOKEN_FILE, f"{told['token']}\n".encode(), TOKEN_MODE)
        if not isinstance(expires_ms, int) or not 0 < expires_ms < FOREVER_MS:
            self._keep_times(0)
            return
        given_ms = sent_ms(answer)
        life_ms = expires_ms - (now_ms if given_ms is None else given_ms)
        self._keep_times(round(now_ms + (RENEW_SHARE * life_ms if life_ms > 0 else LOOK_SECONDS * 1000)))

    def _keep_times(self, renew_ms: int) -> None:
        """Keep when to renew, 0 for never.

        Before the gateway is asked that is at once: a disk that would not take a token has it not replaced, and an
        agent that dies between the two files renews.
        """
        times = {"renewMs": renew_ms, "keptMs": self._clock.now_ms()}
        write_whole(self._parts.folder / EXPIRY_FILE, json.dumps(times).encode(), TOKEN_MODE)

    def _seconds_left(self) -> float:
        """Return how long until the token is to be renewed; long for one that lives for ever."""
        renew_ms = self.renew_ms
        return LOOK_SECONDS if renew_ms is None else min((renew_ms - self._clock.now_ms()) / 1000, LOOK_SECONDS)

    def _machine(self) -> str:
        """Return a text that only this machine knows: of its machine id, else random and kept."""
        try:
            text = (self._parts.root / "etc/machine-id").read_text(errors="replace").strip()
        except OSError:
            text = ""
        if not text:
            text = self._kept_machine()
        return hashlib.sha256(f"secondsight {text}".encode()).hexdigest()

    def _kept_machine(self) -> str:
        path = self._parts.folder / MACHINE_FILE
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            text = secrets.token_hex(16)
            write_whole(path, f"{text}\n".encode(), TOKEN_MODE)
            return text

    def _wait(self, seconds: float, *, until_refused: bool = False) -> None:
        """Wait, or until told to end, or until the token that is good by now is refused."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or (until_refused and self._refused), seconds)

    def _say(self, text: str) -> None:
        """Log what is wrong, once until it is something else."""
        if text != self._said:
            logger.warning("%s", text)
        self._said = text


class Enrolling:
    """Runs an enroller beside an agent, where there is one. `start` and `end` once each.

    Attributes:
        enroller: None where the agent was given a token.
    """

    def __init__(self, enroller: Enroller | None) -> None:
        self.enroller = enroller
        self._thread: threading.Thread | None = None

    def told(self, transport: Transport) -> Transport:
        """Return a transport whose answers tell when the token is refused."""
        enroller = self.enroller
        return (
            transport if enroller is None else Observed(transport, lambda answer: enroller.note_answer(answer.status))
        )

    def start(self, on_token: Callable[[], None]) -> None:
        """Start to keep the token good; `on_token` is called whenever there is a new one."""
        if self.enroller is not None:
            self._thread = threading.Thread(target=self.enroller.run, args=(on_token,), name="enrol", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop."""
        if self.enroller is not None and self._thread is not None:
            self.enroller.end()
            self._thread.join(JOIN_SECONDS)


def _is_secret(told: object) -> bool:
    """Tell whether a text can be a token: one that cannot be sent is of no use."""
    return isinstance(told, str) and 0 < len(told) <= SECRET_CHARACTERS and told.isascii() and told.isprintable()
