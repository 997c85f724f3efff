"""`lore config` and `lore token`: settings in force with their origins, and keys for clients. Neither needs a daemon."""

import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.client import Failure
from orchestrator.cli.terminal import Report, note, output, result, result_json
from orchestrator.wire.faults import USAGE

app = typer.Typer(no_args_is_help=True, help="Settings in force, and where they came from.")
token_app = typer.Typer(no_args_is_help=True, help="Keys for clients over TCP.")
Sigil = Annotated[str, given.option("--sigil SIGIL", "what it permits: a sigil's name, or owner")]
Name = Annotated[str, given.option("--name NAME", "what to call it in the configuration")]
Part = Annotated[str, typer.Argument(metavar="[PART]", help="only settings with this in their name, such as threads")]


@app.command()
def show(
    part: Part = "", config: given.Config = None, as_json: given.Json = False, socket: given.Socket = None
) -> None:
    """Prints every setting with its value, origin, range and meaning."""
    from orchestrator.settings.sources import describe

    loaded = local.settings(config, {"serve.socket": socket})
    rows = [row for row in describe(loaded.settings, loaded.origins) if part in row.key]
    if not rows:
        raise Failure(USAGE, f"no setting has {part!r} in its name", "`lore config show` lists every setting")
    output({"settings": [asdict(row) for row in rows]}, settings_page, as_json=as_json)


def settings_page(report: Report) -> str:
    return "\n".join(line for row in report["settings"] for line in lines_of(row))


def lines_of(row: Report) -> Iterator[str]:
    value = row["value"] if row["value"] not in ("", []) else "-"
    unit = f" {row['unit']}" if row["unit"] in ("s", "tokens") and isinstance(value, (int, float)) else ""
    takes = f", takes {row['range']}" if row["range"] else ""
    yield f"{row['key']} = {value}{unit}  ({row['origin']}{takes})"
    yield f"    {row['help']}"


@app.command()
def check(config: given.Config = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Reads all settings and says whether they can be used, as lore serve would: models are looked into, none is loaded."""
    from orchestrator.preflight import unusable

    loaded = local.settings(config, {"serve.socket": socket})
    faults = unusable(loaded, local.paths())
    rules = [file for file in local.paths().gate_rules if file.exists()]
    files = [str(file) for file in (*loaded.files, *rules)]
    if as_json:
        found = [asdict(fault) for fault in faults]
        result_json({"ok": not faults, "files": files, "set": dict(loaded.origins), "faults": found})
    elif not faults:
        where = f"; the archive is at {uri}" if (uri := loaded.settings.archive.uri) else ""
        note(f"good: {len(loaded.origins)} set, in {', '.join(files) or 'no file'}{where}")
    else:
        for fault in faults:
            where = f"{fault.origin}: " if fault.origin else ""
            note(f"{where}{fault.key}: {fault.message}\n      {fault.hint}")
    if faults:
        raise typer.Exit(USAGE)


@app.command()
def path(config: given.Config = None, as_json: given.Json = False) -> None:
    """Prints the files that are read, in their order."""
    from orchestrator.settings.sources import looked_for

    files = looked_for(os.environ, Path(config) if config else None)
    if as_json:
        result_json({"files": [{"path": str(file), "exists": file.is_file()} for file in files]})
        return
    for file in files:
        result(str(file))
        if not file.is_file():
            note(f"  {file} does not exist")


@token_app.command("new")
def new_token(sigil: Sigil, name: Name = "client", as_json: given.Json = False) -> None:
    """Makes a token, shows it once, and prints the TOML with its hash for you to put into the configuration."""
    import hashlib
    import secrets

    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise Failure(USAGE, f"{name!r} cannot name a token", "letters, digits, - and _")
    if wrong := local.settings().settings.unknown_sigil(sigil):
        hint = f"name one of them, or write [sigils.{sigil}] into the configuration first"
        raise Failure(USAGE, wrong, hint)
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    toml = f'[tokens.{name}]\nsha256 = "{digest}"\nsigil = "{sigil}"'
    if as_json:
        result_json({"token": token, "name": name, "sigil": sigil, "sha256": digest})
        return
    result(token)
    note("it is shown this once. Put this into the configuration (`lore config path`) and restart the daemon:")
    note(toml)
