"""The main job: a codebase is loaded, asked about, and asked again out of the cache."""

import json

import pytest
from support.house import CODES, ask, blocks, cached_whole, codebase, counters, events, lent, question, reply


@pytest.fixture(scope="module")
def house(shared_daemon):
    """A daemon that holds the codex `vaults`, its floor computed."""
    with lent(shared_daemon) as daemon:
        loaded = daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--json")
        assert loaded.returncode == 0, loaded.stderr
        daemon.loaded = events(loaded.stdout)
        yield daemon


def test_a_load_tells_its_progress_and_then_what_was_taken_and_why_in_this_tier(house):
    *progress, last = house.loaded
    assert {event["phase"] for event in progress} >= {"count", "prefill"}
    codex = last["codex"]
    assert (codex["name"], codex["files"], codex["tier"]) == ("vaults", 3, "full")
    assert f"{codex['tokens']['full']:,} tokens fit in" in codex["reason"]
    assert codex["kv_bytes"] > 0
    assert codex["indexed_chunks"] >= 3


def test_a_question_is_answered_with_the_exact_words_of_the_code_and_where_they_stand(house):
    answer = ask(house, "zebra")
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert answer["lore"]["citations"][0] == {"path": "zebra.py", "start": 3, "end": 3, "valid": True}
    assert answer["lore"]["strategy"]["name"] == "CAG"
    assert 0 <= answer["lore"]["drafts"]["accepted"] <= answer["lore"]["drafts"]["drafted"]
    assert [block["kind"] for block in answer["lore"]["blocks"]] == [
        "identity",
        "codex",
        "environment",
        "karma",
        "state",
        "query",
    ]


def test_a_person_reads_the_answer_alone_on_stdout_and_the_footer_beside_it(house):
    done = house.lore("ask", question("zebra"), "--max-tokens", "10")
    assert done.stdout.strip().startswith(CODES["zebra"])
    assert "cites zebra.py:3" in done.stderr
    assert "vaults · CAG (full)" in done.stderr
    assert "tokens cached" in done.stderr
    assert "no model is configured: builtin:quoter only quotes" in done.stderr


def test_the_second_question_finds_the_floor_in_the_cache_and_computes_only_its_own_tokens(house):
    first = ask(house, "zebra")
    second = ask(house, "walrus")
    assert second["answer"].strip().startswith(CODES["walrus"])
    assert second["lore"]["session"] != first["lore"]["session"]
    assert cached_whole(second["lore"], "identity", "codex", "environment")
    assert {blocks(second["lore"])[kind]["from"] for kind in ("identity", "codex")} == {"ram"}
    assert second["lore"]["prompt"]["computed"] <= blocks(second["lore"])["query"]["tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == second["lore"]["prompt"]["cached"]


def test_the_engine_computes_no_more_than_an_answer_says(house):
    before = counters(house)["computed_tokens"]
    answer = ask(house, "walrus", codex="vaults")
    spent = counters(house)["computed_tokens"] - before
    decoded = answer["usage"]["completion_tokens"]
    assert spent <= answer["lore"]["prompt"]["computed"] + decoded


def test_a_plan_says_what_is_cached_and_runs_nothing(house):
    ask(house, "zebra")
    status = house.json("status")
    plan = house.json("plan", question("zebra"))
    after = house.json("status")
    assert cached_whole(plan, "identity", "codex", "environment")
    assert plan["prompt"]["computed"] == 1
    assert "trace" not in plan
    assert {"relevance", "intent", "retrieval_plan", "predicted", "governor", "strategy"} <= set(plan)
    assert after["engine"]["cache"]["steps"] == status["engine"]["cache"]["steps"]
    assert after["sessions"] == status["sessions"]


def test_a_plan_prints_the_exact_prompt_with_the_code_left_of_the_question(house):
    text = house.lore("plan", question("zebra"), "--prompt").stdout
    assert text.index(f"{question('zebra')} {CODES['zebra']}") < text.rindex(question("zebra"))
    assert text.index("zebra.py") < text.index("# Environment") < text.rindex(question("zebra"))


def test_the_status_says_how_far_off_the_estimates_of_the_model_were(house):
    rows = {one["what"]: one for one in reply(house, "/v1/status")["governor"]["estimates"]}
    assert list(rows) == ["weights", "a token of KV", "buffers"]
    for exact in ("weights", "a token of KV"):
        assert rows[exact]["estimated"] == pytest.approx(rows[exact]["real"], rel=0.01)
    (line,) = [line for line in house.lore("status", "-v").stdout.splitlines() if line.startswith("estimated")]
    assert all(what in line for what in rows)


def test_a_plan_says_why_a_window_is_no_longer(house):
    memory = house.json("plan", question("zebra"))["memory"]
    assert memory["bound_reason"].startswith("the model was trained for")
    assert (
        f"at most {memory['window']:,} tokens: {memory['bound_reason']}" in house.lore("plan", question("zebra")).stdout
    )


def test_what_a_smaller_type_of_kv_changes_is_measured_on_the_codex_and_kept(house):
    shown = house.lore("model", "show", "--measure", "-c", "vaults", "--json")
    assert shown.returncode == 0, shown.stderr
    loss = json.loads(shown.stdout)["model"]["kv"]["losses"]["q8_0"]
    assert (loss["codex"], loss["tokens"] >= 256) == ("vaults", True)
    assert 0 < loss["mean"] <= loss["worst"]
    assert f"{loss['tokens']:,} tokens of vaults" in house.lore("model", "show").stdout
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])


