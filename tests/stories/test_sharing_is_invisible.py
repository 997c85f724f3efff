"""Law 8 with the real engine: what is in the cache changes when an answer comes, never what it says."""

import pytest
from support.house import CODES, blocks, codebase, living, question

QUESTIONS = (question("zebra"), "def step_3(value")


def answers(daemon):
    """Text and prompt lengths for each question, asked in this order."""
    told = [daemon.json("ask", one, "-c", "vaults", "--max-tokens", "24") for one in QUESTIONS]
    return [(one["answer"], [block["tokens"] for block in one["lore"]["blocks"]]) for one in told]


@pytest.fixture(scope="module")
def fresh(models, tmp_path_factory):
    """What daemons say that were asked nothing before: one for each question."""
    folder = codebase(tmp_path_factory.mktemp("code") / "vaults")
    told = []
    for one in QUESTIONS:
        with living(models) as daemon:
            assert daemon.lore("load", folder, "--no-watch").returncode == 0
            answer = daemon.json("ask", one, "--max-tokens", "24")
            told.append((answer["answer"], [block["tokens"] for block in answer["lore"]["blocks"]]))
    return folder, told


@pytest.fixture(scope="module")
def house(fresh, models):
    with living(models) as daemon:
        assert daemon.lore("load", fresh[0], "--no-watch", "--wait").returncode == 0
        yield daemon


def test_answers_out_of_a_warm_cache_are_those_of_a_cold_one(fresh, house):
    _, cold = fresh
    assert answers(house) == cold
    assert answers(house) == cold, "once more, with each question's own tokens in the cache"
    house.stop()
    house.start()
    assert answers(house) == cold, "out of restored segments"
    assert cold[0][0].strip().startswith(CODES["zebra"])


def test_a_codex_beside_it_and_other_people_s_talks_change_nothing(fresh, house):
    _, cold = fresh
    other = codebase(house.folder / "cellars", {"zebra": "1112223", "walrus": "4445556"})
    assert house.lore("load", other, "--no-watch").returncode == 0
    theirs = house.json("ask", question("zebra"), "-c", "cellars", "--max-tokens", "10")
    assert theirs["answer"].strip().startswith("1112223")
    house.json("ask", f"{question('heron')} 9998887.", "-c", "vaults", "--max-tokens", "4")
    assert answers(house) == cold
    assert blocks(theirs["lore"])["codex"]["tokens"] > 0
