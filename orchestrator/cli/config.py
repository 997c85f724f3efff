"""`lore config`: settings in force, and where they came from. Needs no daemon."""

from typing import Any

import typer

from orchestrator.cli import local
from orchestrator.cli import options as given
from orchestrator.cli.figures import table
from orchestrator.cli.terminal import note, result, result_json
from orchestrator.wire.faults import USAGE

app = typer.Typer(no_args_is_help=True, help="Settings in force, and where they came from.")


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
        note("\n".join(line for fault in faults for line in told(fault)))
    if faults:
        raise typer.Exit(USAGE)


def told(fault: dict[str, str]) -> list[str]:
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
