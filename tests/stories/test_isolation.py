"""`lore doctor --isolation` passes on a sound daemon, leaves nothing there, and notices an engine that mixes sequences."""

import json
from pathlib import Path

import pytest
from support.house import codebase, counters, lent, living, reply, until

FAULTY = Path(__file__).resolve().parents[1] / "support" / "faulty_child"


def checks(done):
    return {one["name"]: one for one in json.loads(done.stdout)["checks"]}


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        yield daemon


def test_a_sound_daemon_answers_as_alone_out_of_its_cache_and_keeps_nothing_of_it(house):
    before = [pool["name"] for pool in reply(house, "/v1/status")["engine"]["pools"]]
    done = house.lore("doctor", "--isolation", "--json")
    found = checks(done)
    assert [name for name, one in found.items() if not one["ok"]] == []
    assert "as alone, within 0.0" in found["isolation"]["detail"]
    assert "8 of 8 say their own" in found["canaries"]["detail"]
    after = [pool["name"] for pool in reply(house, "/v1/status")["engine"]["pools"]]
    assert set(after) - set(before) <= {name for name in after if name.startswith("lorekeep@")}, "no context stays"
    assert reply(house, "/v1/sessions")["sessions"] == []


def test_it_is_tried_on_a_codex_where_one_is_named(house):
    assert house.lore("load", codebase(house.folder / "vaults"), "--wait", "--no-watch").returncode == 0
    done = house.lore("doctor", "--isolation", "-c", "vaults", "--json")
    assert checks(done)["isolation"]["ok"], done.stdout
    assert house.lore("doctor", "--isolation", "-c", "nobody").returncode == 5


def test_a_prompt_without_a_cache_takes_nothing_from_one_and_leaves_nothing(house):
    body = {"messages": [{"role": "user", "content": "Nobody has asked this before."}], "max_tokens": 4}
    alone = {**body, "lore": {"codex": "none", "record": False, "cache": False}}
    for _ in range(2):
        prompt = reply(house, "/v1/chat/completions", alone)["lore"]["prompt"]
        assert (prompt["cached"], prompt["computed"]) == (0, prompt["tokens"])
    shared = {**body, "lore": {"codex": "none", "record": False}}
    first, second = (reply(house, "/v1/chat/completions", shared)["lore"]["prompt"] for _ in range(2))
    assert first["cached"] < second["cached"], "what was computed without a cache is not in it"
    assert counters(house)["broken_pools"] == 0


def test_an_engine_that_mixes_sequences_is_noticed(models, tmp_path):
    fault = tmp_path / "fault"
    fault.write_text("mix")
    with living(models, environment={"PYTHONPATH": str(FAULTY), "FAULT_FILE": str(fault)}) as daemon:
        seen = []

        def found_foreign():
            done = daemon.lore("doctor", "--isolation", "--json")
            found = checks(done)
            assert (done.returncode, found["isolation"]["ok"], found["control"]["ok"]) == (1, False, True)
            seen.append(found["canaries"])
            return not seen[-1]["ok"]

        # Where a prompt is computed in several pieces, what is mixed into it may hold no canary as a whole.
        until(found_foreign)
        assert "which is of conversation" in seen[-1]["detail"]
        assert counters(daemon)["broken_pools"] == 0, "nothing else notices"
