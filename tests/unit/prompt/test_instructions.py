"""Instructions in short: no rule is lost, nothing new is ordered, and the extract lacks nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.prompt.instructions import KeptRule, extract, lacking, rules

KEEPER = """You are the keeper of the vaults. You were made by people who love old code, and it shows in all they do.

Never push to main. The branch is protected, as everybody knows. Answer in German, and cite path:line.

## Style

* Be terse. It is kinder to whoever reads.
* Tables over prose.

The house is old and it has many rooms.
You must run `make check` before you say that a
change is done.

## Never

Speak of the moat.

```
lore ask "why?"
```
"""


def test_rules_are_what_orders_forbids_or_permits_and_entries_of_lists() -> None:
    assert rules(KEEPER) == (
        KeptRule("You are the keeper of the vaults."),
        KeptRule("Never push to main."),
        KeptRule("Answer in German, and cite path:line."),
        KeptRule("Be terse."),
        KeptRule("Tables over prose."),
        KeptRule("You must run `make check` before you say that a change is done."),
        KeptRule("Never"),
        KeptRule("Speak of the moat.", "Never"),
        KeptRule('```\nlore ask "why?"\n```', "Never"),
    )


def test_the_extract_keeps_the_first_sentence_the_rules_and_their_headings_and_leaves_the_rest() -> None:
    assert (
        extract(KEEPER)
        == """You are the keeper of the vaults.

Never push to main. Answer in German, and cite path:line.

## Style

* Be terse.
* Tables over prose.

You must run `make check` before you say that a
change is done.

## Never

Speak of the moat.

```
lore ask "why?"
```
"""
    )


@pytest.mark.parametrize(
    ("shorter", "missing"),
    [
        (KEEPER.replace("Never push to main.", "Do not push."), "the rule 'Never push to main.'"),
        (KEEPER.replace("Never push to main.", "Push to main."), "the rule 'Never push to main.'"),
        (KEEPER.replace("You must run", "Run"), "the rule 'You must run"),
        (KEEPER.replace("You are the keeper of the vaults.", "You are Bob."), "the rule 'You are the keeper"),
        (KEEPER.replace("* Tables over prose.\n", ""), "the rule 'Tables over prose.'"),
        (KEEPER.replace("Speak of the moat.", "Speak of moats."), "the rule 'Speak of the moat.'"),
        (KEEPER.replace("## Never\n\n", ""), "the rule 'Never'"),
        (KEEPER.replace("why?", "how?"), "the rule '```"),
        (KEEPER + "\nAlways delete the cache.\n", "'Always delete the cache.' is ordered, and was not"),
        ("", "the rule"),
    ],
)
def test_a_text_that_lost_a_rule_or_made_one_is_told_by_it(shorter: str, missing: str) -> None:
    assert any(one.startswith(missing) for one in lacking(KEEPER, shorter))


def test_a_text_that_shortens_only_what_is_no_rule_lacks_nothing() -> None:
    assert lacking(KEEPER, KEEPER.replace(" The branch is protected, as everybody knows.", "")) == ()
    assert lacking(KEEPER, extract(KEEPER)) == ()
    assert lacking(KEEPER, " ".join(KEEPER.split())) != ()  # a heading is no heading then, and orders what it did not


def test_names_numbers_and_quotations_stay_though_nothing_orders_them() -> None:
    text = 'You are Ada. The port is 8080 here. It was a warm day.\n\nThe sign said "Mind. The. Gap" then.\n'
    assert extract(text) == 'You are Ada. The port is 8080 here.\n\nThe sign said "Mind. The. Gap" then.\n'
    assert "'8080' is missing" in lacking(text, "You are Ada.\n")


def test_an_abbreviation_does_not_end_a_rule() -> None:
    assert rules("Never use e.g. Tabs or i.e. Spaces. It rained.") == (KeptRule("Never use e.g. Tabs or i.e. Spaces."),)


def test_a_list_behind_a_colon_that_orders_is_kept_whole() -> None:
    text = "You are Ada.\n\nAlways say these:\n\n1. Hello. It is a greeting.\n2. Bye\n\nIt rained all day long.\n"
    assert extract(text) == "You are Ada.\n\nAlways say these:\n\n1. Hello. It is a greeting.\n2. Bye\n"


def test_what_cannot_be_shortened_stays_as_it_is() -> None:
    text = "You answer questions.   Never lie."
    assert extract(text) == text


LINES = some.sampled_from(
    [
        *(
            "# Style\n",
            "## Never\n",
            "\n",
            "* Be terse. It is kind.\n",
            "1. Tabs\n",
            "   and spaces\n",
            "```\n",
            "x = 1\n",
        ),
        *(
            "You are Ada. It rained.\n",
            "Never push.\n",
            "You must\nwait. So it is.\n",
            "| a | b |\n",
            "The port is 80.\n",
        ),
        *('He said "Stop. Now" twice.\n', "Do this:\n", "Always e.g. Tabs; spaces too\n", "It was old, and large\n"),
    ]
)
ANY = some.lists(LINES, max_size=12).map("".join) | some.text(max_size=200)


@given(ANY)
def test_an_extract_lacks_nothing_and_is_no_longer(text: str) -> None:
    made = extract(text)
    assert made == text or lacking(text, made) == ()
    assert len(made) <= len(text)


@given(ANY)
def test_a_text_lacks_nothing_of_itself(text: str) -> None:
    assert lacking(text, text) == ()


@given(
    some.lists(some.sampled_from(["Never push.", "Always wait.", "You must not lie."]), min_size=1, max_size=6),
    some.data(),
)
def test_whichever_rule_goes_is_missed(said: list[str], data: some.DataObject) -> None:
    gone = data.draw(some.sampled_from(said))
    left = [one for one in said if one != gone]
    assert f"the rule {gone!r} is missing" in lacking("It rained. " + " ".join(said), "It rained. " + " ".join(left))
