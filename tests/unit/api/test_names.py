"""Which codex or model a client's id means, however it writes it."""

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.openai_client import openai_client
from support.served import served

from orchestrator.api.names import REFUSE, KnownModels, ModelNotFound, NamedModel, chosen
from orchestrator.settings import Settings
from orchestrator.wire.names import spelled, without_tag

KNOWN = KnownModels(codices=("project", "requests-2.31"), models=("Qwen2.5-Coder-7B",))
NAMES = st.text("abcDEF-.:", min_size=1, max_size=4)
QUESTION = [{"role": "user", "content": "hello there"}]


def create(client, model, **more):
    return client.chat.completions.create(model=model, messages=QUESTION, **more)


@pytest.mark.parametrize(
    ("model", "codex"),
    [
        ("qwen2.5-coder-7b", "none"),
        ("Qwen2.5-Coder-7B:latest", "none"),
        ("qwen", "none"),
        ("Project", "Project"),
        ("project:LATEST", "project"),
        ("requests", "requests"),  # of which the answer says that it is about requests-2.31
    ],
)
def test_an_id_without_prefix_is_the_model_or_a_codex_in_any_case_with_or_without_latest(model, codex):
    assert chosen(model, KNOWN, REFUSE) == NamedModel(codex)


@pytest.mark.parametrize("model", ["lore/demo", "LORE/Demo", "lore/demo:latest", "lore/dem", "demo", "Demo:latest"])
def test_a_codex_answers_to_every_way_in_which_clients_write_it(client, lorekeep, model):
    create(client, model)
    assert spelled(lorekeep.service.asked[0].codex, ["demo"]) == "demo"


@pytest.mark.parametrize("model", ["", "lore", "Lore:latest"])
def test_the_general_id_leaves_the_choice_to_the_daemon(client, lorekeep, model):
    create(client, model)
    assert lorekeep.service.asked[0].codex is None


@given(st.lists(NAMES, unique=True, max_size=6), NAMES)
def test_a_name_is_never_taken_for_another_while_the_same_is_there(known, asked):
    found = spelled(asked, known)
    if asked in known:
        assert found == asked
    elif found is not None:
        alike = [name for name in known if name.casefold() == asked.casefold()]
        assert [found] == (alike or [name for name in known if name.casefold().startswith(asked.casefold())])


@given(NAMES)
def test_latest_is_taken_off_and_nothing_else(name):
    assert without_tag(f"{name}:latest") == name
    assert without_tag(name) == name


def test_an_unknown_model_is_refused_or_answered_as_the_setting_says_and_the_answer_tells_it():
    with pytest.raises(ModelNotFound, match="no model gpt-4o"):
        chosen("gpt-4o", KNOWN, REFUSE)
    told = "there is no model gpt-4o: {} (clients.unknown_model)"
    assert chosen("gpt-4o", KNOWN, "default") == NamedModel(None, told.format("the default answers"))
    assert chosen("gpt-4o", KNOWN, "lore/project") == NamedModel("project", told.format("lore/project answers"))
    assert chosen("gpt-4o", KNOWN, "qwen") == NamedModel("none", told.format("qwen answers"))
    with pytest.raises(ModelNotFound, match="no model gone"):
        chosen("gpt-4o", KNOWN, "gone")


def test_a_misspelt_codex_is_refused_whatever_the_setting_says(folder):
    settings = Settings.model_validate({"clients": {"unknown_model": "default"}})
    with served(folder, settings=settings) as running, openai_client(running.socket) as client:
        assert create(client, "gpt-4o").lore["notices"][0].startswith("there is no model gpt-4o")
        with pytest.raises(openai.NotFoundError) as refused:
            create(client, "lore/dmo")
        assert refused.value.code == "model_not_found"


def test_what_means_nothing_here_is_named_once_in_the_answer(client):
    extra = {"keep_alive": "5m", "options": {"num_ctx": 4096}, "think_harder": None}
    answer = create(client, "lore", user="me", presence_penalty=0.0, frequency_penalty=1.5, extra_body=extra)
    (told,) = answer.lore["notices"]
    assert told == "ignored, because it means nothing here: frequency_penalty, keep_alive, options, user"
    assert create(client, "lore").lore["notices"] == []


def test_no_question_waits_for_the_headers_of_the_model_files(client, lorekeep, monkeypatch):
    """A folder of models is gigabytes, and each header holds a vocabulary."""
    read = []
    monkeypatch.setattr(lorekeep.service, "models", lambda: read.append("all"), raising=True)
    create(client, "builtin:quoter")
    create(client, "demo")
    client.responses.create(model="lore/demo", input="hello there")
    assert [one.id for one in client.models.list()] == ["lore/demo", "builtin:quoter"]
    assert read == []
