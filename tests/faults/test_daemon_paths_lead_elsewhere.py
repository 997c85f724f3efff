"""The path that was loaded leads elsewhere, or nowhere: what stands there is answered, or it is said that nothing does."""

import pytest
from support.house import ask, codebase, hits, lent, question, shown, until


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        yield daemon


def code(house, name):
    """The zebra's code as an answer has it that nothing keeps from being current; '' while something does."""
    answer = ask(house, "zebra", codex=name)
    told = (*answer["lore"]["notices"], *answer["lore"]["governor"]["actions"])
    return "" if any(name in one for one in told) else answer["answer"].strip()[:7]


def current(house, name, value):
    """Until it is answered and found; what was there before is never answered as current."""
    said = {code(house, name)}
    until(lambda: value in said or said.add(code(house, name)))
    assert said <= {value, ""}
    assert any(value in hit["snippet"] for hit in hits(house, question("zebra"), name))
    assert shown(house, name)["fresh"].startswith("watched")


def load(house, path, name):
    assert house.lore("load", path, "--name", name, "--wait").returncode == 0
    until(lambda: shown(house, name)["fresh"] == "watched")


def test_a_folder_above_is_replaced(house):
    above = house.folder / "above"
    load(house, codebase(above / "x", {"zebra": "1000001"}), "replaced")
    above.rename(above.with_name("above-old"))
    codebase(above / "x", {"zebra": "1000002"})
    current(house, "replaced", "1000002")
    codebase(above / "x", {"zebra": "1000003"})
    until(lambda: shown(house, "replaced")["amendments"] > 0 and code(house, "replaced") == "1000003")


def test_a_folder_above_is_gone_and_comes_back(house):
    above = house.folder / "parent"
    load(house, codebase(above / "x", {"zebra": "2000001"}), "gone")
    above.rename(above.with_name("parent-old"))
    assert shown(house, "gone")["fresh"] != "watched"
    until(lambda: f"{above}/x is not there" in shown(house, "gone")["fresh_notice"])
    assert any("is not there" in one for one in ask(house, "zebra", codex="gone")["lore"]["notices"])
    above.with_name("parent-old").rename(above)
    until(lambda: shown(house, "gone")["fresh"] == "watched")


def test_a_link_is_pointed_at_another_release(house):
    first = codebase(house.folder / "releases" / "1", {"zebra": "3000001"})
    second = codebase(house.folder / "releases" / "2", {"zebra": "3000002"})
    link = house.folder / "current"
    link.symlink_to(first)
    load(house, link, "linked")
    (house.folder / "next").symlink_to(second)
    (house.folder / "next").rename(link)
    current(house, "linked", "3000002")
    until(lambda: shown(house, "linked")["roots"] == [str(second)])
    assert house.lore("load", link, "--wait").returncode == 0
    assert '"linked"' in house.lore("codex", "list", "--json").stdout
    assert '"current"' not in house.lore("codex", "list", "--json").stdout
