"""A load that is refused because its tier does not fit leaves what stood before, which may be nothing."""

import pytest
from support.house import CODES, ask, codebase, living, shown
from support.refusals import refusal


@pytest.fixture(scope="module")
def house(models):
    with living(models, environment={"LORE_MODEL__CONTEXT": "2048"}) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        large(codebase(daemon.folder / "large"))
        yield daemon


def large(folder):
    for number in range(60):
        (folder / f"part{number}.py").write_text("".join(f"def f{number}_{line}(): pass\n" for line in range(20)))


def test_a_first_load_that_is_refused_leaves_nothing_that_can_be_asked(house):
    words = refusal(house.lore("load", house.folder / "large", "--tier", "full", "--name", "s2"), 4)
    assert "coverage full was forced" in words
    assert "without --tier" in words
    assert ask(house, "zebra")["lore"]["codex"]["name"] == "vaults"  # the only one: no -c is needed
    for command in (("ask", "x", "-c", "s2"), ("codex", "show", "s2")):
        words = refusal(house.lore(*command), 5)
        assert "was not loaded to the end" in words
        assert f"lore load {house.folder / 'large'} --name s2" in words
    assert "not loaded to the end" in house.lore("codex", "list").stdout

    assert house.lore("load", house.folder / "large", "--name", "s2").returncode == 0
    assert shown(house, "s2")["tier"] != "full"
    assert house.lore("codex", "drop", "s2").returncode == 0


def test_an_update_that_is_refused_leaves_the_codex_as_it_was_and_followed(house):
    assert house.lore("load", house.folder / "large", "--watch", "--wait").returncode == 0
    before = shown(house, "large")
    (house.folder / "large" / "new.py").write_text("x = 1\n")
    refusal(house.lore("load", house.folder / "large", "--tier", "full", "--no-watch"), 4)
    after = shown(house, "large")
    assert (after["tier"], after["generation"]) == (before["tier"], before["generation"])
    assert after["fresh"] != "not watched"
    assert house.lore("codex", "drop", "large").returncode == 0
    assert ask(house, "zebra", codex="vaults")["answer"].strip().startswith(CODES["zebra"])
