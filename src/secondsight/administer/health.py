"""Add the commands that show how an agent is, and what is wrong; what they need is imported when they run."""

import argparse
from pathlib import Path

from secondsight.administer.shell import AddCommand, Commands


def add_status(actions: Commands, add: AddCommand) -> None:
    """Add `agent status`."""
    text = "show how the agent of this host is; exit code 0 if it is alive, 1 if not"
    example = "secondsight agent status --config /etc/secondsight/agent.toml --watch"
    status = add(actions, "status", text, _status, example)
    status.add_argument(
        "--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="the agent's TOML file, for its spool"
    )
    status.add_argument("--spool-dir", type=Path, metavar="DIR", help="the agent's spool folder itself")
    status.add_argument("--json", action="store_true", help="everything as JSON")
    status.add_argument("--quiet", action="store_true", help="print nothing while it is alive; for probes")
    status.add_argument("--watch", action="store_true", help="again every two seconds, until Ctrl-C")


def add_doctor(commands: Commands, add: AddCommand) -> None:
    """Add `doctor`."""
    text = "say what is wrong with this install, host or connection, and what to do"
    example = "secondsight doctor --config /etc/secondsight/agent.toml"
    doctor = add(commands, "doctor", text, _doctor, example)
    doctor.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings of an agent")
    doctor.add_argument("--data", type=Path, metavar="DIR", help="folder of a platform of `secondsight up`")
    doctor.add_argument("--json", action="store_true", help="everything as JSON")
    doctor.add_argument("--quiet", action="store_true", help="only what is wrong")


def _doctor(arguments: argparse.Namespace) -> int:
    from secondsight.doctor.command import doctor_command

    return doctor_command(arguments)


def _status(arguments: argparse.Namespace) -> int:
    from secondsight.agent.health.command import status_command

    return status_command(arguments)
