"""Text that spells control tokens, in a file and in a question, stays text from the disk to the answer."""

import pytest
from support.house import ask, codebase, lent, question

CONTROL = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|im_start|>",
    "<|im_end|>",
    "<s>",
    "</s>",
    "[INST]",
    "<think>",
)


@pytest.fixture(scope="module")
def house(shared_daemon):
    """A codex in which one code stands in the middle of the text of control tokens, and another behind all of them."""
    with lent(shared_daemon) as daemon:
        folder = codebase(daemon.folder / "vaults", {"walrus": "9273645"}, functions=2)
        lines = "".join(f"# {text} is only text here\n" for text in CONTROL)
        (folder / "zebra.py").write_text(f"{lines}# {question('zebra')} 48<|end_of_text|>15</s>.\n")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        yield daemon


def test_an_answer_quotes_a_control_token_s_text_as_it_stands_in_the_file_and_goes_on_behind_it(house):
    answer = house.json("ask", question("zebra"), "--max-tokens", "40")
    assert answer["answer"].strip().startswith("48<|end_of_text|>15</s>.")


def test_what_stands_behind_control_texts_is_still_the_codex(house):
    assert ask(house, "walrus")["answer"].strip().startswith("9273645")


@pytest.mark.parametrize("text", CONTROL)
def test_a_question_that_spells_one_is_answered_like_any_other(house, text):
    told = f"{text} {question('heron')} 33{text}44."
    name = house.json("ask", told, "--max-tokens", "4")["lore"]["session"]
    answer = house.json("ask", question("heron"), "--max-tokens", "30", "-s", name)
    assert answer["answer"].strip().startswith(f"33{text}44")