def test_a_session_remembers_what_was_said_in_it_and_another_one_does_not(house):
    told = house.json("ask", f"{question('heron')} 3344556.", "--max-tokens", "4")
    name = told["lore"]["session"]
    assert "3344556" in ask(house, "heron", session=name)["answer"]
    assert "3344556" not in ask(house, "heron")["answer"]


def test_a_continued_session_computes_only_what_is_new(house):
    name = ask(house, "zebra")["lore"]["session"]
    answer = ask(house, "walrus", session=name)
    assert cached_whole(answer["lore"], "identity", "codex", "environment")
    own = blocks(answer["lore"])["query"]["tokens"]
    assert answer["lore"]["prompt"]["computed"] <= own + 4, "the last answer's end, and this question"
    assert answer["lore"]["broke_at"] is None


def test_a_session_keeps_its_codex(house):
    name = ask(house, "zebra")["lore"]["session"]
    done = house.lore("ask", question("zebra"), "-s", name, "-c", "none")
    assert done.returncode == 2
    assert "vaults" in done.stderr


def test_the_working_directory_names_the_codex_and_none_asks_the_bare_model(house):
    inside = house.json("ask", question("zebra"), "--max-tokens", "10", cwd=house.folder / "vaults")
    assert inside["lore"]["codex"]["name"] == "vaults"
    bare = ask(house, "zebra", codex="none")
    assert bare["lore"]["codex"] is None
    assert CODES["zebra"] not in bare["answer"]


def test_a_private_question_leaves_no_session_and_no_trace(house):
    before = house.json("status")["sessions"]
    answer = ask(house, "zebra", record=False)
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert (answer["lore"]["session"], answer["lore"]["trace"]) == (None, None)
    assert house.json("status")["sessions"] == before


def test_a_file_and_standard_input_stand_in_state_and_are_answered_from(house):
    note = house.folder / "note.txt"
    note.write_text(f"{question('otter')} 6203847.\n")
    done = house.lore("ask", question("otter"), "--max-tokens", "10", "-f", note)
    assert done.stdout.strip().startswith("6203847")
    assert "note.txt: 43 characters" in done.stderr
    piped = house.lore("ask", question("stoat"), "--max-tokens", "10", input=f"{question('stoat')} 5512098.\n")
    assert piped.stdout.strip().startswith("5512098")
    assert "standard input" in piped.stderr


def test_an_answer_that_is_cut_says_so(house):
    done = house.lore("ask", question("zebra"), "--max-tokens", "2")
    assert done.returncode == 0
    assert "cut at 2 tokens" in done.stderr


def test_a_stop_string_ends_the_answer_and_does_not_leak(house):
    answer = house.json("ask", question("zebra"), "--max-tokens", "10", "--stop", "5162")
    assert answer["answer"].strip() == CODES["zebra"].removesuffix("5162")
    assert answer["finish_reason"] == "stop"


def test_search_answers_with_places(house):
    hits = house.json("search", "access code zebra", "-n", "3")["hits"]
    assert hits[0]["path"] == "zebra.py"
    assert hits[0]["start"] <= 3 <= hits[0]["end"]
    piped = house.lore("search", "access code zebra", "-n", "1").stdout
    assert piped.startswith("zebra.py:")


def test_a_second_codex_is_asked_beside_the_first_which_stays_warm(house):
    other = codebase(house.folder / "cellars", {"badger": "7135508"}, functions=2)
    assert house.lore("load", other, "--wait").returncode == 0
    assert ask(house, "badger", codex="cellars")["answer"].strip().startswith("7135508")
    assert cached_whole(ask(house, "zebra", codex="vaults")["lore"], "identity", "codex")
    unsaid = house.lore("ask", question("zebra"))
    assert unsaid.returncode == 2
    assert "cellars" in unsaid.stderr
    assert "vaults" in unsaid.stderr
    assert house.lore("codex", "drop", "cellars").returncode == 0
    assert [codex["name"] for codex in house.json("codex", "list")["codices"]] == ["vaults"]
