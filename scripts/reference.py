"""Writes docs/reference/: every setting, command, route, metric and event, read from the program, and share/: manual
pages of the commands, and completions for shells, and docs/models.md: what `lore up` recommends. `--check` only compares.

A page is made from what the program would do, so it can be stale but not wrong; a test holds that it is not stale.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import manual
import reference_http
import reference_metrics
import reference_models
from reference_http import cell

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
SHARE = ROOT / "share"
MODELS = ROOT / "docs" / "models.md"

SETTINGS = """\
# Settings

TOML in `/etc/lorekeep/config.toml`, then `$XDG_CONFIG_HOME/lorekeep/config.toml`, then variables, then options; later
ones win, key by key. The variable of `model.gpu_layers` is `LORE_MODEL__GPU_LAYERS`. `lore config show` prints the
value in force and where it came from; `lore config check` refuses unknown keys and names the nearest known one.
"""
COMMANDS = f"""\
# Commands

Results go to stdout, everything else to stderr. `man lore` and `man lore-ask` have the same. Exit status:
{"; ".join(f"{status} {meaning}" for status, meaning in manual.EXIT.items())}.
"""


def main() -> None:
    wanted = files()
    stale = [path for path, text in wanted.items() if not is_current(path, text)]
    gone = [path for path in written() if path not in wanted]
    if "--check" in sys.argv[1:]:
        raise SystemExit(f"stale: {', '.join(map(str, stale + gone))}; run `make docs`" if stale + gone else 0)
    for path in gone:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")


def files() -> dict[Path, str]:
    """Everything that is written, by its place."""
    made = {FOLDER / name: text for name, text in pages().items()}
    made[MODELS] = "\n".join(reference_models.page()) + "\n"
    return made | {SHARE / name: text for name, text in manual.files().items()}


def written() -> list[Path]:
    """What lies there now."""
    return [path for path in (MODELS, *FOLDER.glob("*.md"), *SHARE.rglob("*")) if path.is_file()]


def pages() -> dict[str, str]:
    makers: dict[str, Callable[[], Iterable[str]]] = {
        "settings.md": settings_page,
        "commands.md": commands_page,
        "http.md": reference_http.page,
        "metrics.md": reference_metrics.page,
    }
    return {name: "\n".join(make()) + "\n" for name, make in makers.items()}


def is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


# ---- settings --------------------------------------------------------------------------------------------------------


def settings_page() -> Iterator[str]:
    from orchestrator.settings.model import Settings, SigilRule, TokenRule
    from orchestrator.settings.sources import describe

    # Tables of named entries have a row per entry that exists: one example of each shows their keys.
    example = Settings(sigils={"NAME": SigilRule()}, tokens={"NAME": TokenRule(sha256="0" * 64)})
    yield SETTINGS
    yield "| key | default | unit | range | meaning |"
    yield "|---|---|---|---|---|"
    for row in describe(example, {}):
        yield f"| `{row.key}` | {default(row.default)} | {row.unit} | {cell(row.range)} | {cell(row.help)} |"


def default(value: Any) -> str:
    return "required" if str(value) == "PydanticUndefined" else f"`{value}`" if value not in ("", []) else "empty"


# ---- commands --------------------------------------------------------------------------------------------------------


def commands_page() -> Iterator[str]:
    yield COMMANDS
    for name, command in sorted(commands()):
        yield from ("", f"## {name}", "", " ".join((command.help or "").split()), "")
        yield from filter(None, (parameter_line(parameter) for parameter in command.params))
        if command.epilog:
            yield from ("", "```", *(line.strip() for line in command.epilog.splitlines()[2:]), "```")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by its full name, as typer has it."""
    import typer.main

    from orchestrator.cli.commands import app

    yield from below("lore", typer.main.get_command(app))


def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for part in command.list_commands(None):
        child = command.get_command(None, part)
        if not child.hidden:
            yield from below(f"{name} {part}", child)


def parameter_line(parameter: Any) -> str:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    if not parameter.opts[0].startswith("-"):
        return f"* `{parameter.metavar or parameter.name.upper()}`: {parameter.help or ''}"
    spelled = " ".join(filter(None, [", ".join([*parameter.opts, *parameter.secondary_opts]), parameter.metavar]))
    return f"* `{spelled}`: {parameter.help or ''}{default_of(parameter)}"


def default_of(parameter: Any) -> str:
    value = parameter.default
    return f" (default {value})" if isinstance(value, (int, float, str)) and value not in (False, True, "") else ""


if __name__ == "__main__":
    main()
