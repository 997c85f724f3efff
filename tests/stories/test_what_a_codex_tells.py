"""What a codex says of itself and of answers about it: citations checked, figures marked, hot files that were earned."""

import pytest
from support.house import ask, codebase, events, lent, question

PLACES = "The codes are written down in"


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        folder = codebase(daemon.folder / "vaults")
        (folder / "guide.md").write_text(f"# Guide\n\n{PLACES} zebra.py:3 and zebra.py:99 and nowhere.py:1.\n")
        loaded = daemon.lore("load", folder, "--wait", "--json")
        assert loaded.returncode == 0, loaded.stderr
        yield daemon


def cited(answer):
    return {f"{one['path']}:{one['start']}": (one["valid"], one.get("why", "")) for one in answer["lore"]["citations"]}


def test_places_that_an_answer_makes_up_are_marked_for_programs(house):
    found = cited(house.json("ask", PLACES, "-c", "vaults", "--max-tokens", "24"))
    assert found["zebra.py:3"] == (True, "")
    assert found["zebra.py:99"] == (False, "the file has 7 lines")
    assert found["nowhere.py:1"] == (False, "no such file in this codex")


def test_and_for_people(house):
    done = house.lore("ask", PLACES, "-c", "vaults", "--max-tokens", "24")
    assert "cites zebra.py:3, guide.md:3" in done.stderr
    assert "cites zebra.py:99 wrongly: the file has 7 lines" in done.stderr


def test_a_file_that_came_with_the_question_may_be_cited(house):
    notes = house.folder / "notes.txt"
    notes.write_text("The attached plan stands in notes.txt:1 and in notes.txt:8 too.\n")
    found = cited(
        house.json("ask", "The attached plan stands in", "-c", "vaults", "-f", str(notes), "--max-tokens", "16")
    )
    assert found[f"{notes}:1"] == (True, "")
    assert found[f"{notes}:8"] == (False, "the file has 1 lines")


def test_a_dry_run_estimates_the_tokens_that_a_load_counts_and_marks_them(house):
    folder = codebase(house.folder / "larger", functions=100)
    estimate = events(house.lore("load", folder, "--dry-run", "--json").stdout)[-1]["codex"]
    counted = house.json("load", folder)["codex"]
    assert estimate["estimated"] == ["full", "skeleton", "map"]
    assert counted["estimated"] == []
    assert estimate["tokens"]["full"] == pytest.approx(counted["tokens"]["full"], rel=0.1)
    assert "full ≈" in house.lore("load", folder, "--dry-run").stdout


def test_what_questions_touched_stands_whole_in_the_next_generation(house):
    """A floor with room for few bodies: others', until questions have asked for this one."""
    folder = codebase(house.folder / "tight", {f"vault{n}": f"10{n}20{n}30" for n in range(8)}, functions=1)
    (folder / ".lore.toml").write_text('tier = "skeleton+hot"\n')
    window = house.json("plan", "x", "-c", "vaults")["strategy"]["window"]
    skeleton = house.json("load", folder, "--wait")["codex"]["tokens"]["skeleton"]
    (folder / ".lore.toml").write_text(f'tier = "skeleton+hot"\nwindow_share = {(skeleton + 130) / window:.5f}\n')
    house.json("load", folder, "--wait")
    assert "=== vault7.py ===" not in house.lore("plan", "x", "-c", "tight", "--prompt").stdout
    for _ in range(3):
        answer = ask(house, "vault7", codex="tight")
        assert answer["answer"].strip().startswith("1072073"), question("vault7")
    (folder / "steps.py").write_text("def step(value):\n    return value - 1\n")
    house.json("load", folder, "--wait")
    assert "=== vault7.py ===" in house.lore("plan", "x", "-c", "tight", "--prompt").stdout
