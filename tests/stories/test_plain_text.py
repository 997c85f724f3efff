"""Plain text in front of a real model: its tokens, and what clients size their prompts by."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.house import codebase, lent, over_socket, reply, shown

CONTROL = "<|endoftext|>"


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_text_comes_back_from_its_tokens_to_the_letter(house, text):
    tokens = reply(house, "/tokenize", {"content": f"{text}{CONTROL}"})["tokens"]
    assert reply(house, "/detokenize", {"tokens": tokens})["content"] == f"{text}{CONTROL}"


def test_a_control_token_written_as_text_is_text(house):
    told = reply(house, "/tokenize", {"content": CONTROL})
    assert told["count"] > 1
    assert told["max_model_len"] == reply(house, "/props")["default_generation_settings"]["n_ctx"]


def test_clients_are_told_the_room_that_the_codex_leaves(house):
    window = reply(house, "/props")["default_generation_settings"]["n_ctx"]
    lengths = {model["id"]: model["context_length"] for model in reply(house, "/v1/models")["data"]}
    assert lengths["builtin:quoter"] == window
    assert lengths["lore/vaults"] == window - shown(house, "vaults")["floor_tokens"]


def test_a_client_of_llama_server_finds_the_health_and_the_template(house):
    with over_socket(house) as http:
        assert http.get("/health").json() == {"status": "ok"}
    props = reply(house, "/props")
    assert "messages" in props["chat_template"]
    assert (props["bos_token"], props["modalities"]) == (CONTROL, {"vision": False, "audio": False})
