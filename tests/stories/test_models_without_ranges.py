"""A hybrid model, whose memory cannot be cut: what a question shares with earlier ones is computed once all the same."""

import pytest
from support import odd_models
from support.house import Lore, blocks, codebase, living, question, reply

RULES = {
    "role": "system",
    "content": " ".join(f"Rule {number}: name the file and line {number}." for number in range(40)),
}
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m.role + ']\n' + m.content + '\n' }}{% endfor %}"
    "{{ '[assistant]\n<think>\n\n</think>\n\n' }}"  # which an answer does not have once its turn is closed
)
EDITED = "(The client has edited this answer, and sends it back with some more words of its own behind it.)"


@pytest.fixture(scope="module")
def house(models, tmp_path_factory):
    model = odd_models.hybrid(tmp_path_factory.mktemp("odd") / "model.gguf", TEMPLATE)
    with living(models, model=str(model)) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


def user(text):
    return {"role": "user", "content": text}


def asked(house, *messages) -> tuple[str, Lore]:
    """What was answered, and the lore object."""
    body = {"model": "lore/vaults", "messages": messages, "max_completion_tokens": 8, "temperature": 0}
    answer = reply(house, "/v1/chat/completions", body)
    return answer["choices"][0]["message"]["content"], answer["lore"]


def own(lore: Lore) -> int:
    """Tokens right of the Environment: the conversation."""
    return blocks(lore)["state"]["tokens"] + blocks(lore)["query"]["tokens"]


def test_a_second_question_computes_its_own_tokens_alone(house):
    asked(house, user(question("zebra")))
    _, lore = asked(house, user(question("walrus")))
    assert lore["prompt"]["computed"] <= own(lore)


def test_a_client_s_system_message_is_computed_once(house):
    _, first = asked(house, RULES, user(question("zebra")))
    _, second = asked(house, RULES, user(question("walrus")))
    assert first["prompt"]["computed"] > 400
    assert second["prompt"]["computed"] <= own(second)


def test_a_conversation_whose_answers_come_back_otherwise_is_computed_from_its_last_question_on(house):
    talk, computed = [RULES, user(f"Tell me of {question('zebra')}")], []
    for vault in ("walrus", "zebra", "walrus", "zebra"):
        said, lore = asked(house, *talk)
        computed.append(lore["prompt"]["computed"])
        talk += [{"role": "assistant", "content": f"{said} {EDITED}"}, user(question(vault))]
    assert computed[3] <= computed[1] + 40, "two turns more do not make it longer"


def test_after_a_restart_the_system_message_comes_back_from_the_disk(house):
    asked(house, RULES, user(question("zebra")))
    house.stop()
    house.start()
    _, lore = asked(house, RULES, user(question("heron")))
    assert lore["prompt"]["computed"] <= own(lore)
    assert blocks(lore)["environment"]["cached"] == blocks(lore)["environment"]["tokens"] > 400
