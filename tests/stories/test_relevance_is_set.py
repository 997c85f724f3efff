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
