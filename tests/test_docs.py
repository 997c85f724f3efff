"""The documents tell of every command, setting, route and metric, and of nothing else; links in them lead somewhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import reference
from openapi_spec_validator import validate
from private_daemon import LORE

from orchestrator.api.app import routes
from orchestrator.wire.openapi import document
from orchestrator.wire.printed import PRINTED, json_schema

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

MANUAL = sorted((ROOT / "share" / "man" / "man1").glob("*.1"))
COMMAND = re.compile(r"`(?:\.venv/bin/)?(lore(?: +[a-z][a-z-]*)+)")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_the_reference_the_manual_and_the_completions_are_what_the_program_says_of_itself():
    wanted = reference.files()
    assert set(reference.written()) == wanted.keys(), "run `make docs`"
    assert [path for path, text in wanted.items() if not reference.is_current(path, text)] == [], "run `make docs`"


def test_the_manual_names_each_command_and_each_option():
    text = {path.stem: unescaped(path.read_text()) for path in MANUAL}
    silent = [name for name, _ in reference.commands() if f".BR {name.partition(' ')[0]}" not in text["lore"]]
    for name, command in reference.commands():
        page = text[f"lore-{name.split()[1]}"]
        options = [one for parameter in command.params if parameter.name != "help" for one in parameter.opts]
        silent += [f"{name} {one}" for one in (name, *filter(is_option, options)) if one not in page]
    assert silent == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_the_manual_is_set_without_a_warning():
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", *MANUAL], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_completion_for_bash_completes_commands_and_options():
    script = f"""
        source {reference.SHARE / "bash-completion/completions/lore"}
        lore() {{ :; }}
        for line in "lore sche" "lore ask --max"; do
            COMP_WORDS=($line); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _lore_completion {LORE}; echo "${{COMPREPLY[*]}}"
        done
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["schema", "--max-tokens"], done.stderr


def unescaped(roff):
    return roff.replace("\\-", "-").replace("\\e", "\\")


def is_option(spelled):
    return spelled.startswith("-")


def test_every_command_option_setting_and_route_says_what_it_is_for():
    silent = [name for name, command in reference.commands() if not command.help]
    silent += [f"{name} {p.name}" for name, command in reference.commands() for p in command.params if not p.help]
    silent += [f"{one.method} {one.path}" for one in routes if not one.help]
    silent += [line for line in reference.settings_page() if line.endswith("|  |")]
    assert silent == []


def test_every_field_of_what_a_route_takes_and_gives_says_what_it_is_for():
    shapes = {shape for one in routes for shape in (one.body, one.reply, *one.events) if shape is not None}
    full = [shape.model_json_schema() for shape in shapes]
    schemas = [schema for one in full for schema in (one, *one.get("$defs", {}).values())]
    silent = [
        f"{schema['title']}.{name}"
        for schema in schemas
        for name, field in schema.get("properties", {}).items()
        if not field.get("description")
    ]
    assert silent == []
    assert [schema["title"] for schema in schemas if not schema.get("description")] == []


def test_the_routes_are_a_valid_openapi_document_in_which_each_has_a_name_of_its_own():
    made = document(routes, "1.0")
    validate(made)
    assert sum(map(len, made["paths"].values())) == len(routes) == len({one.operation for one in routes})


def test_what_ends_a_stream_and_is_no_json_is_declared():
    streams = {
        path: methods["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]["properties"]["data"]
        for path, methods in document(routes, "1.0")["paths"].items()
        if path in ("/v1/chat/completions", "/v1/completions", "/v1/responses")
    }
    ends = {path: data.get("anyOf", [{}])[-1].get("enum") for path, data in streams.items()}
    assert ends == {"/v1/chat/completions": ["[DONE]"], "/v1/completions": ["[DONE]"], "/v1/responses": None}


def test_what_a_route_reads_behind_the_question_mark_is_declared_and_told():
    told = {f"{one.method} {one.path}": set(re.findall(r"`\?(\w+)=", one.help)) for one in routes}
    assert told == {f"{one.method} {one.path}": {each.name for each in one.query} for one in routes}


def test_every_command_that_prints_json_has_a_schema():
    printing = [name for name, command in reference.commands() if any("--json" in one.opts for one in command.params)]
    assert sorted(name.removeprefix("lore ") for name in printing) == sorted(PRINTED)
    assert [name for name in PRINTED if not json_schema(name).get("$schema")] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_no_command_that_does_not_exist(page):
    known = {name for name, _ in reference.commands()}
    assert [named for named in commands_named(page.read_text()) if not is_known(named, known)] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_to_files(page):
    targets = LINK.findall(page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_rooms_of_the_orchestrator_are_those_that_there_are():
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## The rooms of `orchestrator`")[2].partition("\n## ")[0]
    rooms = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = [name for room in rooms for name in re.findall(r"`([a-z_]+)/?`", room)]
    assert sorted(told) == sorted(rooms_of(ROOT / "orchestrator"))


def test_the_functions_that_a_question_is_followed_through_are_there():
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("What calls what:")[2].partition("**1.")[0]
    found = re.findall(r"`([a-z_/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", table)
    assert len(found) == table.count(".py`")
    for file, names in found:
        code = (ROOT / "orchestrator" / file).read_text()
        wanted = re.findall(r"\w+", names)
        assert [one for one in wanted if not re.search(rf"(def|class) {one}\b", code)] == [], file


def rooms_of(package: Path) -> list[str]:
    """Its modules and packages, by name."""
    found = [one for one in package.iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()]
    return [one.stem for one in found if one.stem != "__init__"]


def commands_named(text: str) -> list[str]:
    return [" ".join(found.split()) for found in COMMAND.findall(text)]


def is_known(named: str, known: set[str]) -> bool:
    """A known command with words behind it (`lore ask what`), or a group's name alone (`lore codex`)."""
    return any(f"{named} ".startswith(f"{name} ") or name.startswith(f"{named} ") for name in known)
