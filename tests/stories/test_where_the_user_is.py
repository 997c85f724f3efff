"""What an editor tells of where its user is reaches the model, and an answer may cite it."""

import pytest
from support import house as small_house
from support.house import codebase, lent, question, reply


@pytest.fixture(scope="module")
def house(shared_daemon):
    """A daemon with a codex of which only the map stands in the prefix: what is selected is in no file there."""
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--tier", "map").returncode == 0
        yield daemon


def ask(openai, vault, **lore):
    return openai.chat.completions.create(
        model="lore/vaults",
        messages=[{"role": "user", "content": question(vault)}],
        max_tokens=10,
        extra_body={"lore": lore},
    )


def test_what_is_selected_is_answered_from_and_cited_by_the_codex_s_own_name_and_lines(house, client):
    place = house.folder / "vaults" / "walrus.py"
    selection = place.read_text().splitlines()[2]
    answer = ask(client, "walrus", client={"file": str(place), "selection": selection})
    assert answer.choices[0].message.content.strip().startswith("9273645")
    assert {"path": "walrus.py", "start": 3, "end": 3, "valid": True} in answer.lore["citations"]
    assert answer.lore["notices"] == []


def test_what_was_typed_and_not_saved_is_answered_from_too(house, client):
    answer = ask(client, "badger", client={"file": "zebra.py", "selection": f"# {question('badger')} 1234567."})
    assert answer.choices[0].message.content.strip().startswith("1234567")


def test_a_mode_of_the_client_decides_and_one_that_nobody_knows_leaves_nothing_out(house):
    def excluded(mode):
        body = {"model": "lore", "messages": [{"role": "user", "content": "Where is zebra?"}], "lore": {"mode": mode}}
        found = reply(
            house, "/v1/plan", {**body, "lore": {"mode": mode, "client": {"cwd": str(house.folder / "vaults")}}}
        )
        assert found["relevance"]["mode"] == mode
        return found["relevance"]["excluded"]

    assert excluded("ACKNOWLEDGE")["facts"] == "mask masks.ACKNOWLEDGE"
    assert excluded("of my own") == {}


def test_in_a_folder_that_is_loaded_twice_answer_and_search_tell_which_codex_was_chosen(house):
    here = {"cwd": str(house.folder / "vaults")}
    assert house.lore("load", here["cwd"], "--name", "also", "--tier", "map", "--no-watch").returncode == 0
    told = "this is about vaults; the same folder is loaded as also too: choose with -c NAME"
    answer = small_house.ask(house, "zebra", client=here)
    assert (answer["lore"]["codex"]["name"], told in answer["lore"]["notices"]) == ("vaults", True)
    assert told in reply(house, "/v1/search", {"query": "zebra", **here})["notices"]
    assert told not in small_house.ask(house, "zebra", client=here, codex="also")["lore"]["notices"]
    assert house.lore("codex", "drop", "also").returncode == 0
