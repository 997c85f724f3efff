"""What a daemon knows after it was stopped, and after it was killed: codices, their floors, conversations."""

from dataclasses import dataclass
from typing import Any

import pytest
from support.house import CODES, ask, blocks, cached_whole, codebase, counters, lent, question, until, write_vault

STOPS = {"stopped": lambda daemon: daemon.stop(), "killed": lambda daemon: daemon.kill()}


@pytest.fixture(scope="module")
def house(shared_daemon):
    """A daemon that holds the codex `vaults`, its floor computed and written."""
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        ask(daemon, "zebra")
        yield daemon


@dataclass(frozen=True)
class Restarted:
    """The daemon again, the session from before, the first answer and what the engine had counted behind it."""

    daemon: Any
    session: str
    first: Any
    counted: Any


@pytest.fixture(scope="module", params=STOPS)
def restarted(house, request):
    """The daemon was ended that way and started again."""
    session = house.json("ask", f"{question('heron')} 3344556.", "--max-tokens", "4")["lore"]["session"]
    STOPS[request.param](house)
    house.start()
    return Restarted(house, session, ask(house, "zebra"), counters(house))


def test_the_first_question_finds_the_floor_restored_from_disk_instead_of_computing_it(restarted):
    answer, found = restarted.first, restarted.counted
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert cached_whole(answer["lore"], "identity", "codex")
    assert blocks(answer["lore"])["codex"]["from"] in ("disk", "ram")
    own = sum(blocks(answer["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
    assert answer["lore"]["prompt"]["computed"] <= own
    assert found["tier_disk_hits"] > 0
    assert found["computed_tokens"] <= own + answer["usage"]["completion_tokens"], "nobody computed the floor"


def test_a_session_goes_on_where_it_was(restarted):
    daemon, name = restarted.daemon, restarted.session
    assert "3344556" in ask(daemon, "heron", session=name)["answer"]
    further = daemon.json("ask", question("heron"), "--continue", "--max-tokens", "10")
    assert "3344556" in further["answer"]
    turns = daemon.json("session", "show", name)["session"]["turns"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 3


@pytest.mark.parametrize("end", STOPS)
def test_a_change_made_while_nobody_watched_is_taken_in_by_the_next_start(house, end):
    before = ask(house, "walrus")["answer"].strip().rstrip(".")
    STOPS[end](house)
    code = str(int(before) + 1_111_111)
    write_vault(house.folder / "vaults", "walrus", code)
    daemon = house.start()
    until(lambda: ask(daemon, "walrus")["answer"].strip().startswith(code))
