"""Traces as a user meets them: each turn is shown, compared, voted on, and gone after its time."""

import pytest
from support.house import CODES, ask, codebase, living, question, revived


@pytest.fixture(scope="module")
def house(models):
    with living(models) as daemon:
        loaded = daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--json")
        assert loaded.returncode == 0, loaded.stderr
        yield daemon


def traces(daemon):
    return daemon.json("trace", "list")["traces"]


def trace(daemon, name, *options):
    return daemon.json("trace", "show", name, *options)["trace"]


def test_a_trace_has_the_question_the_answer_and_the_exact_prompt_that_a_plan_foretold(house):
    foretold = house.lore("plan", question("zebra"), "--prompt").stdout
    answered = house.json("ask", question("zebra"), "--max-tokens", "10")
    kept = trace(house, answered["lore"]["trace"], "--prompt")
    assert (kept["question"], kept["answer"]) == (question("zebra"), answered["answer"])
    assert "".join(one["text"] for one in kept["prompt"]) == foretold.removesuffix("\n")
    assert house.lore("trace", "show", "last", "--prompt").stdout == foretold.removesuffix("\n")
    assert kept["lore"] == answered["lore"]
    assert traces(house)[0]["id"] == kept["id"]


def test_a_difference_names_the_block_where_two_prompts_part(house):
    first, second = (ask(house, vault)["lore"]["trace"] for vault in ("zebra", "walrus"))
    found = house.json("trace", "diff", first, second)
    assert found["broke_at"]["block"] == "query"
    assert [block["block"] for block in found["blocks"] if not block["same"]] == ["query"]
    assert house.json("trace", "diff", first, first)["broke_at"] is None
    assert "they part at query" in house.lore("trace", "diff", first, second).stdout


def test_a_person_reads_what_the_model_saw_and_said(house):
    ask(house, "zebra")
    page = house.lore("trace", "show", "last").stdout
    assert f"user: {question('zebra')}" in page
    assert CODES["zebra"] in page
    assert question("zebra")[:20] in house.lore("trace", "list", "-n", "1").stdout


def test_a_private_question_leaves_none(house):
    before = traces(house)
    assert house.json("ask", question("zebra"), "--private", "--max-tokens", "4")["lore"]["trace"] is None
    assert traces(house) == before


def test_a_vote_is_kept_and_moves_the_trust_of_what_was_shown_once(house):
    added = house.json("memory", "add", "The zebra vault is red.", "-c", "none")["memory"]
    answered = house.json("ask", "what is the zebra vault?", "-c", "none", "--max-tokens", "4")["lore"]["trace"]
    assert trace(house, answered)["memories"] == [added["id"]]
    for _ in range(2):
        voted = house.json("feedback", answered[:12], "up", "--note", "it is")["trace"]
        assert (voted["vote"], voted["note"]) == ("up", "it is")
        assert house.json("memory", "show", added["id"])["memory"]["trust"] == pytest.approx(0.55)
    house.json("feedback", answered, "down")
    assert house.json("memory", "show", added["id"])["memory"]["trust"] == pytest.approx(0.45)
    house.json("memory", "forget", added["id"])


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("trace", "show", "zzz"), 5, "no trace zzz"),
        (("trace", "diff", "last", "zzz"), 5, "no trace zzz"),
        (("feedback", "zzz", "up"), 5, "no trace zzz"),
        (("feedback", "last", "sideways"), 2, "neither up nor down"),
        (("trace", "list", "-n", "0"), 2, "-n"),
    ],
)
def test_wrong_input_gets_a_sentence_and_a_status(house, arguments, status, says):
    run = house.lore(*arguments)
    assert run.returncode == status, run.stderr
    assert says in run.stderr
    assert "Traceback" not in run.stderr


def test_what_was_said_in_any_conversation_is_found_until_that_is_dropped(house):
    house.json("ask", "tell of the flamingos", "-s", "birds", "--max-tokens", "4")
    (hit,) = house.json("session", "search", "flamingo?")["hits"]
    assert (hit["session"], hit["role"], hit["snippet"]) == ("birds", "user", "tell of the flamingos")
    assert "birds" in house.lore("session", "search", "flamingo").stdout
    assert house.lore("session", "search", "???").returncode == 2
    house.lore("session", "drop", "birds")
    assert house.lore("session", "search", "flamingo").returncode == 5


def test_traces_outlive_a_kill_and_a_damaged_file_is_put_aside(house):
    kept = trace(house, ask(house, "zebra")["lore"]["trace"])
    house.kill()
    revived(house)
    assert trace(house, kept["id"]) == kept
    house.stop()
    (file,) = house.folder.rglob("traces.sqlite3")
    file.write_bytes(b"no database" * 1000)
    revived(house)
    assert traces(house) == []
    assert file.with_name("traces.sqlite3.damaged").read_bytes().startswith(b"no database")
    assert ask(house, "zebra")["lore"]["trace"] == traces(house)[0]["id"]
