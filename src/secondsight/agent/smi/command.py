"""Run `secondsight import smi`: read files, show what they hold, and send it where asked."""

import argparse
import sys
from pathlib import Path
from typing import TextIO

from secondsight.agent.client.transport import GatewayTransport
from secondsight.agent.smi.importing import ImportedFile, ImportOptions, decode, import_texts
from secondsight.agent.smi.instants import rfc3339_us, zone_of
from secondsight.agent.smi.report import as_json, as_text
from secondsight.agent.smi.sending import send
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.errors import Rejected

FILE_BYTES_MAXIMUM = 256 << 20


def import_command(arguments: argparse.Namespace, out: TextIO, clock: Clock) -> int:
    """Read the files that the arguments name; return the exit code: 1 where nothing at all could be read, or sent.

    Raises:
        Rejected: An argument is wrong, or a file is too large.
        Retryable, Permanent: The gateway does not take it.
    """
    if arguments.to and not (arguments.token_file and arguments.host):
        lacking = "--host, the host that the files are of" if arguments.token_file else "--token-file"
        raise Rejected("bad_config", f"import: --to needs {lacking}")
    files = import_texts([(str(path), _text(path)) for path in arguments.files], _options(arguments), load_catalog())
    out.write(as_json(files) if arguments.json else as_text(files))
    if arguments.to and not _send(files, arguments, clock):
        return 1
    return 0 if any(file.document.rows or file.document.faults for file in files) else 1


def _options(arguments: argparse.Namespace) -> ImportOptions:
    gpus = dict(pair.partition("=")[::2] for pair in arguments.gpu)
    if not all(index.isdigit() and uuid for index, uuid in gpus.items()):
        raise Rejected("bad_config", "import: --gpu is INDEX=UUID", "for example --gpu 0=GPU-8a1b...")
    return ImportOptions(
        host_id=arguments.host or "host",
        zone=zone_of(arguments.timezone) if arguments.timezone else None,
        start_ms=rfc3339_us(arguments.start) // 1000 if arguments.start else None,
        interval_ms=round(arguments.interval * 1000),
        gpus=gpus,
    )


def _text(path: Path) -> str:
    if path == Path("-"):
        return decode(sys.stdin.buffer.read(FILE_BYTES_MAXIMUM))
    if path.stat().st_size > FILE_BYTES_MAXIMUM:
        raise Rejected("body_too_large", f"{path} has more than {FILE_BYTES_MAXIMUM >> 20} MiB", "cut it into pieces")
    return decode(path.read_bytes())


def _send(files: list[ImportedFile], arguments: argparse.Namespace, clock: Clock) -> bool:
    """Send what has an instant, say so, and tell whether there was anything to send."""
    collector = f"{arguments.collector or arguments.host}/import"
    transport = GatewayTransport(arguments.to, arguments.token_file, clock, ca_file=arguments.ca_file)
    try:
        sent = send(files, arguments.host, collector, transport, clock)
    finally:
        transport.close()
    left = sum(ms is None for file in files for ms, _ in file.ticks)
    words = f"sent {sent.ticks} ticks in {sent.frames} frames"
    words += f", {sent.duplicates} there before" if sent.duplicates else ""
    words += f", {left} ticks without an instant left out: --timezone or --start give them one" if left else ""
    sys.stderr.write(words + "\n")
    for code, frames in sorted(sent.refused.items()):
        sys.stderr.write(f"refused: {frames} frames [{code}]\n")
    return sent.ticks > 0
