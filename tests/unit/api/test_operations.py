"""Routes that tell of the daemon itself, over the real socket."""

import json


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
