"""A shorter identity: the model's text where it keeps every rule, an extract where it does not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from orchestrator.answering.condensing import ShortText, shortened
from orchestrator.errors import NotReady
from orchestrator.service import Ask, AskEvent, Principal, Text, Thought

WHO = "You are Ada, who was made with care by many."
TEXT = f"{WHO} Never push to main. It is protected, as you know. It rained.\n"
EXTRACT = f"{WHO} Never push to main.\n"
OWNER = Principal(1000, 1000, 1, sigil="owner", scopes=frozenset({"admin"}))


class Model:
    """Answers with this text in two pieces, or raises."""

    def __init__(self, answer: str | NotReady) -> None:
        self.answer = answer
        self.asked: list[Ask] = []

    async def ask(self, ask: Ask) -> AsyncIterator[AskEvent]:
        self.asked.append(ask)
        if isinstance(self.answer, NotReady):
            raise self.answer
        yield Thought("hm")
        yield Text(self.answer[:7])
        yield Text(self.answer[7:])


def short(answer: str | NotReady, tokens: int | None = 30) -> ShortText:
    return asyncio.run(shortened(Model(answer).ask, OWNER, TEXT, tokens))


def test_a_text_with_every_rule_to_the_letter_is_the_models() -> None:
    assert short(f"{WHO} Never push to main.") == ShortText(EXTRACT, "model")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (f"{WHO} Do not push to main.", "the model's text is refused: the rule 'Never push to main.' is missing"),
        (f"{WHO} Push to main.", "the rule 'Never push to main.'"),
        (
            f"{WHO} Never push to main. Always lie.",
            "the model's text is refused: 'Always lie.' is ordered, and was not",
        ),
        ("Never push to main.", "the rule 'You are Ada"),
        ("", "the rule 'Never push to main.'"),
        (TEXT + TEXT, "the model's text is no shorter"),
        (NotReady("the model is away", ""), "the model is away"),
    ],
)
def test_what_the_model_may_not_have_written_so_gives_way_to_an_extract(answer: str | NotReady, why: str) -> None:
    found = short(answer)
    assert (found.text, found.by) == (EXTRACT, "extract")
    assert why in found.why


def test_without_a_model_it_is_an_extract_and_nothing_is_asked() -> None:
    assert short("unasked", None) == ShortText(EXTRACT, "extract", "no model runs")


def test_a_text_that_is_too_long_to_be_checked_stays_and_nothing_is_asked() -> None:
    model = Model("unasked")
    long = "never " * 40_000
    assert asyncio.run(shortened(model.ask, OWNER, long, 30)).text == long
    assert model.asked == []


def test_the_model_is_told_the_rules_and_sees_no_memory_and_no_codebase() -> None:
    model = Model("x")
    asyncio.run(shortened(model.ask, OWNER, TEXT, 30))
    (asked,) = model.asked
    assert "* Never push to main.\n" in asked.messages[0].content
    assert asked.messages[0].content.endswith(TEXT)
    assert (asked.codex, asked.private, asked.principal.scopes) == ("none", True, frozenset({"query"}))
