"""The rules of relevance as a user sets them: a file beside config.toml, and one that cannot be used harms nothing."""

import json

import pytest
from support.house import living, reply


@pytest.fixture
def house(models):
    with living(models) as daemon:
        yield daemon


def rules(daemon, text):
    """The user's own rules; a daemon reads them at its start."""
    daemon.stop()
    (daemon.folder / "config" / "lorekeep" / "context-relevance.json").write_text(text)
    daemon.start()


def plan(daemon):
    return reply(daemon, "/v1/plan", {"model": "lore", "messages": [{"role": "user", "content": "thanks"}]})[
        "relevance"
    ]


def test_a_users_rules_stand_over_the_shipped_ones_and_a_broken_file_lets_everything_in_and_is_named(house):
    assert "facts" in plan(house)["excluded"]
    rules(house, json.dumps({"masks": {"ACKNOWLEDGE": ["focus"]}}))
    assert set(plan(house)["excluded"]) == {"focus"}
    assert "context-relevance.json" in house.lore("config", "check").stderr
    rules(house, '{"masks": {"ACKNOWLEDGE": ["fcous"]}}')
    assert plan(house)["excluded"] == {}
    assert "masks.ACKNOWLEDGE" in reply(house, "/v1/status")["relevance"]
    assert "masks.ACKNOWLEDGE" in house.lore("status").stdout
    assert "the rules of relevance cannot be used" in house.log_end()
    (check,) = [
        one for one in json.loads(house.lore("doctor", "--json").stdout)["checks"] if one["name"] == "relevance"
    ]
    assert not check["ok"]
    checked = house.lore("config", "check")
    assert checked.returncode == 2
    assert "context-relevance.json" in checked.stderr
    assert "focus" in checked.stderr


def asked(daemon, question, **lore):
    body = {"model": "lore", "messages": [{"role": "user", "content": question}], "max_completion_tokens": 4}
    options = {"codex": "none", "session": "talk", **lore}
    return reply(daemon, "/v1/chat/completions", {**body, "lore": options})["lore"]["trace"]


def test_a_rule_that_kept_out_what_was_then_asked_for_is_regretted_and_the_figures_say_so(house):
    house.json("memory", "add", "The cache runs on Redis.")
    first = asked(house, "what is the cache?", mode="ACKNOWLEDGE")
    asked(house, "does the cache run on redis?")
    (facts,) = [
        one for one in house.json("trace", "show", first)["trace"]["relevance"]["fired"] if one["node"] == "facts"
    ]
    assert (facts["rule"], len(facts["missed"]), facts["regretted"]) == ("masks.ACKNOWLEDGE", 1, "next question")
    page = house.lore("trace", "show", first).stdout
    assert "facts: masks.ACKNOWLEDGE kept out 6 tokens (1 memory); regretted by the next question" in page
    (rule,) = [one for one in house.json("stats", "relevance")["rules"] if one["node"] == "facts"]
    assert (rule["fired"], rule["saved"], rule["regretted"]) == (1, 6, 1)
    assert "masks.ACKNOWLEDGE  facts" in house.lore("stats", "relevance").stdout
    assert "no rule fired often enough" in house.lore("stats", "relevance", "--suggest").stderr


def test_a_session_is_pinned_to_a_variant_and_the_figures_tell_both_apart(house):
    rules(house, json.dumps({"variants": {"bare": {"masks": {"RESPOND": ["facts"]}}}}))
    house.json("memory", "add", "The cache runs on Redis.")
    with_rule = house.json(
        "ask", "-c", "none", "-s", "bare", "--variant", "bare", "--max-tokens", "4", "what is the cache?"
    )
    assert with_rule["lore"]["memories"] == []
    goes_on = house.json("ask", "-c", "none", "-s", "bare", "--max-tokens", "4", "and its cache?")
    assert goes_on["lore"]["memories"] == []
    plain = house.json("ask", "-c", "none", "-s", "plain", "--max-tokens", "4", "what is the cache?")
    assert [one["text"] for one in plain["lore"]["memories"]] == ["The cache runs on Redis."]
    found = {(one["variant"], one["rule"]): one["fired"] for one in house.json("stats", "relevance")["rules"]}
    assert found[("bare", "masks.RESPOND")] == 2
    assert not [rule for variant, rule in found if not variant and rule == "masks.RESPOND"]
    assert house.json("trace", "show", goes_on["lore"]["trace"])["trace"]["relevance"]["variant"] == "bare"
    refused = house.lore("ask", "-c", "none", "-s", "plain", "--variant", "bear", "why?")
    assert (refused.returncode, "there are: bare" in refused.stderr) == (2, True)
