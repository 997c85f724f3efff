"""What commands print with --json has the schema that `lore schema` prints: no key is missing there, none is made up."""

import json

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from support.house import codebase, living, question, reply
from support.wire_shapes import unlike

from orchestrator.wire.printed import PRINTED, json_schema

# Two need a hub of models (tests/unit/cli/test_model_get.py, test_up.py); two go on until somebody ends them.
ELSEWHERE = {"model get", "up", "chat", "top"}
CODEX, SESSION, MEMORY = "vaults", "talk", "The vaults open at nine."
# In this order on one daemon: what a line needs, a line before it made. `{…}` are folders and ids of the test.
COMMANDS = """\
load {folder} --dry-run
load {folder} --wait
codex list
codex show vaults
codex outline zebra.py -c vaults
search walrus -c vaults
search unlock --definition -c vaults
plan {question} -c vaults --prompt
ask {question} -c vaults -s talk --max-tokens 5
ask {question} -c vaults -s talk --max-tokens 5
status
session list
session search vault
session show talk
session export talk
trace list
trace show last --prompt
trace diff last last
feedback last down --note no
memory add {memory} -c vaults --cite zebra.py:1-3
memory add {memory} --kind decision
memory list
memory review
memory search vaults
memory show {id}
memory rate {id} up
memory confirm {id}
memory consecrate {id}
memory become {id} reviewed
memory outcome {id} success
memory retire {fact}
memory export {notes}
memory import {notes}
memory forget {id} --yes
identity list
identity show
identity edit mine --yes
identity condense mine --yes
identity use mine --config {config}
model list
model show
model use builtin:quoter --config {config} --later
model drop small --yes
stats cache
stats cache --clients
stats memory
stats relevance
config show
config check
config path
token new --sigil owner
doctor
service status
service install
service uninstall
pause
resume
purge
purge --traces --yes
purge --history --yes
session rename talk other
session drop other
codex export vaults {floor}
codex import {floor}
codex reload vaults
codex drop vaults
"""
MAY_FAIL = ("doctor", "service")  # for what this machine lacks


@pytest.fixture(scope="module")
def said(models):
    """Each command of COMMANDS, and what came of it."""
    with living(models) as daemon:  # its own: identities, settings and units stay
        codebase(daemon.folder / CODEX)  # once: a file that is written again is another one while it is written
        return {command: printed(daemon, command) for command in COMMANDS.splitlines()}


def printed(daemon, command):
    words = {
        "folder": daemon.folder / CODEX,
        "question": question("zebra"),
        "memory": MEMORY,
        "notes": daemon.folder / "notes",
        "floor": daemon.folder / "vaults.floor",
        "config": daemon.folder / "other.toml",
    }
    if command.startswith("memory"):
        found = {one["kind"]: one["id"] for one in reply(daemon, "/v1/memories")["memories"]}
        words |= {"id": found.get("decision"), "fact": found.get("fact")}
    text = daemon.folder / "mine.md"
    text.write_text("Answer in one sentence, please, and always name the file.\n")
    environment = {"EDITOR": f"cp {text}"}
    if command.startswith("model drop"):  # the built-in models lie where all tests find them
        environment["XDG_CACHE_HOME"] = str(daemon.folder / "downloaded")
        store = daemon.folder / "downloaded" / "lorekeep" / "models"
        store.mkdir(parents=True, exist_ok=True)
        (store / "small.gguf").write_bytes(b"GGUF")
    arguments = [part.format(**words) for part in command.split()]
    return daemon.lore(*arguments, "--json", environment=environment)


def name_of(command):
    return max((name for name in PRINTED if f"{command} ".startswith(f"{name} ")), key=len)


@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_a_command_prints_what_its_schema_says(said, command):
    name = name_of(command)
    assert said[command].returncode == 0 or command.startswith(MAY_FAIL), said[command].stderr
    lines = [json.loads(line) for line in said[command].stdout.splitlines()]
    schema = Draft202012Validator(json_schema(name))
    for line in lines:
        assert [error.message for error in schema.iter_errors(line)] == []
        assert [] in [beside(shape, line) for shape in PRINTED[name]]


def beside(shape, line):
    """What the shape does not tell of, or why it is another shape's."""
    try:
        return unlike(shape, line)
    except ValidationError as error:
        return [str(error)]


def test_every_command_with_a_schema_was_asked():
    assert {name_of(command) for command in COMMANDS.splitlines()} == PRINTED.keys() - ELSEWHERE
