"""A daemon whose model is that of a real llama-server, and of two of them of which one is killed while it answers.

The server is the one that the benchmarks build from the sources of our binding. Where none is built, these are skipped;
`test_a_remote_engine.py` tells the same of a stand-in.
"""

import pytest
from support.house import CODES, ask, begun, blocks, codebase, first_words, living, question, reply
from support.llama_servers import llama_servers

LONG = "tick tock tick tock tick tock tick tock tick"


@pytest.fixture(scope="module")
def server(quoter_model, tmp_path_factory):
    with llama_servers(quoter_model, tmp_path_factory.mktemp("server")) as (one,):
        yield one


@pytest.fixture(scope="module")
def house(models, server):
    with living(models, f'[engine]\nurl = "{server.url}"\n', environment={"LORE_MODEL": ""}) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def test_the_answer_is_right_and_a_second_conversation_computes_its_own_tokens_alone(house, server):
    first = ask(house, "zebra")
    before = server.computed()
    second = ask(house, "walrus")
    assert first["answer"].strip().startswith(CODES["zebra"])
    assert second["answer"].strip().startswith(CODES["walrus"])
    own = sum(blocks(second["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
    assert second["lore"]["prompt"]["computed"] <= own + 64
    assert server.computed() - before == second["lore"]["prompt"]["computed"]
    assert blocks(second["lore"])["codex"]["from"] == "remote"
    assert second["lore"]["notices"] == []


def test_prompts_go_as_ids_and_the_window_is_the_servers(house):
    status = house.json("status")
    assert "prompts go as ids" in status["engine"]["device"]
    assert status["governor"]["bound_reason"].startswith("the server's context is")
    assert status["engine"]["servers"][0]["running"] is not None


def test_a_conversation_goes_on_from_what_the_server_has(house):
    name = ask(house, "zebra")["lore"]["session"]
    further = ask(house, "walrus", session=name)
    assert further["answer"].strip().startswith(CODES["walrus"])
    assert further["lore"]["broke_at"] is None
    assert blocks(further["lore"])["state"]["cached"] > 0


def test_an_answer_fits_its_schema(house):
    schema = {"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]}
    body = {
        "model": "lore",
        "messages": [{"role": "user", "content": question("zebra")}],
        "max_completion_tokens": 40,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }
    assert reply(house, "/v1/chat/completions", body)["choices"][0]["message"]["content"].lstrip().startswith("{")


def test_of_two_servers_one_is_killed_in_the_middle_of_an_answer_and_the_other_answers_the_next_question(
    models, quoter_model, tmp_path
):
    with llama_servers(quoter_model, tmp_path, count=2) as servers:
        urls = ", ".join(f'"{one.url}"' for one in servers)
        with living(models, f"[engine]\nurl = [{urls}]\n", environment={"LORE_MODEL": ""}) as daemon:
            assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
            ask(daemon, "zebra")
            (busy,) = (one for one in servers if one.computed() > 100)  # the codex is on one of them
            asking = begun(daemon, "ask", "-c", "vaults", LONG, "--max-tokens", "2000")
            assert first_words(asking)
            busy.kill()
            _, words = asking.communicate(timeout=60)
            assert asking.returncode == 1
            assert busy.url in words and "Traceback" not in words
            assert ask(daemon, "walrus")["answer"].strip().startswith(CODES["walrus"])
            states = {one["url"]: one["state"] for one in daemon.json("status")["engine"]["servers"]}
            assert sorted(states.values()) == ["down", "up"] and states[busy.url] == "down"
