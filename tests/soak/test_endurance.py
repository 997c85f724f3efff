"""`make endurance` in seconds: each part does some of its work and meets its bounds, and each sees what it is there for."""

import random
from pathlib import Path

import pytest
from soak import endurance
from support.endurance.conversations import Life, Talk, footprint, told
from support.endurance.disks import Disk, figures
from support.endurance.kills import Killing, found
from support.endurance.parts import MIB, Amount, Held, Peaks, Said
from support.endurance.turns import compared
from support.house import lent

MANY = 10_000.0  # seconds: a slow machine fails nothing


def missed(rows):
    return [row.figure for row in rows if row.met is False]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("part", "number"), [("conversations", 44), ("kills", 6), ("disks", 2), ("turns", 60)])
def test_each_part_meets_its_bounds(models: Path, part: str, number: int) -> None:
    work, _, _ = endurance.PARTS[part]
    rows = list(work(Amount(number, MANY, models)))
    assert missed(rows) == []
    assert len(rows) > 4 or rows[0].note, "what could not be run says why"


# -- what each is there for


def life(daemon) -> Life:
    made = Life(daemon, random.Random(1), secrets={"zebra0": "1111111", "zebra1": "2222222"})
    made.talks = [Talk("talk-1", 0, "heron1", "3333333"), Talk("talk-2", 0, "heron2", "4444444")]
    return made


@pytest.mark.parametrize("secret", ["2222222", "4444444"], ids=["of a codex", "of a conversation"])
def test_a_foreign_secret_in_an_answer_misses_a_bound(secret: str) -> None:
    made = life(None)
    said = Said(f"It is {secret}.", {"blocks": []})
    made.checked(made.talks[0], "Which?", None, said)
    assert "answers with a foreign secret" in missed(told(made, Amount(1, MANY, Path()), lost=0, failures=0))


def test_a_wrong_answer_and_one_unlike_the_same_alone_miss_bounds() -> None:
    made = life(None)
    prompt = {"blocks": [], "prompt": {"tokens": 9, "cached": 0}}
    made.checked(made.talks[0], "Which?", "3333333", Said("7777777.", prompt))
    made.compare(made.talks[0], "heron1", Said("3333333.", prompt), Said("7777777.", prompt), "alone")
    found = missed(told(made, Amount(1, MANY, Path()), lost=1, failures=1))
    assert {"answers that are wrong", "of these unlike", "answered questions that a session lost"} <= set(found)
    assert "failed or broken pools of the last engine" in found


def test_memory_and_files_above_their_limits_miss_bounds() -> None:
    rows = list(footprint(Peaks(1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, looks=1)))
    assert len(missed(rows)) == 4
    assert missed(footprint(Peaks())) == ["looks"], "nothing was looked at"


def test_growth_misses_bounds() -> None:
    before, after = Held(MIB, MIB, 10, 10), Held(99 * MIB, 99 * MIB, 99, 99)
    assert len(missed(compared("", before, after, [{"leased": 1, "reserved": 0, "sequences": 99}]))) == 6
    assert missed(compared("", before, before, [])) == []


def test_a_kept_question_that_a_session_does_not_hold_and_a_codex_that_is_gone_are_found(shared_daemon) -> None:
    with lent(shared_daemon) as daemon:
        killing = Killing(daemon, random.Random(1), kept={"talk-0: never asked": 1}, loaded={"nothing"})
        assert killing.lost() == 1
        killing.check_codices("load")
    assert missed(found(killing, 1, Amount(1, MANY, Path()), lost=1))[-3:] == [
        "of these lost",
        "wrong answers, and codices that are gone",
        "load: the codex nothing is gone",
    ]


def test_what_a_disk_loses_without_a_word_misses_bounds() -> None:
    disk = Disk(None, Path(), wrong=1, silent=1, late=1)
    assert len(missed(figures(disk, 1, Amount(1, MANY, Path()), lost=1))) == 6


def test_a_part_that_fails_is_a_row_that_says_so(monkeypatch) -> None:
    def fails(amount):
        raise RuntimeError("it went wrong")
        yield

    monkeypatch.setitem(endurance.PARTS, "turns", (fails, 1, 1.0))
    (row,) = endurance.run("turns", Amount(1, 1.0, Path()))
    assert (row.figure, row.met) == ("it went wrong", False)
