"""Options that several commands share."""

from typing import Annotated

import typer

Socket = Annotated[str | None, typer.Option("--socket", metavar="PATH", help="the daemon's socket")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
WHICH = "which codex; left out: the one whose folder you are in (the deepest), else the only one"
Codex = Annotated[str | None, typer.Option("-c", "--codex", metavar="NAME", help=f"{WHICH}; none: the bare model")]
Searched = Annotated[str | None, typer.Option("-c", "--codex", metavar="NAME", help=WHICH)]
Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="what to ask; - reads it from standard input")]
Files = Annotated[
    list[str] | None, typer.Option("-f", "--file", metavar="FILE", help="a file to stand before the question")
]
Session = Annotated[
    str | None,
    typer.Option("-s", "--session", metavar="NAME", help="a conversation to go on with, or to begin under this name"),
]
Continue = Annotated[bool, typer.Option("--continue", help="go on with your last conversation on this codex")]
Identity = Annotated[str | None, typer.Option("--identity", metavar="NAME", help="the persona that answers")]
Strategy = Annotated[str | None, typer.Option("--strategy", metavar="NAME", help="force CAG, HYBRID, RAG or RAG+GRAPH")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, metavar="N", help="longest answer, in tokens")]
Temperature = Annotated[float | None, typer.Option("--temperature", min=0, max=2, metavar="T", help="0 is greedy")]
Stop = Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="end the answer before this text")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="end with status 8 instead of waiting for model or codex")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.001, metavar="S", help="wait at most so many seconds")
]
NoThink = Annotated[bool, typer.Option("--no-think", help="ask a thinking model for the answer alone")]
Private = Annotated[bool, typer.Option("--private", help="leave no trace, conversation or memory")]
