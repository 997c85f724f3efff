"""`lore config` and `lore token`: settings in force with their origins, and keys for clients. Neither needs a daemon."""

from typing import Annotated, Any

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.figures import table
from orchestrator.cli.terminal import note, result, result_json
from orchestrator.wire.faults import USAGE

app = typer.Typer(no_args_is_help=True, help="Settings in force, and where they came from.")
token_app = typer.Typer(no_args_is_help=True, help="Keys for clients over TCP.")
Sigil = Annotated[str, typer.Option("--sigil", metavar="SIGIL", help="what it permits: a sigil's name, or owner")]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="what to call it in the configuration")]


@app.command()
def show(config: given.Config = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Prints every setting with its value, origin, range and meaning."""
    rows = local.settings_table(config, socket)
    if as_json:
        result_json({"settings": rows})
    else:
        result(table(("setting", "value", "from", "range", "meaning"), [cells(row) for row in rows]))


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    value = row["value"] if row["value"] not in ("", []) else "-"
    return (
        row["key"],
        f"{value} {row['unit'] if row['unit'] in ('s', 'tokens') else ''}".strip(),
        row["origin"],
        row["range"],
        row["help"],
    )


@app.command()
def check(config: given.Config = None, as_json: given.Json = False, socket: given.Socket = None) -> None:
    """Reads all settings and says whether they can be used, as lore serve would: models are looked into, none is loaded."""
    loaded = local.settings(config, {"serve.socket": socket})
    faults = local.unusable(loaded)
    files = [str(file) for file in loaded.files]
    if as_json:
        result_json({"ok": not faults, "files": files, "set": dict(loaded.origins), "faults": faults})
    elif not faults:
        note(f"good: {len(loaded.origins)} set, in {', '.join(files) or 'no file'}")
    else:
        note("\n".join(line for fault in faults for line in fault_lines(fault)))
    if faults:
        raise typer.Exit(USAGE)


def fault_lines(fault: dict[str, str]) -> list[str]:
    """What is wrong and where; what to do."""
    where = f"{fault['origin']}: " if fault["origin"] else ""
    return [f"{where}{fault['key']}: {fault['message']}", f"      {fault['hint']}"]


@app.command()
def path(config: given.Config = None, as_json: given.Json = False) -> None:
    """Prints the files that are read, in their order."""
    files = local.settings_files(config)
    if as_json:
        result_json({"files": files})
        return
    for file in files:
        result(file["path"])
        if not file["exists"]:
            note(f"  {file['path']} does not exist")


@token_app.command("new")
def new_token(sigil: Sigil, name: Name = "client", as_json: given.Json = False) -> None:
    """Makes a token, shows it once, and prints the TOML with its hash for you to put into the configuration."""
    import hashlib
    import secrets

    local.known_sigil(sigil)
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    toml = f'[tokens.{name}]\nsha256 = "{digest}"\nsigil = "{sigil}"'
    if as_json:
        result_json({"token": token, "name": name, "sigil": sigil, "sha256": digest})
        return
    result(token)
    note("it is shown this once. Put this into the configuration (`lore config path`) and restart the daemon:")
    note(toml)
