"""`lore plan`: everything decided for a question, and nothing run."""

from typing import Annotated

import typer

from orchestrator.cli import options as given
from orchestrator.cli.ask_options import UNSAID, AskOptions, Question, with_ask_options
from orchestrator.cli.connect import daemon
from orchestrator.cli.plan_page import page
from orchestrator.cli.question import body_of
from orchestrator.cli.terminal import result, result_json

Prompt = Annotated[bool, typer.Option("--prompt", help="print the exact text that the engine would get")]


@with_ask_options
def plan(
    question: Question = None,
    options: AskOptions = UNSAID,
    prompt: Prompt = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what would be sent for a question, what of it is cached, and why."""
    report = daemon(socket).call("POST", "/v1/plan", {**body_of(question, options), "prompt": prompt})
    if as_json:
        result_json(report)
    elif prompt:
        result(report.get("text", ""), end="")
    else:
        result(page(report))
