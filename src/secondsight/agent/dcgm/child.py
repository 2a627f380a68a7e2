"""The process that talks to DCGM: `python -m secondsight.agent.dcgm.child`, one JSON line a message.

It reads a line of settings, then a number for each reading that is wanted, and answers with that number, the entities
when they are new, and the values. It ends when its input does. Whatever fails is said in the answer; the connection is
made anew for the next one.
"""

import importlib
import json
import os
import sys
from typing import Any, TextIO

from secondsight.agent.dcgm.watch import Engine
from secondsight.agent.turn import turn
from secondsight.clock import SystemClock

LOOK_EVERY = 30
"""GPUs are counted anew after so many readings; other ones make a new connection."""


class Child:
    """Answers requests, keeping a connection between them."""

    def __init__(self, settings: dict[str, Any], out: TextIO) -> None:
        self._settings = settings
        self._out = out
        self._engine: Engine | None = None
        self._readings = 0
        self._modules: tuple[Any, Any, Any] | None = None
        self._clock = SystemClock()

    def answer(self, number: int) -> None:
        """Write the answer to one request."""
        try:
            told = self._read()
        except Exception as error:  # noqa: BLE001 # the bindings raise a class for each status, and whatever else
            self._engine = None
            told = {"error": f"{type(error).__name__}: {error}"}
        self._out.write(json.dumps({"n": number} | told) + "\n")
        self._out.flush()

    def _read(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self._engine is None:
            engine = self._connected()
            told["entities"] = [entity.facts for entity in engine.entities]
            told["leftOut"] = {str(one): why for one, why in sorted(engine.left_out.items())}
            self._engine = engine
            self._readings = 0
        self._readings += 1
        if self._readings % LOOK_EVERY == 0:
            self._look_for_others(self._engine)
        return told | {"values": self._engine.latest()}

    def _connected(self) -> Engine:
        if self._modules is None:
            sys.path.insert(0, self._settings["bindings"])
            names = ("dcgm_agent", "dcgm_structs", "dcgm_fields")
            agent, structs, fields = (importlib.import_module(name) for name in names)
            self._modules = (agent, structs, fields)
        agent, structs, fields = self._modules
        with turn(self._settings["turnFiles"], self._clock, _report):
            engine = Engine(agent, structs, fields, self._settings["address"], self._settings["intervalMs"])
            engine.watch(self._settings["fields"])
        return engine

    def _look_for_others(self, engine: Engine) -> None:
        known = [entity.number for entity in engine.entities if "GPU_I_ID" not in entity.facts]
        if sorted(engine.gpus_now()) != sorted(known):
            raise RuntimeError("the engine has other GPUs than before")


def _report(text: str) -> None:
    sys.stderr.write(f"dcgm child: {text}\n")


def main() -> None:
    """Answer until the input ends. Words of the bindings go to standard error, never among the answers."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    child = Child(json.loads(sys.stdin.readline()), out)
    for line in sys.stdin:
        child.answer(int(line))


if __name__ == "__main__":
    main()
