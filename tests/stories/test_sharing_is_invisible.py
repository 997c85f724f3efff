"""Law 8 with the real engine: what is in the cache changes when an answer comes, never what it says."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from support.house import CODES, blocks, codebase, living, question

QUESTIONS = (question("zebra"), "def step_3(value")


def answer(daemon, asked):
    """Text and prompt lengths."""
    told = daemon.json("ask", asked, "-c", "vaults", "--max-tokens", "24")
    return told["answer"], [block["tokens"] for block in told["lore"]["blocks"]]


def answers(daemon):
    """To each question, asked in this order."""
    return [answer(daemon, one) for one in QUESTIONS]


@contextmanager
def fresh(models, folder):
    """A daemon that was asked nothing, and has computed nothing that it was told to wait for."""
    with living(models) as daemon:
        assert daemon.lore("load", folder, "--no-watch").returncode == 0
        yield daemon


@dataclass(frozen=True)
class House:
    """A daemon that was asked the first question, and what it and another one said to the first that each was asked."""

    daemon: Any
    cold: Any


@pytest.fixture(scope="module")
def house(models, tmp_path_factory):
    folder = codebase(tmp_path_factory.mktemp("code") / "vaults")
    with fresh(models, folder) as other:
        second = answer(other, QUESTIONS[1])
    with fresh(models, folder) as daemon:
        yield House(daemon, [answer(daemon, QUESTIONS[0]), second])


def test_answers_out_of_a_warm_cache_are_those_of_a_cold_one(house):
    assert answers(house.daemon) == house.cold
    assert answers(house.daemon) == house.cold, "once more, with each question's own tokens in the cache"
    house.daemon.stop()
    house.daemon.start()
    assert answers(house.daemon) == house.cold, "out of restored segments"
    assert house.cold[0][0].strip().startswith(CODES["zebra"])


def test_a_codex_beside_it_and_other_people_s_talks_change_nothing(house):
    daemon = house.daemon
    other = codebase(daemon.folder / "cellars", {"zebra": "1112223", "walrus": "4445556"})
    assert daemon.lore("load", other, "--no-watch").returncode == 0
    theirs = daemon.json("ask", question("zebra"), "-c", "cellars", "--max-tokens", "10")
    assert theirs["answer"].strip().startswith("1112223")
    daemon.json("ask", f"{question('heron')} 9998887.", "-c", "vaults", "--max-tokens", "4")
    assert answers(daemon) == house.cold
    assert blocks(theirs["lore"])["codex"]["tokens"] > 0
