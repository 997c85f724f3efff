"""Long conversations with memories: prompts stay in the cache, the block of memories is seldom built anew, and the model
reads what holds now: the built-in model quotes what stands in its cache, so its answers tell which ids the engine got."""

import pytest
from support.house import codebase, hits, living, reply, until

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


def asked(house, question, session):
    body = {"model": "lore/vaults", "messages": [{"role": "user", "content": question}], "max_completion_tokens": 8}
    answer = reply(house, "/v1/chat/completions", {**body, "lore": {"session": session}})
    return answer["choices"][0]["message"]["content"].strip(), answer["lore"]


@pytest.mark.parametrize("frame", TURNS)
def test_thirty_turns_refresh_seldom_and_are_read_from_the_cache(house, frame):
    refreshed, cached, tokens = 0, 0, 0
    for question in script(frame):
        lore = asked(house, question, frame)[1]
        refreshed += (lore["broke_at"] or {}).get("block") == "karma"
        cached, tokens = cached + lore["prompt"]["cached"], tokens + lore["prompt"]["tokens"]
    assert refreshed < 0.3 * 30
    assert cached >= 0.95 * tokens


def block_of(house, lore):
    """The memories of the prompt that the engine got, as they were written."""
    kept = house.json("trace", "show", lore["trace"], "--prompt")["trace"]
    return "".join(one["text"] for one in kept["prompt"] if one["block"] == "karma")


def test_over_thirty_turns_the_model_reads_constraints_what_was_stated_and_what_holds_now(models):
    with living(models, "[model]\ncontext = 16384\n") as house:
        folder = codebase(house.folder / "vaults", functions=60)
        (folder / "ports.py").write_text("import os\n\nPORT = 6379\n")
        house.json("load", str(folder), "--wait")
        house.json("memory", "add", "Never push to the branch main.", "--kind", "censor")
        about = ("-c", "vaults", "--about", "storage", "--attribute", "engine")
        house.json("memory", "add", "Storage runs on Postgres.", *about)
        queue = house.json("memory", "add", "The queue listens on 6379.", "-c", "vaults", "--cite", "ports.py:3")
        turns = [asked(house, "where do sessions go?", "long")]
        turns.append(asked(house, "By the way, we use Redis for sessions.", "long"))
        (noted,) = turns[-1][1]["noted"]
        assert house.json("memory", "confirm", noted["id"])["memory"]["state"] == "confirmed"
        turns += [asked(house, "Storage runs on", "long")]
        assert turns[-1][0].startswith("Postgres.")
        house.json("memory", "add", "Storage runs on SQLite.", *about)
        turns += [asked(house, "push to the branch", "long"), asked(house, "storage runs now on", "long")]
        assert turns[-2][0].startswith("main.")
        assert "- Storage runs on SQLite.\n" in block_of(house, turns[-1][1])
        turns += [asked(house, "the queue listens on", "long")]
        assert "- The queue listens on 6379.\n" in block_of(house, turns[-1][1])
        (folder / "ports.py").write_text("import os\n\nPORT = 6380\n")
        until(lambda: "6380" in hits(house, "PORT", "vaults")[0]["snippet"])
        turns += [asked(house, "and where does the queue listen?", "long")]
        turns += [asked(house, f"what does step_{at} return?", "long") for at in range(23)]
        blocks = [block_of(house, lore) for _, lore in turns]
        assert len(turns) == 30
        assert all("- Never push to the branch main.\n" in block for block in blocks)
        assert ["Postgres" in block for block in blocks] == [False, False, True, *[False] * 27]
        assert "- The queue listens on 6379. (may be outdated: ports.py:3-3 changed)\n" in blocks[6]
        assert [one["id"] for one in house.json("memory", "review")["memories"]] == [queue["memory"]["id"]]
        assert asked(house, "Storage runs on", "other")[0].startswith("SQLite.")
        assert asked(house, "we use Redis for", "third")[0].startswith("sessions.")
        refreshed = sum((lore["broke_at"] or {}).get("block") == "karma" for _, lore in turns)
        cached, tokens = (sum(lore["prompt"][name] for _, lore in turns) for name in ("cached", "tokens"))
        assert refreshed < 0.3 * 30
        assert cached >= 0.95 * tokens
