"""Options that several commands share, each written once."""

from typing import Annotated, Any

import typer


def option(spelled: str, meaning: str, **limits: Any) -> Any:
    """An option of this spelling, as the reference page has it: `-s, --session NAME`. `limits` are typer's own."""
    *others, last = spelled.split(", ")
    name, _, metavar = last.partition(" ")
    return typer.Option(*others, name, metavar=metavar or None, help=meaning, **limits)


def examples(*lines: str) -> str:
    """For the end of a command's help, a line each."""
    return "\n".join(("\b", "Examples:", *(f"  {one}" for one in lines)))


Socket = Annotated[str | None, option("--socket PATH", "the daemon's socket")]
Json = Annotated[bool, option("--json", "print JSON for programs")]
Config = Annotated[str | None, option("--config FILE", "read this file instead of the usual ones")]
WHICH = "which codex; left out: the one whose folder you are in (the deepest), else the only one"
