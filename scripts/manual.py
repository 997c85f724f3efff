"""Manual pages and completions for shells, made from the commands themselves, below share/ where a wheel installs them.

`lore(1)` tells what concerns all commands; each command, or group of commands, has a page of its own, as git has it. The
completions are typer's: they ask `lore` at each TAB, so they hold for any version of it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

MAN = "man/man1"
SHELLS = {
    "bash": "bash-completion/completions/lore",
    "zsh": "zsh/site-functions/_lore",
    "fish": "fish/vendor_completions.d/lore.fish",
}
EXIT = {
    0: "done",
    1: "failed",
    2: "usage",
    3: "the daemon cannot be reached",
    4: "over budget, with the numbers",
    5: "nothing found: an unknown codex, session, memory or trace",
    6: "not permitted",
    7: "the model is paused",
    8: "not ready in time",
    130: "Ctrl-C",
}
ENVIRONMENT = {
    "LORE_SOCKET": "the daemon's socket, where --socket names none",
    "LORE_MODEL": "the model of lore serve: a GGUF file, or a built-in one",
    "LORE_SECTION__KEY": "any setting, as LORE_MODEL__CONTEXT for model.context; lore config show lists them",
    "LORE_DEBUG": "set: a mistake in lore itself is shown with its traceback",
    "NO_COLOR": "set: no colour, whatever its value",
    "VISUAL, EDITOR": "the editor of lore identity edit",
}
FILES = {
    "/etc/lorekeep/config.toml, $XDG_CONFIG_HOME/lorekeep/config.toml": "the settings; later ones win, key by key",
    "$XDG_RUNTIME_DIR/lorekeep/lore.sock": "the socket of a user's daemon",
    "/run/lorekeep/lore.sock": "the socket of the system's daemon",
}


def files() -> dict[str, str]:
    """The text of each file below share/."""
    from orchestrator.cli.commands import COMMANDS

    pages = {f"{MAN}/lore.1": whole(), **{f"{MAN}/lore-{name}.1": page(name) for name in COMMANDS}}
    made = {name: "\n".join(lines) + "\n" for name, lines in pages.items()}
    return made | {place: completion(shell) for shell, place in SHELLS.items()}


# ---- pages -----------------------------------------------------------------------------------------------------------


def whole() -> Iterator[str]:
    """lore(1)."""
    from orchestrator.cli.commands import COMMANDS

    top = command_of("")
    yield from head("lore", top.help)
    yield from (".B lore", "[OPTIONS] COMMAND [ARGS]...", ".SH DESCRIPTION", roff(top.help))
    yield from ("Results go to stdout, everything else to stderr. Every command that reports takes", ".BR \\-\\-json ;")
    yield from (".B lore schema", "has the schemas. A command asks the daemon, which", ".B lore serve", "starts.")
    yield ".SH OPTIONS"
    yield from options(top)
    yield ".SH COMMANDS"
    for name in COMMANDS:
        yield from (".TP", f".BR lore\\-{roff(name)} (1)", roff(first_sentences(command_of(name).help)))
    yield from section("EXIT STATUS", {str(status): meaning for status, meaning in EXIT.items()})
    yield from section("ENVIRONMENT", ENVIRONMENT)
    yield from section("FILES", FILES)


def page(name: str) -> Iterator[str]:
    """Of a command, or of a group with all its commands."""
    found = command_of(name)
    yield from head(f"lore-{name}", found.help)
    parts = [(f"lore {name}", found)] if not subcommands(found) else subcommands(found, f"lore {name} ")
    for at, (spelled, command) in enumerate(parts):
        yield from ([".br"] if at else [])
        yield from (f".B {roff(spelled)}", usage(command))
    yield from (".SH DESCRIPTION", roff(words(found.help)))
    if parts[0][1] is found:
        yield ".SH OPTIONS"
        yield from options(found)
        yield from examples(found)
    else:
        yield ".SH COMMANDS"
        for spelled, command in parts:
            yield from (f".SS {roff(spelled)}", roff(words(command.help)))
            yield from options(command)
    yield from (".SH SEE ALSO", ".BR lore (1)")


def head(name: str, about: str) -> Iterator[str]:
    yield f'.TH "{roff(name.upper())}" "1" "" "Lorekeep" "Lorekeep"'
    yield from (".SH NAME", f"{roff(name)} \\- {roff(first_sentences(about).removesuffix('.'))}", ".SH SYNOPSIS")


def section(title: str, rows: dict[str, str]) -> Iterator[str]:
    yield f".SH {title}"
    for name, meaning in rows.items():
        yield from (".TP", f".B {roff(name)}", roff(meaning))


def options(command: Any) -> Iterator[str]:
    for one in shown(command):
        yield from (".TP", f".B {roff(spelled(one))}", roff(one.help or ""))


def examples(command: Any) -> Iterator[str]:
    if command.epilog:
        lines = [roff(line.strip()) for line in command.epilog.splitlines()[2:]]
        yield from (".SH EXAMPLES", ".nf", *lines, ".fi")


def usage(command: Any) -> str:
    arguments = [one for one in shown(command) if not one.opts[0].startswith("-")]
    names = (spelled(one) if one.required else f"[{spelled(one).strip('[]')}]" for one in arguments)
    return roff(" ".join(["[OPTIONS]", *names]))


def shown(command: Any) -> list[Any]:
    return [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]


def spelled(parameter: Any) -> str:
    """`-c, --codex NAME`, or an argument's word."""
    if not parameter.opts[0].startswith("-"):
        return str(parameter.metavar or parameter.name.upper())
    return " ".join(filter(None, [", ".join([*parameter.opts, *parameter.secondary_opts]), parameter.metavar]))


def command_of(name: str) -> Any:
    """As typer runs it; '' for lore itself."""
    import typer.main

    from orchestrator.cli.commands import app, imported

    return imported(name) if name else typer.main.get_command(app)


def subcommands(group: Any, before: str = "") -> list[tuple[str, Any]]:
    if not hasattr(group, "list_commands"):
        return []
    found = [(name, group.get_command(None, name)) for name in group.list_commands(None)]
    return [(before + name, one) for name, one in found if not one.hidden]


def words(text: str | None) -> str:
    return " ".join((text or "").replace("\b", "").split())


def first_sentences(text: str | None) -> str:
    return words((text or "").partition("\n\n")[0])


def roff(text: str) -> str:
    """As text for roff: no sign drives it, and a dash is the one that is typed."""
    plain = words(text).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


# ---- completions -----------------------------------------------------------------------------------------------------


def completion(shell: str) -> str:
    """What typer has for this shell. zsh loads a function's file when it is first called: it must call it, too."""
    code = "from orchestrator.cli import main; import sys; sys.argv = ['lore']; main()"
    asked = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "_LORE_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=False,
    )
    text = asked.stdout.strip()
    assert "_LORE_COMPLETE" in text, asked.stderr
    return text.replace("compdef _lore_completion lore", '_lore_completion "$@"') + "\n"
