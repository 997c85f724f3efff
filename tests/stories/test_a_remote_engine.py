"""A daemon whose model is a server's: the same questions, plans and refusals, by a stand-in that speaks as vLLM does.

What a real llama-server makes of it is in `test_a_real_server.py`.
"""

import signal
import tempfile
from pathlib import Path

import pytest
from support.forks import ForkedDaemon
from support.house import ask, begun, blocks, codebase, living, over_socket, reply, until, write_vault
from support.stand_in_server import Script, stand_in

KEY = "key-of-the-team"
QUESTION = "Where are the vaults opened?"


@pytest.fixture(scope="module")
def server():
    with stand_in(Script("llama-server", context=32_768, key=KEY)) as found:
        yield found


@pytest.fixture(scope="module")
def house(models, server, tmp_path_factory):
    """A daemon that asks the server, and holds the codex `vaults`."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text(f"{KEY}\n")
    config = f'[engine]\nurl = "{server.url}"\nkey_file = "{key}"\n'
    with living(models, config, environment={"LORE_MODEL": ""}) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def test_a_question_is_answered_and_a_second_conversation_computes_its_own_tokens_alone(house):
    first, second = ask(house, "zebra"), ask(house, "walrus")
    assert first["answer"] == second["answer"] == "It is read in settings.py."
    assert blocks(second["lore"])["identity"]["from"] == blocks(second["lore"])["codex"]["from"] == "remote"
    own = sum(blocks(second["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
    assert second["lore"]["prompt"]["computed"] <= own + 64
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == second["lore"]["prompt"]["cached"]


def test_the_floor_is_computed_by_the_server_before_anybody_asks(house, server):
    floors = [body for body in server.asked if body["max_tokens"] == 1]
    assert floors and len(floors[0]["prompt"]) == house.json("codex", "show", "vaults")["codex"]["floor_tokens"]


def test_a_session_goes_on_and_what_was_said_is_in_the_servers_cache(house):
    name = ask(house, "zebra")["lore"]["session"]
    further = ask(house, "walrus", session=name)
    assert blocks(further["lore"])["state"]["cached"] > 0
    assert further["lore"]["broke_at"] is None


def test_a_plan_tells_what_the_server_may_have_and_asks_it_nothing(house, server):
    ask(house, "zebra")
    before = len(server.asked)
    plan = house.json("plan", "Where is zebra opened?")
    assert len(server.asked) == before
    assert {block["from"] for block in plan["blocks"] if block["cached"]} == {"remote"}
    assert plan["memory"]["bound_reason"] == "the server's context is 32,768 tokens"
    assert "what of the prompt is in its cache is told from what was sent to it" in house.lore("plan", QUESTION).stdout


def test_the_status_names_the_server_and_what_is_not_done_there(house, server):
    page = house.lore("status").stdout
    assert f"{server.url}, llama-server, up" in page
    assert "without: checkpoints, pauses" in page
    assert house.json("status")["governor"]["window"] == 32_768


def test_there_is_no_model_here_to_show_and_a_file_is_shown_by_its_name(house, server):
    done = house.lore("model", "show")
    assert (done.returncode, f"no model is loaded here: {server.url}" in done.stderr) == (5, True), done.stderr
    assert "builtin:words" in house.lore("model", "show", "builtin:words").stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("pause", "--for", "1m"), "no memory here to give away"),
        (("codex", "export", "vaults", "floor.tar"), "no checkpoints here to export"),
        (("model", "use", "builtin:quoter"), "take engine.url out of the settings"),
    ],
)
def test_what_only_an_engine_here_can_do_is_refused_in_words(house, command, words):
    done = house.lore(*command)
    assert done.returncode == 1
    assert words in done.stderr


def test_the_key_is_in_no_log_and_no_report(house, server):
    assert server.keys == {KEY}
    assert KEY not in (house.folder / "daemon.log").read_text()
    assert KEY not in house.lore("status", "--json").stdout + house.lore("config", "show").stdout


def test_a_server_that_is_busy_is_exit_8_and_its_words_are_told(house, server):
    server.script.refusals.append((429, "the team is at work"))
    done = house.lore("ask", QUESTION)
    assert done.returncode == 8
    assert "the team is at work" in done.stderr and "Traceback" not in done.stderr
    assert house.lore("ask", QUESTION).returncode == 0


def test_an_answer_that_breaks_off_is_exit_1_and_nothing_is_lost(house, server):
    server.script.cut_after = 2
    cut = house.lore("ask", QUESTION, "-s", "torn")
    server.script.cut_after = None
    assert cut.returncode == 1 and "in the middle" in cut.stderr
    assert house.lore("ask", QUESTION, "-s", "torn").returncode == 0


def test_a_usage_without_cached_tokens_is_told_with_the_answer(house, server):
    server.script.usage = "bare"
    answer = ask(house, "zebra")
    server.script.usage = "whole"
    assert answer["lore"]["prompt"]["cached"] == 0
    assert any("does not say what was in its cache" in notice for notice in answer["lore"]["notices"])


def test_a_question_longer_than_the_servers_context_is_exit_4(house):
    assert house.lore("ask", "word " * 40_000).returncode == 4


def test_doctor_names_the_server(house, server):
    checks = {check["name"]: check for check in house.json("doctor")["checks"]}
    assert server.url in checks["remote"]["detail"]


def test_a_changed_file_is_in_the_next_prompt_behind_the_floor(house, server):
    write_vault(house.folder / "vaults", "heron", "3344556")
    until(lambda: "heron" in str(reply(house, "/v1/codices/vaults")))
    answer = ask(house, "heron")
    assert blocks(answer["lore"])["codex"]["cached"] > 0


def test_a_server_that_is_gone_is_named_and_one_that_is_back_answers(house, server):
    server.leave()
    gone = house.lore("ask", "--no-wait", "Is anybody there?")
    assert gone.returncode == 1
    assert f"{server.url} cannot be reached" in gone.stderr
    with stand_in(server.script, port=server.port):
        assert house.lore("ask", "Is anybody there?").returncode == 0
    with over_socket(house) as http:
        assert http.get("/readyz").status_code == 200


def test_who_waits_for_a_server_that_was_never_there_is_told_so_and_how_to_stop(models):
    with stand_in() as server:
        url = server.url
    with tempfile.TemporaryDirectory(prefix="lore-") as name:
        folder = codebase(Path(name) / "vaults")
        daemon = ForkedDaemon(Path(name), models=models, environment={"LORE_MODEL": "", "LORE_ENGINE__URL": url})
        daemon.process = daemon.launch((), {})
        try:
            until(daemon.socket.exists)
            with over_socket(daemon) as http:
                until(lambda: "cannot be reached" in http.get("/readyz").json()["detail"])  # the child has tried it
            waiting = [begun(daemon, *one) for one in (("ask", "x"), ("plan", "x"), ("load", folder, "--wait"))]
            for command in waiting:
                told = command.stderr.readline()
                assert f"waiting: {url} cannot be reached" in told and "(Ctrl-C stops waiting)" in told
                command.send_signal(signal.SIGINT)
                command.communicate(timeout=60)
                assert command.returncode == 130
        finally:
            daemon.stop()
