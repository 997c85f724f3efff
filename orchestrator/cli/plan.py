"""`lore plan`: everything decided for a question, and nothing run."""

from typing import Annotated

import typer

from orchestrator.cli import options as given
from orchestrator.cli.connect import daemon
from orchestrator.cli.plan_page import page
from orchestrator.cli.question import Options, body_of
from orchestrator.cli.terminal import result, result_json

Prompt = Annotated[bool, typer.Option("--prompt", help="print the exact text that the engine would get")]


def plan(
    question: given.Question = None,
    codex: given.Codex = None,
    session: given.Session = None,
    continue_last: given.Continue = False,
    identity: given.Identity = None,
    strategy: given.Strategy = None,
    max_tokens: given.MaxTokens = 2048,
    temperature: given.Temperature = None,
    stop: given.Stop = None,
    file: given.Files = None,
    no_wait: given.NoWait = False,
    timeout: given.Timeout = None,
    no_think: given.NoThink = False,
    private: given.Private = False,
    prompt: Prompt = False,
    as_json: given.Json = False,
    socket: given.Socket = None,
) -> None:
    """Shows what would be sent for a question, what of it is cached, and why."""
    options = Options(
        codex=codex,
        session=session,
        continue_last=continue_last,
        identity=identity,
        strategy=strategy,
        max_tokens=max_tokens,
        temperature=temperature,
        stop=stop or (),
        files=file or (),
        no_wait=no_wait,
        timeout_s=timeout,
        no_think=no_think,
        private=private,
    )
    report = daemon(socket).call("POST", "/v1/plan", {**body_of(question, options), "prompt": prompt})
    if as_json:
        result_json(report)
    elif prompt:
        result(report.get("text", ""), end="")
    else:
        result(page(report))
