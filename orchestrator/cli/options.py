"""Options that several commands share, each written once."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter
from typing import Annotated, Any

import typer

Socket = Annotated[str | None, typer.Option("--socket", metavar="PATH", help="the daemon's socket")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="read this file instead of the usual ones")
]
WHICH = "which codex; left out: the one whose folder you are in (the deepest), else the only one"
Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="what to ask; - reads it from standard input")]


@dataclass(frozen=True)
class AskOptions:
    """How a question is to be answered: the options of `lore ask` and `lore plan`, a field each."""

    codex: Annotated[
        str | None, typer.Option("-c", "--codex", metavar="NAME", help=f"{WHICH}; none: the bare model")
    ] = None
    session: Annotated[
        str | None,
        typer.Option(
            "-s", "--session", metavar="NAME", help="a conversation to go on with, or to begin under this name"
        ),
    ] = None
    continue_last: Annotated[
        bool, typer.Option("--continue", help="go on with your last conversation on this codex")
    ] = False
    identity: Annotated[str | None, typer.Option("--identity", metavar="NAME", help="the persona that answers")] = None
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="NAME", help="force CAG, HYBRID, RAG or RAG+GRAPH")
    ] = None
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, metavar="N", help="longest answer, in tokens")] = (
        2048
    )
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=2, metavar="T", help="0 is greedy")
    ] = None
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="end the answer before this text")
    ] = None
    files: Annotated[
        list[str] | None, typer.Option("-f", "--file", metavar="FILE", help="a file to stand before the question")
    ] = None
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="end with status 8 instead of waiting for model or codex")
    ] = False
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0.001, metavar="S", help="wait at most so many seconds")
    ] = None
    no_think: Annotated[bool, typer.Option("--no-think", help="ask a thinking model for the answer alone")] = False
    private: Annotated[bool, typer.Option("--private", help="leave no trace, conversation or memory")] = False


UNSAID = AskOptions()


def with_ask_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: in place of its parameter `options` one for each of theirs."""

    @functools.wraps(command)
    def called(**given: Any) -> None:
        options = AskOptions(**{field.name: given.pop(field.name) for field in fields(AskOptions)})
        command(**given, options=options)

    parameters: list[Parameter] = []
    for one in inspect.signature(command).parameters.values():
        parameters += spread() if one.name == "options" else [one]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def spread() -> list[Parameter]:
    return [
        Parameter(one.name, Parameter.POSITIONAL_OR_KEYWORD, default=one.default, annotation=one.type)
        for one in fields(AskOptions)
    ]
