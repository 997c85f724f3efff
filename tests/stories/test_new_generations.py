"""A log grows long: the codex moves to a new generation while nobody asks, and nobody waits for that.

With room for both floors the new one grows beside the old one; with room for one it takes the old one's place; where not
even it alone would fit, what stands stays.
"""

import pytest
from support.house import CODES, ask, blocks, cached_whole, codebase, counters, lent, reply, shown, until, write_vault
from support.scarce_memory import scarce


def right(answer, code=CODES["zebra"]):
    return answer["answer"].strip().startswith(code)


def rewritten(folder, functions, word):
    """So many functions of the first file are others."""
    path = folder / "aaa.py"
    path.write_text("\n\n".join(f"def {word}_{number}(value):\n    return value\n" for number in range(functions)))


def moved(daemon, generation=2):
    """Returns when the codex stands in this generation, its floor computed."""
    until(lambda: (now := shown(daemon, "vaults"))["generation"] == generation and not now["prefill"])
    return shown(daemon, "vaults")


def pool_of(daemon):
    (pool,) = [one for one in reply(daemon, "/v1/status")["engine"]["pools"] if one["name"].endswith("/vaults")]
    return pool


def held(daemon):
    """Cells of the codex's pool that hold something."""
    pool = pool_of(daemon)
    return pool["evictable"] + pool["leased"]


def prompt_of(answer):
    return answer["lore"]["prompt"]["tokens"] + answer["usage"]["completion_tokens"]


# -- with room for both


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        folder = codebase(daemon.folder / "vaults", functions=60)
        rewritten(folder, 40, "old")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        yield daemon


def test_a_long_log_moves_to_a_new_generation_and_conversations_follow_at_their_next_turn(house):
    first = ask(house, "zebra")
    rewritten(house.folder / "vaults", 40, "new")
    write_vault(house.folder / "vaults", "walrus", "1122334")
    until(lambda: right(ask(house, "walrus", record=False), "1122334"))  # by the log; on a slow machine by the next one
    codex = moved(house)
    assert "are more than 10% of" in codex["generation_reason"]
    assert codex["amendments"] == 0
    second = ask(house, "walrus", session=first["lore"]["session"])
    assert right(second, "1122334")
    assert second["lore"]["broke_at"]["block"] == "codex"
    assert cached_whole(second["lore"], "identity", "codex")
    third = ask(house, "zebra", session=first["lore"]["session"])
    assert third["lore"]["broke_at"] is None
    assert right(third)


def test_the_cells_and_checkpoints_of_the_old_generation_are_given_back(house):
    generation, tokens = shown(house, "vaults")["generation"], shown(house, "vaults")["tier_tokens"]
    before = counters(house)["tier_disk_bytes"]
    rewritten(house.folder / "vaults", 40, "newer")
    until(lambda: shown(house, "vaults")["amendments"])
    moved(house, generation + 1)
    answer = ask(house, "zebra")
    assert right(answer)
    until(lambda: held(house) < 1.5 * tokens)
    until(lambda: counters(house)["tier_disk_bytes"] < 1.5 * before)


def test_a_question_while_the_new_generation_is_on_its_way_computes_its_own_tokens(house):
    generation = shown(house, "vaults")["generation"]
    rewritten(house.folder / "vaults", 40, "newest")
    until(lambda: shown(house, "vaults")["amendments"] or shown(house, "vaults")["generation"] > generation)
    until(lambda: reply(house, "/v1/status")["engine"]["prefills"] or shown(house, "vaults")["generation"] > generation)
    answer = ask(house, "zebra")
    assert right(answer)
    floor = blocks(answer["lore"])["codex"]["tokens"]
    assert answer["lore"]["prompt"]["computed"] < floor / 2
    moved(house, generation + 1)


def test_while_somebody_asks_without_pause_the_new_generation_comes_all_the_same_and_every_answer_is_right(house):
    generation = shown(house, "vaults")["generation"]
    rewritten(house.folder / "vaults", 40, "newest_of_all")
    until(lambda: right(ask(house, "zebra", record=False)) and shown(house, "vaults")["amendments"])
    assert shown(house, "vaults")["generation"] == generation
    wrong = []

    def asked_and_moved():
        answer = ask(house, "zebra", record=False)
        wrong.extend([] if right(answer) else [answer["answer"]])
        return answer["lore"]["codex"]["generation"] > generation

    until(asked_and_moved, timeout_s=240.0)
    assert wrong == []


# -- with room for one

KV = 10_500_000  # about 3,000 cells: a floor of 1,900 tokens and a conversation


@pytest.fixture(scope="module")
def small(models, tmp_path_factory):
    """A daemon whose memory holds the codex's floor and a conversation, and no second floor."""

    def load(daemon):
        folder = codebase(daemon.folder / "vaults", functions=90)
        rewritten(folder, 20, "old")
        assert daemon.lore("load", folder, "--wait").returncode == 0

    with scarce(models, tmp_path_factory.mktemp("driver"), KV, load) as daemon:
        yield daemon


def within_the_grant(daemon):
    status = reply(daemon, "/v1/status")
    held = sum(pool["size"] for pool in status["engine"]["pools"])
    return held <= status["governor"]["cells"] and status["engine"]["restarts"] == 0


def test_where_the_memory_holds_one_floor_the_new_generation_takes_the_old_ones_place_while_idle(small):
    first = ask(small, "zebra")
    assert right(first)
    tokens = shown(small, "vaults")["tier_tokens"]
    assert 2 * tokens > reply(small, "/v1/status")["governor"]["cells"] > tokens
    rewritten(small.folder / "vaults", 20, "new")
    until(lambda: shown(small, "vaults")["amendments"])
    codex = moved(small)
    assert (codex["tier"], codex["amendments"]) == ("full", 0)
    second = ask(small, "walrus", session=first["lore"]["session"])
    assert right(second, CODES["walrus"])
    assert second["lore"]["broke_at"]["block"] == "codex"
    assert cached_whole(second["lore"], "identity", "codex")
    assert within_the_grant(small)
    assert "stays as it is" not in small.log.read_text()
    assert "was not computed" not in small.log.read_text()


def test_where_the_memory_holds_one_floor_the_old_identity_answers_until_the_new_one_takes_its_place(small):
    first = ask(small, "zebra")
    identity = small.folder / "config" / "lorekeep" / "identities" / "lorekeep.md"
    identity.parent.mkdir(parents=True)
    identity.write_text("You are brief. Name path:line of what you rest on.\n")
    told = ask(small, "zebra", session=first["lore"]["session"])
    assert right(told)
    assert told["lore"]["identity"]["version"] == first["lore"]["identity"]["version"]
    until(lambda: not (now := shown(small, "vaults"))["identity"]["preparing"] and not now["prefill"])
    second = ask(small, "walrus", session=first["lore"]["session"])
    assert right(second, CODES["walrus"])
    assert second["lore"]["identity"]["version"] == told["lore"]["identity"]["preparing"]
    assert second["lore"]["broke_at"]["block"] == "identity"
    assert cached_whole(second["lore"], "identity", "codex")
    assert within_the_grant(small)
