"""A long conversation with memories: its prompts stay in the cache, and its block of memories is seldom built anew."""

import pytest
from support.house import codebase, living, reply

TURNS = {
    "question": "Where is {}? | What does {} return? | And who calls it? | Why is that so? | What is the cache?",
    "task": "add a test for {} | rename it | update the docs of {} | fix the import | run it again",
    "decision": "should we change {}? | pros and cons of {}? | which is better? | what was decided? | and the cost?",
    "creative": "brainstorm names for {} | a story about {} | another idea | shorter | what of the cache?",
    "conversation": "hey | thanks | tell me of {} | ok | what is {}?",
    "debug": "why does {} raise an exception? | and in line 7? | is it the cache? | what changed? | is {} broken too?",
}
NAMES = ("zebra", "quartz", "parser.py", "the cache", "config.toml", "storage")


@pytest.fixture(scope="module")
def house(models):
    with living(models, "[model]\ncontext = 16384\n") as daemon:
        daemon.json("load", str(codebase(daemon.folder / "vaults", functions=60)), "--wait")
        for text in (
            "The cache is Redis on port 6379.",
            "We decided that storage is SQLite.",
            "parser.py is hand written, because the grammar is small.",
            "config.toml is read once, at the start.",
            "To run a test of zebra: make test ARGS=zebra.",
        ):
            daemon.json("memory", "add", text, "-c", "vaults")
        yield daemon


def script(frame):
    """Thirty questions: five forms in turn, each time about another name."""
    forms = TURNS[frame].split(" | ")
    return [forms[turn % 5].format(NAMES[turn // 5]) for turn in range(30)]


@pytest.mark.parametrize("frame", TURNS)
def test_thirty_turns_refresh_seldom_and_are_read_from_the_cache(house, frame):
    refreshed, cached, tokens = 0, 0, 0
    for question in script(frame):
        body = {"model": "lore/vaults", "messages": [{"role": "user", "content": question}], "max_completion_tokens": 4}
        lore = reply(house, "/v1/chat/completions", {**body, "lore": {"session": frame}})["lore"]
        refreshed += (lore["broke_at"] or {}).get("block") == "karma"
        cached, tokens = cached + lore["prompt"]["cached"], tokens + lore["prompt"]["tokens"]
    assert refreshed < 0.3 * 30
    assert cached >= 0.95 * tokens
