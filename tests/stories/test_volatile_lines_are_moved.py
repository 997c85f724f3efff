"""A client writes the time into its system message; with `clients.move_volatile` all that stands behind it stays cached."""

import pytest
from support.house import codebase, living, question, reply

MANNERS = "Answer in one line, name the file, and quote what it says. " * 12


@pytest.fixture(scope="module")
def house(models):
    with living(models, "[clients]\nmove_volatile = true\n") as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def asked(house, minute, *messages):
    system = {"role": "system", "content": f"{MANNERS}\nCurrent time: 10:{minute}\nCurrent file: zebra.py\n"}
    return reply(house, "/v1/chat/completions", {"messages": [system, *messages], "max_completion_tokens": 10})


def test_the_conversation_goes_on_from_the_cache_and_the_model_is_told_the_time(house):
    first = {"role": "user", "content": question("zebra")}
    begun = asked(house, 15, first)
    moved = [one for one in begun["lore"]["notices"] if "clients.move_volatile" in one]
    assert moved == [
        "moved in front of the question (clients.move_volatile): Current time: 10:15; Current file: zebra.py"
    ]
    said = {"role": "assistant", "content": begun["choices"][0]["message"]["content"]}
    gone_on = asked(house, 16, first, said, {"role": "user", "content": question("heron")})
    assert gone_on["lore"]["departure"] is None
    assert gone_on["lore"]["broke_at"] is None
    state = next(block for block in gone_on["lore"]["blocks"] if block["kind"] == "environment")
    assert state["cached"] == state["tokens"]


def test_the_model_reads_it_in_front_of_the_question(house):
    system = {"role": "system", "content": f"{MANNERS}\nCurrent time: 10:15\n"}
    body = {"messages": [system, {"role": "user", "content": question("zebra")}], "prompt": True}
    text = reply(house, "/v1/plan", body)["text"]
    assert text.index(MANNERS.strip()) < text.index("Current time: 10:15") < text.rindex(question("zebra"))
    assert text.count("Current time: 10:15") == 1
