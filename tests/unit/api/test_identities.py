"""Routes of identities."""


def test_they_are_listed_and_shown_with_what_a_change_costs(http):
    assert [one["name"] for one in http.get("/v1/identities").json()["identities"]] == ["lorekeep"]
    shown = http.get("/v1/identities/lorekeep").json()["identity"]
    assert (shown["text"], shown["cost"]) == ("You answer.\n", [{"name": "demo", "tokens": 1_002, "seconds": 2.5}])
    assert http.get("/v1/identities/nobody").status_code == 404


def test_a_dry_run_tells_the_cost_and_writes_nothing(http):
    told = http.put("/v1/identities/terse", json={"text": "Be terse.\n", "dry_run": True}).json()
    assert (told["changed"], told["saved"], told["before"]) == (True, False, None)
    assert http.get("/v1/identities/terse").status_code == 404
    assert http.put("/v1/identities/terse", json={"text": "Be terse.\n"}).json()["saved"] is True
    assert http.get("/v1/identities/terse").json()["identity"]["text"] == "Be terse.\n"


def test_an_empty_text_and_an_unknown_key_are_refused(http):
    assert http.put("/v1/identities/terse", json={"text": " "}).status_code == 400
    assert http.put("/v1/identities/terse", json={"text": "Be terse.", "force": True}).status_code == 400
