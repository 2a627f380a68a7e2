"""Answer cold reads as a process of its own: questions come in on standard input, answers go out on standard output.

Whoever started it kills it when a question takes too long, so nothing here has to stop by itself. Its memory is bounded
by the operating system beside the engine's own bound.
"""

import json
import logging
import os
import resource
import sys
from pathlib import Path
from typing import Any, BinaryIO

from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.config import build
from secondsight.errors import Retryable, SecondsightError
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_engine import ColdEngine, EngineLimits
from secondsight.lake.cold_files import ColdFiles
from secondsight.lake.cold_request import decode_request, encode_answer, encode_refusal, receive, send
from secondsight.lake.tables import open_lake
from secondsight.store.schema import tables

MIB = 1 << 20
OVERHEAD_MIB = 2_048
"""Memory of libraries and of rows on their way out, beside the engine's."""


def main() -> None:
    """Serve until standard input ends; the only argument is the settings as JSON."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = json.loads(sys.argv[1])
    config = build(ColdConfig, settings["cold"], "cold")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    bound = (config.memory_mib + OVERHEAD_MIB) * MIB
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    specs = {spec.name: spec for spec in tables(load_catalog(config.catalogue))}
    files = ColdFiles(lambda: open_lake(config.catalog, Path(settings["data"])), specs, SystemClock())
    limits = EngineLimits(config.memory_mib, config.threads, config.rows, config.read_mib * MIB)
    serve(ColdEngine(files, limits), sys.stdin.buffer, answers)


def serve(engine: ColdEngine, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions in their order until there are no more."""
    while (message := receive(questions)) is not None:
        send(answers, _answer(engine, message))
    engine.close()


def _answer(engine: ColdEngine, message: bytes) -> bytes:
    try:
        rows: Any = engine.run(decode_request(message))
        return encode_answer(rows)
    except SecondsightError as error:
        return encode_refusal(error)
    except MemoryError:
        return encode_refusal(Retryable("the process of cold reads ran out of memory"))
