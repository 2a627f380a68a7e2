"""The command line: reads arguments, wires parts together, and is the only place that does.

Exit codes: 0 fine, 1 failed, 2 wrong use. Parts are imported when their command runs, so that an agent needs nothing of
the platform.
"""

import argparse
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from secondsight.administer.ask import add_ask
from secondsight.administer.custody import add_custody
from secondsight.administer.deadletters import add_dead_letters
from secondsight.administer.debug import add_debug
from secondsight.administer.events import add_events
from secondsight.administer.grants import add_grants
from secondsight.administer.health import add_doctor, add_status
from secondsight.administer.history import add_history
from secondsight.administer.people import add_people
from secondsight.administer.plans import add_plans, add_stages
from secondsight.administer.retention import add_retention
from secondsight.administer.sql import add_sql
from secondsight.administer.tenants import add_tenants
from secondsight.administer.tokens import add_tokens
from secondsight.administer.up import add_up
from secondsight.clock import SystemClock
from secondsight.config import build, read_settings
from secondsight.errors import Rejected, SecondsightError
from secondsight.imports import leave_out_unused

Command = Callable[[argparse.Namespace], int]
WRONG_USE = frozenset(
    {"bad_config", "bad_data", "bad_fleet", "bad_history", "bad_listen", "bad_zone", "bad_time", "unknown_incident"}
)
WRONG_USE |= {"bad_budget", "bad_expiry", "bad_quota", "bad_rule", "bad_stage", "token_spec_invalid"}
WRONG_USE |= {"bad_retention", "bad_site", "unknown_form"}
"""Codes of refusals that mean that a command was used wrongly: exit code 2."""
DEFAULT_SERVER = "http://127.0.0.1:8470"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    leave_out_unused()
    parsed = parser().parse_args(arguments)
    logging.basicConfig(
        level=os.environ.get("SECONDSIGHT_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    command: Command = parsed.command
    try:
        return command(parsed)
    except Rejected as error:
        _complain(f"{error.message} [{error.code}]" + (f"\n  {error.hint}" if error.hint else ""))
        return 2 if error.code in WRONG_USE else 1
    except SecondsightError as error:
        _complain(str(error))
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _complain(f"{error.filename or 'the operating system refuses'}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        return 1


def _complain(text: str) -> None:
    sys.stderr.write(f"secondsight: {text}\n")


class _Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    wrong_use = 2

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse; what a command does not know is said by the command, whose help is named, not by the whole program."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit."""
        self.exit(self.wrong_use, f"secondsight: {message}\n  {self.prog} --help shows how it is used\n")


class _HookParser(_Parser):
    """A parser of commands that stand in a job's prolog: wrong use is said, and fails nothing."""

    wrong_use = 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    whole = _Parser(prog="secondsight", description="Every second of every GPU in a fleet, kept and explained.")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    add_up(commands, _command)
    for name, text, run in (
        ("gateway", "take samples in", _gateway),
        ("processor", "turn the log into tables, and own the embedded store", _processor),
        ("rollup", "make rollups of 5 min, 1 h and 1 d beside a processor", _rollup),
        ("lake", "keep what is stored in a lake of open files as well", _lake),
        ("api", "serve pages and the read API", _api),
        ("canary", "send series that are known in advance and read them back from every tier", _canary),
    ):
        _add_part(commands, name, text, run)
    _add_agent(commands)
    _add_simulate(commands)
    _add_reads(commands)
    add_ask(commands, _command, _add_server)
    _add_metrics(commands)
    add_tokens(commands, _command)
    add_tenants(commands, _command)
    add_grants(commands, _command)
    add_people(commands, _command)
    add_plans(commands, _command)
    add_retention(commands, _command)
    add_debug(commands, _command, _add_server)
    add_custody(commands, _command, _add_server)
    add_events(commands, _command, _add_server)
    add_dead_letters(commands, _command, _add_server)
    add_sql(commands, _command, _add_server)
    _add_import(commands)
    add_doctor(commands, _command)
    return whole


def _command(
    commands: "argparse._SubParsersAction[_Parser]", name: str, text: str, run: Command, example: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    return parser


def _add_part(
    commands: "argparse._SubParsersAction[_Parser]", name: str, text: str, run: Command
) -> argparse.ArgumentParser:
    part = _command(commands, name, text, run, f"secondsight {name} --config secondsight.toml")
    part.add_argument("--config", type=Path, metavar="FILE", help="TOML file; SECONDSIGHT_* overrides it")
    return part


def _add_agent(commands: "argparse._SubParsersAction[_Parser]") -> None:
    agent = _add_part(commands, "agent", "collect from this host", _agent)
    actions: argparse._SubParsersAction[Any] = agent.add_subparsers(
        title="actions", metavar="ACTION", required=False, parser_class=_Parser
    )
    example = "secondsight agent enroll --config agent.toml"
    enrol = _command(actions, "enroll", "get a token of this agent's own, for a join token", _agent_enroll, example)
    enrol.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="the agent's TOML file")
    add_status(actions, _command)
    jobs = actions.add_parser("job", help="say that a job starts or ends", description="For Slurm's prolog and epilog.")
    jobs.wrong_use = _HookParser.wrong_use
    words: argparse._SubParsersAction[Any] = jobs.add_subparsers(
        title="words", metavar="WORD", required=True, parser_class=_HookParser
    )
    for word, hook in (("start", "prolog"), ("end", "epilog")):
        example = f"secondsight agent job {word} --dir /var/lib/secondsight/jobs"
        said = _command(words, word, f"say in the {hook} that a job {word}s; never fails the job", _agent_job, example)
        said.add_argument("--dir", type=Path, required=True, metavar="DIR", help="what agent.slurm.hooks_dir names")
        said.add_argument("--model-variable", default="", metavar="NAME", help="variable that names the AI model")
        said.set_defaults(word=word)


def _gateway(arguments: argparse.Namespace) -> int:
    from secondsight.gateway.config import GatewayConfig
    from secondsight.gateway.run import serve_gateway

    serve_gateway(
        build(GatewayConfig, read_settings(arguments.config, os.environ, "gateway"), "gateway"), SystemClock()
    )
    return 0


def _processor(arguments: argparse.Namespace) -> int:
    from secondsight.process.config import ServeConfig
    from secondsight.process.serve import serve_processor
    from secondsight.query.lost import asker

    settings = read_settings(arguments.config, os.environ, "processor")
    serve_processor(build(ServeConfig, settings, "processor"), SystemClock(), _stop_event(), asker)
    return 0


def _rollup(arguments: argparse.Namespace) -> int:
    from secondsight.rollup.config import RollupConfig
    from secondsight.rollup.serve import serve_rollup

    settings = read_settings(arguments.config, os.environ, "rollup")
    serve_rollup(build(RollupConfig, settings, "rollup"), SystemClock(), _stop_event())
    return 0


def _lake(arguments: argparse.Namespace) -> int:
    from secondsight.lake.config import LakeConfig
    from secondsight.lake.serve import serve_lake

    settings = read_settings(arguments.config, os.environ, "lake")
    serve_lake(build(LakeConfig, settings, "lake"), SystemClock(), _stop_event())
    return 0


def _canary(arguments: argparse.Namespace) -> int:
    from secondsight.canary.config import CanaryConfig
    from secondsight.canary.serve import serve_canary

    settings = read_settings(arguments.config, os.environ, "canary")
    serve_canary(build(CanaryConfig, settings, "canary"), SystemClock(), _stop_event())
    return 0


def _api(arguments: argparse.Namespace) -> int:
    from secondsight.api.config import ApiConfig
    from secondsight.api.run import serve_api

    serve_api(build(ApiConfig, read_settings(arguments.config, os.environ, "api"), "api"), SystemClock())
    return 0


def _agent(arguments: argparse.Namespace) -> int:
    from secondsight.agent.footprint import bound_libraries, share_one_heap

    bound_libraries(os.environ)
    share_one_heap()

    from secondsight.agent.config import AgentConfig
    from secondsight.agent.run import run_agent
    from secondsight.catalog.living import CatalogFiles, following

    config, clock = build(AgentConfig, read_settings(arguments.config, os.environ, "agent"), "agent"), SystemClock()
    files = CatalogFiles(config.catalog_files)
    following(files, clock, _stop_event(), lambda _catalog, until: run_agent(config, clock, until))
    return 0


def _agent_enroll(arguments: argparse.Namespace) -> int:
    from secondsight.agent.config import AgentConfig
    from secondsight.agent.counts import Counts
    from secondsight.agent.run import enroller_of

    config = build(AgentConfig, read_settings(arguments.config, os.environ, "agent"), "agent")
    if config.enrol is None:
        raise Rejected("bad_config", "agent.enrol is not set", "say enrol.join_token_file, instead of token_file")
    enroller = enroller_of(config, config.enrol, SystemClock(), Counts())
    try:
        return 0 if enroller.step() else 1
    finally:
        enroller.end()


def _agent_job(arguments: argparse.Namespace) -> int:
    """Write what a prolog or epilog says; a job never fails by it."""
    from secondsight.agent.jobs.hooks import write_hook

    try:
        write_hook(arguments.dir, arguments.word, os.environ, SystemClock().now_ms(), arguments.model_variable)
    except (OSError, ValueError) as error:
        _complain(f"the job's {arguments.word} is not noted, the agent finds out later by itself: {error}")
    return 0


def _stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    import signal

    event = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: event.set())
    return event


def _add_simulate(commands: "argparse._SubParsersAction[_Parser]") -> None:
    example = "secondsight simulate --gateway http://127.0.0.1:8471 --token-file data/tokens/collector --hosts 50"
    simulate = _command(commands, "simulate", "drive a fleet of simulated hosts against a gateway", _simulate, example)
    simulate.add_argument("--config", type=Path, metavar="FILE", help="TOML file with a table [simulate]")
    simulate.add_argument("--gateway", metavar="URL", help="address that takes frames")
    simulate.add_argument("--token-file", type=Path, metavar="FILE", help="file that holds a collector token")
    simulate.add_argument("--spool-dir", type=Path, metavar="DIR", help="where unsent frames wait")
    simulate.add_argument("--cluster", metavar="NAME", help="name of the simulated cluster, part of its hosts' names")
    simulate.add_argument("--hosts", type=int, metavar="N", help="number of hosts")
    simulate.add_argument("--gpus", type=int, metavar="N", help="GPUs a host")
    simulate.add_argument("--speed", type=float, metavar="X", help="event seconds per second, from now on")
    simulate.add_argument("--incident", action="append", metavar="NAME", help="let this happen after a minute")
    simulate.add_argument("--seed", type=int, help="the same seed repeats the same fleet")


def _simulate(arguments: argparse.Namespace) -> int:
    from secondsight.agent.simulate.config import fleet_config
    from secondsight.agent.simulate.fleet import run_fleet

    settings = read_settings(arguments.config, os.environ, "simulate")
    run_fleet(fleet_config(settings, vars(arguments)), SystemClock(), _stop_event())
    return 0


def _add_reads(commands: "argparse._SubParsersAction[_Parser]") -> None:
    query = _command(
        commands,
        "query",
        "print a metric over time",
        _query,
        "secondsight query gpu_temperature_celsius --cluster cedar --group-by host --from now-15m",
    )
    query.add_argument("metric", help="a metric's name or alias; `secondsight metrics list` has them")
    for name in ("cluster", "host", "gpu", "job", "team", "model", "gpu-model"):
        query.add_argument(f"--{name}", metavar="ID", help=f"only this {name.replace('-', ' ')}")
    query.add_argument("--from", dest="from_time", default="now-15m", metavar="TIME", help="RFC 3339, ms, or now-15m")
    query.add_argument("--to", dest="to_time", default="now", metavar="TIME")
    query.add_argument("--resolution", default="auto", metavar="STEP", help="auto, 1s, 30s, 5m, ...")
    query.add_argument("--aggregate", metavar="NAME", help="avg, min, max, p95, rate, last, ... as the metric allows")
    query.add_argument("--group-by", metavar="LABEL", help="cluster, host, gpu, job, team or model")
    form = query.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the answer as JSON")
    form.add_argument("--csv", action="store_true", help="the points as CSV")
    top = _command(
        commands, "top", "show the GPUs with the highest values", _top, "secondsight top --metric power -n 20"
    )
    top.add_argument("--metric", default="gpu_utilization_ratio", metavar="NAME")
    top.add_argument("--cluster", metavar="ID", help="only this cluster")
    top.add_argument("-n", type=int, default=20, metavar="N", help="rows (20)")
    top.add_argument("--once", action="store_true", help="print once instead of following")
    top.add_argument("--json", action="store_true", help="the answer as JSON, once, with whole UUIDs")
    for parser in (query, top):
        _add_server(parser)


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        default=_default_server(),
        metavar="URL",
        help="address of the api; else SECONDSIGHT_SERVER, else what data/ready says",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        default=Path(os.environ.get("SECONDSIGHT_TOKEN_FILE", "data/tokens/admin")),
        metavar="FILE",
        help="file that holds a read token (data/tokens/admin)",
    )


def _default_server() -> str:
    """Return the address of the platform that runs on ./data, where nothing else is said."""
    ready = Path("data/ready")
    said = os.environ.get("SECONDSIGHT_SERVER")
    return said or (ready.read_text().strip() if ready.is_file() else DEFAULT_SERVER)


def _query(arguments: argparse.Namespace) -> int:
    from secondsight.query.terminal import query_command

    return query_command(arguments, sys.stdout)


def _top(arguments: argparse.Namespace) -> int:
    from secondsight.query.terminal import top_command

    return top_command(arguments, sys.stdout, SystemClock())


def _add_metrics(commands: "argparse._SubParsersAction[_Parser]") -> None:
    from secondsight.model import EntityKind

    metrics = commands.add_parser("metrics", help="the catalogue", description="The catalogue of metrics.")
    actions = metrics.add_subparsers(title="actions", metavar="ACTION", required=True, parser_class=_Parser)
    example = "secondsight metrics list --kind gpu"
    listing = _command(actions, "list", "list every metric", _metrics_list, example)
    listing.add_argument("--kind", choices=[kind.value for kind in EntityKind], help="only this kind of entity")
    listing.add_argument("--json", action="store_true", help="as JSON")
    add_stages(actions, _command)


def _metrics_list(arguments: argparse.Namespace) -> int:
    from secondsight.catalog.load import load_catalog
    from secondsight.catalog.reference import render_list
    from secondsight.model import EntityKind

    kind = EntityKind(arguments.kind) if arguments.kind else None
    columns = shutil.get_terminal_size().columns
    sys.stdout.write(render_list(load_catalog(), kind, as_json=arguments.json, columns=columns))
    return 0


def _add_import(commands: "argparse._SubParsersAction[_Parser]") -> None:
    imports = commands.add_parser("import", help="read what other programs wrote", description="Read foreign files.")
    forms = imports.add_subparsers(title="forms", metavar="FORM", required=True, parser_class=_Parser)
    text = "read output of nvidia-smi or rocm-smi in any form: CSV, XML, -q, -L, dmon, pmon, JSON"
    example = "secondsight import smi gpus.csv --timezone Europe/Berlin --to http://127.0.0.1:8470 --host node-7 ..."
    add_history(forms, _command)
    smi = _command(forms, "smi", text, _import_smi, example)
    smi.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of one host; - reads standard input")
    smi.add_argument("--timezone", metavar="ZONE", help="zone of local times: Europe/Berlin, UTC, +02:00")
    smi.add_argument("--start", metavar="TIME", help="instant of the first row of files without times, RFC 3339")
    smi.add_argument("--interval", type=float, default=0.0, metavar="SECONDS", help="cadence; taken from the times")
    smi.add_argument(
        "--gpu", action="append", default=[], metavar="INDEX=UUID", help="name a GPU that has no UUID there"
    )
    smi.add_argument("--json", action="store_true", help="everything as JSON")
    smi.add_argument("--to", metavar="URL", help="send it to this gateway")
    smi.add_argument("--token-file", type=Path, metavar="FILE", help="file that holds a collector token")
    smi.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates to trust instead of the system's")
    smi.add_argument("--host", metavar="ID", help="host that the files are of; needed with --to")
    smi.add_argument("--collector", metavar="ID", help="collector id that the token allows; the host if left out")


def _import_smi(arguments: argparse.Namespace) -> int:
    from secondsight.agent.smi.command import import_command

    return import_command(arguments, sys.stdout, SystemClock())
