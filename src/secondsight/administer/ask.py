"""The command that asks a question in words. It goes through the api, with a token."""

import argparse
import sys

from secondsight.administer.shell import AddCommand, AddServer, Commands, send


def add_ask(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `ask`."""
    asking = add(
        commands,
        "ask",
        "answer a question in words",
        _ask,
        'secondsight ask "Which hosts had Xid 79 this week?"\n'
        '  secondsight ask "Break it down by node" --after "p95 temperature of c1 yesterday"',
    )
    asking.add_argument("question", nargs="+", help="the question, in a sentence")
    asking.add_argument("--timezone", default="UTC", metavar="ZONE", help="zone that `yesterday` is read in (UTC)")
    asking.add_argument(
        "--after", action="append", default=[], metavar="QUESTION", help="an earlier turn that this one leans on"
    )
    asking.add_argument("--json", action="store_true", help="the answer as JSON")
    add_server(asking)


def _ask(arguments: argparse.Namespace) -> int:
    from secondsight.ask.terminal import print_answer

    question = " ".join(arguments.question)
    sent = {"question": question, "timezone": arguments.timezone, "context": arguments.after}
    print_answer(send(arguments, "POST", "/v1/ask", sent), sys.stdout, as_json=arguments.json)
    return 0
