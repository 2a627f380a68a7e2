"""A stand-in for nvidia-smi, as a program: it prints what a scenario beside it says, run after run.

`install` writes the program and its scenario. A run is a list of steps: a text is printed (and the loop's period
waited for), {"exit": code} ends, {"hang": true} stays for ever without a word and does not heed SIGTERM.
Every start is written to a file beside it, with its arguments.
"""

import json
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!{python}
import json, pathlib, signal, sys, time
place = pathlib.Path({place!r})
scenario = json.loads(place.joinpath("scenario.json").read_text())
if "--help-query-gpu" in sys.argv:
    print("Section about columns")
    for name in scenario["columns"]:
        print('"' + name + '"\\nsays something.')
    sys.exit(0)
with place.joinpath("starts").open("a") as out:
    out.write(json.dumps(sys.argv[1:]) + "\\n")
number = len(place.joinpath("starts").read_text().splitlines()) - 1
period = scenario.get("period_seconds", 0.05)
run = scenario["runs"][min(number, len(scenario["runs"]) - 1)]
if {{"hang": True}} in run:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in run:
    if isinstance(step, dict):
        if "exit" in step:
            sys.exit(step["exit"])
        print("", flush=True)
        while True:
            time.sleep(60)
    print(step, end="", flush=True)
    time.sleep(period)
while True:
    time.sleep(period)
    print(run[-1], end="", flush=True)
"""


def install(folder: Path, scenario: dict[str, Any]) -> Path:
    """Write the program with its scenario into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(PROGRAM.format(python=sys.executable, place=str(folder)))
    program.chmod(0o755)
    (folder / "scenario.json").write_text(json.dumps(scenario))
    return program


def starts(program: Path) -> list[list[str]]:
    """Return the arguments of every start that was to print rows."""
    try:
        lines = (program.parent / "starts").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]
