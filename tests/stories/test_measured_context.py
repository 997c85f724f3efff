"""How long a text the model follows is measured by a real daemon: killed in the middle, gone on with, and kept to."""

import json

import pytest
from support.house import ask, codebase, counters, living, over_socket, reply, revived, until

CONTEXT = 5_000
SETTINGS = f"[model]\ncontext = {CONTEXT}\n[governor]\nsensor_busy = 0.05\nsensor_idle = 0.1\n"
ROUTE = "/v1/model/context"


@pytest.fixture(scope="module")
def house(models):
    with living(models, SETTINGS) as daemon:
        yield daemon


def kept(house):
    """The file, and in it what is known of the one model that was measured."""
    path = house.folder / "state" / "lorekeep" / "context.json"
    found = json.loads(path.read_text())
    (known,) = found.values()
    return path, found, known


def measured(house, **asked):
    """The last event of a measurement."""
    with over_socket(house) as http, http.stream("POST", ROUTE, json=asked) as answer:
        *_, last = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert last["event"] == "measured", last
    return last["context"]


def begin_and_leave(house, results):
    """Begins a measurement, and reads its progress until so many results are kept."""
    with over_socket(house) as http, http.stream("POST", ROUTE, json={}) as answer:
        for _ in answer.iter_lines():
            if (house.folder / "state" / "lorekeep" / "context.json").exists() and len(
                kept(house)[2]["results"]
            ) >= results:
                return


def window(house):
    governor = reply(house, "/v1/status")["governor"]
    return governor["window"], governor["bound"]


def share(context, kind):
    return [row["kinds"][kind] for row in context["lengths"]]


def test_what_was_measured_before_a_kill_is_not_measured_again(house):
    assert reply(house, ROUTE)["context"]["left"]["answers"] == 66
    begin_and_leave(house, 8)
    house.kill()
    path, found, known = kept(house)
    assert 8 <= len(known["results"]) < 66, "it was killed in the middle"
    assert known["results"][0][3] is True
    known["results"][0][3] = False  # the model would answer it rightly again
    path.write_text(json.dumps(found))
    house.start()
    assert reply(house, ROUTE)["context"]["left"]["answers"] < 66 - 3
    context = measured(house)
    assert share(context, "single") == [0.8, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert share(context, "chain") == [0.0] * 6, "what quotes alone follows no variable"
    assert (context["counted"], context["effective"], context["limit"]) == (["single"], 4_352, None)
    assert context["complete"]


def test_nothing_of_it_stays_but_the_results(house):
    until(lambda: reply(house, "/v1/status")["engine"]["pools"] == [])
    status = reply(house, "/v1/status")
    assert (status["sessions"], status["codices"]) == (0, [])
    assert counters(house)["prompt_tokens"] == 0, "nobody asked"
    assert [
        path for path in (house.folder / "cache" / "lorekeep" / "kv").rglob("*") if path.stat().st_size > 100_000
    ] == []


def test_a_length_that_is_lost_ends_the_window_at_once_and_after_a_restart(house):
    path, found, known = kept(house)
    lengths = known["lengths"]
    lost = [[length, kind, depth, length == lengths[0]] for length, kind, depth, _ in known["results"]]
    known["results"] = [one for one in lost if one[0] <= lengths[1]][:-1]  # one is left to be asked
    path.write_text(json.dumps(found))
    context = measured(house)
    assert (context["effective"], context["limit"]) == (lengths[0], 4_096), "never below the smallest window"
    assert share(context, "single")[2:] == [None] * 4, "nothing longer needs to be asked"
    for _ in ("at once", "after a restart"):
        until(lambda: window(house) == (4_096, "measured"))
        (model,) = [one for one in reply(house, "/v1/models/local")["models"] if one["loaded"]]
        assert model["context"] == 4_096
        house.kill()
        revived(house)
    assert "lore doctor --context" in house.lore("status").stdout


def test_questions_are_planned_with_that_window_unless_the_setting_says_otherwise(house):
    assert house.lore("load", codebase(house.folder / "vaults"), "--wait").returncode == 0
    assert ask(house, "zebra")["lore"]["strategy"]["window"] == 4_096
    house.stop()
    house.environment["LORE_MODEL__MEASURED_CONTEXT"] = "false"
    house.start()
    assert ask(house, "zebra")["lore"]["strategy"]["window"] == CONTEXT
    assert reply(house, ROUTE)["context"]["limit"] is None


def test_a_question_is_answered_while_it_measures(house):
    with over_socket(house) as http, http.stream("POST", ROUTE, json={"again": True}) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert "4815162" in ask(house, "zebra")["answer"]
        assert reply(house, ROUTE)["context"]["left"]["answers"] > 0
        with over_socket(house) as other:
            refused = other.post(ROUTE, json={})
    assert refused.status_code == 409
    done = house.lore("doctor", "--context", "--json")
    assert (done.returncode, share(json.loads(done.stdout), "single")) == (0, [1.0] * 6)
