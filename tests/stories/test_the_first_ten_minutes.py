"""From no model to a first answer, by one command: also where the line breaks, and by the same command again.

The hub is on this machine and holds the quoting model's file under the name of the first model that is recommended.
"""

import hashlib
import re
import shlex
from pathlib import Path

import pytest
from private_daemon import LORE
from support.house import codebase, events, lent, living, question
from support.hub import serving
from terminals import terminal

from orchestrator.reports.recommended import published

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def house(quoter_model, tmp_path_factory):
    """Its models folder is its own: a model is downloaded into it."""
    models = tmp_path_factory.mktemp("models")
    (models / quoter_model.name).symlink_to(quoter_model)
    with living(models) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def first(house):
    """The model that is recommended here, as the table has it."""
    offered = house.json("up", "--dry-run")["models"]
    return next(one for one in published() if one.name == offered[0]["name"])


@pytest.fixture(scope="module")
def hub(first, quoter_model):
    body = quoter_model.read_bytes()
    found = {"body": body, "sum": hashlib.sha256(body).hexdigest(), "repository": first.repository}
    with serving(**found, files=(first.file,)) as running:
        yield running


def test_the_first_answer_that_the_readme_prints_is_what_the_built_in_model_says(shared_daemon):
    typed = re.search(
        r"^\$ lore (load .+)\n\$ lore (ask .+)\n(.+)\n```$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert typed, "the README shows a load, a question and its answer"
    load, ask, printed = (shlex.split(typed[1]), shlex.split(typed[2]), typed[3])
    with lent(shared_daemon) as daemon:
        loaded = daemon.lore(*load, cwd=ROOT)
        assert loaded.returncode == 0, loaded.stderr
        assert daemon.lore(*ask, cwd=ROOT / load[1]).stdout.strip() == printed


def test_a_wrong_folder_or_model_is_refused_before_anything_is_shown_or_done(house, first):
    for more in ((), ("--dry-run",)):
        folder = house.lore("up", "/nowhere", *more)
        assert (folder.returncode, "there is no /nowhere" in folder.stderr) == (2, True), folder.stderr
        model = house.lore("up", ".", "--model", "nosuch", *more)
        assert (model.returncode, "no model nosuch" in model.stderr) == (5, True), model.stderr
        assert first.name in model.stderr


def test_one_command_downloads_loads_and_answers_and_goes_on_where_the_line_broke(house, first, hub):
    own, address = hub
    own.cut = 1000
    folder = codebase(house.folder / "vaults")
    command = ("up", folder, "--yes", "-q", question("zebra"), "--json")
    network = {"HF_ENDPOINT": address, "no_proxy": "*"}
    broken = house.lore(*command, environment=network)
    assert broken.returncode == 1
    assert "bytes are kept" in broken.stderr
    done = house.lore(*command, environment=network)
    assert done.returncode == 0, done.stderr
    assert own.ranges[-1] == f"bytes={len(own.body) - 1000}-"
    assert "the hub has another file than it had when the table was made" in done.stderr
    last = events(done.stdout)[-1]
    assert (last["event"], last["codex"], last["model"].endswith(first.file)) == ("up", "vaults", True)
    assert last["answer"].strip().startswith("4815162")
    running = house.json("status")["model"]["name"]
    assert Path(running) == Path(last["model"]).resolve()

    again = house.lore("up", folder, "--yes", environment={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert again.returncode == 0, again.stderr
    assert f"the model is {running}" in again.stderr
    assert 'ask: lore ask "What does this project do?" -c vaults' in again.stderr


def test_on_a_terminal_the_command_asks_for_a_first_question_and_answers_it_and_enter_asks_none(house, first, hub):
    _, address = hub
    network = {**house.environment, "HF_ENDPOINT": address, "no_proxy": "*"}
    folder = codebase(house.folder / "safes")
    with terminal(LORE, "up", folder, environment=network) as seen:
        seen.until("a first question (Enter: none)")
        seen.type(f"{question('walrus')}\r")
        assert "9273645" in seen.rest()
    assert seen.process.returncode == 0
    with terminal(LORE, "up", folder, environment=network) as seen:
        seen.until("a first question (Enter: none)")
        seen.type("\r")
        assert 'ask: lore ask "What does this project do?" -c safes' in seen.rest()
    assert seen.process.returncode == 0
