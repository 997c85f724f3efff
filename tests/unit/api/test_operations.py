"""Routes that tell of the daemon itself, over the real socket."""

import json

import pytest


def test_a_local_model_is_told_and_an_unknown_one_is_not_found(http):
    assert http.get("/v1/models/local/builtin:quoter").json()["model"]["context"] == 8192
    assert http.get("/v1/models/local/nope").status_code == 404


def test_the_caches_figures_are_an_object(http):
    assert http.get("/v1/stats/cache").json()["tiers"]["disk"]["hit_rate"] == 0.3


def test_events_come_one_by_one_and_end_when_nobody_listens(http, lorekeep):
    with http.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()
        found = [json.loads(line[6:]) for _, line in zip(range(4), lines, strict=False) if line.startswith("data: ")]
    assert [event["event"] for event in found] == ["now", "level"]
    lorekeep.wait_for(lorekeep.service.ended)


def test_a_pause_answers_when_the_memory_is_free_and_a_resume_says_what_it_ended(http, lorekeep):
    paused = http.post("/v1/pause", json={"for": "2h", "why": "training"}).json()
    assert (paused["away"]["why"], paused["away"]["until"]) == ("training", 7200.0)
    assert "\nlorekeep_paused 1\n" in http.get("/metrics").text
    assert http.post("/v1/resume").json() == {"ended": ["training"], "engine": "starting"}


def test_a_held_pause_ends_with_its_connection(http, lorekeep):
    with http.stream("POST", "/v1/pause", json={"hold": True, "why": "a command"}) as answer:
        lines = answer.iter_lines()  # which closes the connection when it goes
        assert json.loads(next(lines).removeprefix("data: "))["away"]["why"] == "a command"
        assert lorekeep.service.pauses == ["a command"]
    lorekeep.wait_for(lorekeep.service.ended)
    assert lorekeep.service.pauses == []


@pytest.mark.parametrize("wrong", ["soon", 0, -3, "31d", "2 parsecs", True])
def test_a_pause_of_no_length_is_refused(http, wrong):
    refused = http.post("/v1/pause", json={"for": wrong})
    assert (refused.status_code, "for" in refused.json()["error"]["message"]) == (400, True)


def test_symbols_are_told_in_the_shape_that_programs_rely_on(http):
    found = http.post("/v1/symbols", json={"name": "run", "what": "callers"}).json()
    (row,) = found["symbols"]
    told = {"name": "run", "qualified": "App.run", "kind": "method", "path": "src/a.py", "line": 10, "uses": [20, 22]}
    assert {name: row[name] for name in told} == told
    assert http.post("/v1/symbols", json={"name": "nothing"}).json()["near"] == ["noting"]


@pytest.mark.parametrize(
    "body", [{"name": ""}, {"name": "x", "what": "uses"}, {"what": "callers"}, {"name": "x", "n": 3}]
)
def test_a_question_about_symbols_that_nobody_can_answer_is_refused(http, body):
    assert http.post("/v1/symbols", json=body).status_code == 400
