"""A codex that is too large for the window: its map fills what there is, and is the same floor after a restart."""

import pytest
from support.house import CODES, ask, blocks, cached_whole, codebase, living, shown

WINDOW = 8_192


@pytest.fixture(scope="module")
def house(models):
    """A daemon with a small window, and a codex whose skeletons alone are larger than that."""
    with living(models, f"[model]\ncontext = {WINDOW}\n") as daemon:
        folder = codebase(daemon.folder / "large")
        for number in range(60):
            names = [f"part_{number}_{at}" for at in range(1 + number % 7 * 6)]
            (folder / f"part{number}.py").write_text(
                "\n\n".join(f"def {name}(value: int, other: str):\n    return value, other" for name in names)
            )
        assert daemon.lore("load", folder, "--wait").returncode == 0
        yield daemon


def test_a_map_uses_its_budget_and_a_restart_finds_it_in_the_checkpoint(house):
    codex = shown(house, "large")
    assert codex["tier"] == "map", codex["reason"]
    assert codex["reason"].endswith(f"that a window of {WINDOW:,} leaves, as model.context allows")
    assert codex["hint"].startswith("the setting model.context = ")
    budget = codex["tokens"]["map"]
    assert 0.95 * budget <= codex["tier_tokens"] <= budget
    prompt = house.lore("plan", "x", "-c", "large", "--prompt").stdout
    assert "(skeleton) ===\n" in prompt
    assert "# Other files" in prompt

    before = ask(house, "zebra", codex="large")
    assert before["answer"].strip().startswith(CODES["zebra"]), "what the floor only lists is searched"
    limited = f"large: {codex['reason']}; {codex['hint']}"
    assert before["lore"]["lasting"] == [limited]
    assert house.lore("ask", "zebra", "-c", "large").stderr.count(f"\n{limited}\n") == 1
    house.stop()
    house.start()
    again = ask(house, "zebra", codex="large")
    assert cached_whole(again["lore"], "identity", "codex")
    assert blocks(again["lore"])["codex"]["from"] in ("disk", "ram")
    assert again["lore"]["prompt"]["tokens"] == before["lore"]["prompt"]["tokens"]
    assert shown(house, "large")["tier_tokens"] == codex["tier_tokens"]
