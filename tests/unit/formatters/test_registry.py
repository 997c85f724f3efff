"""Plug-ins: what is taken, what is refused by name, and that a broken one never stops an answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from formatters.blocks import BlockKind, BrokenFormatter, Item, Role
from formatters.registry import builtin, discover, register, write_prompt
from formatters.testing import check_formatter, samples

RICH = samples()[1]


@dataclass(frozen=True)
class Weather:
    """An injector that is right, unless a test says otherwise."""

    name: str = "weather"
    block: object = BlockKind.ENVIRONMENT
    items: object = (Item("1", "Weather: rain\n"),)

    def inject(self, ctx: object) -> Iterable[Item]:
        if isinstance(self.items, Exception):
            raise self.items
        return self.items  # type: ignore[return-value]


@dataclass(frozen=True)
class Pirate:
    """It would write a whole block."""

    name: str = "pirate"
    block: object = BlockKind.IDENTITY

    def write(self, ctx: object) -> Iterable[Item]:
        return (Item("1", "Arr.\n"),)


def entry(value: str, name: str = "sample") -> EntryPoint:
    return EntryPoint(name, value, "lorekeep.formatters")


def test_injected_items_stand_behind_the_blocks_own_and_carry_the_plugins_name() -> None:
    prompt = write_prompt(RICH, register(builtin(), Weather(), "acme-weather"))
    last = prompt[BlockKind.ENVIRONMENT].items[-1]
    assert last == Item("6/weather/1", "Weather: rain\n", "weather", node="weather")
    assert prompt.failures == ()
    check_formatter(Weather())  # type: ignore[arg-type]


def test_injected_items_stand_before_amendments_and_before_the_words_of_a_turn() -> None:
    codex = write_prompt(RICH, register(builtin(), Weather(block=BlockKind.CODEX), "acme"))[BlockKind.CODEX]
    assert [item.node for item in codex.items][-2:] == ["weather", "codex"]
    state = write_prompt(RICH, register(builtin(), Weather(block=BlockKind.STATE), "acme"))
    assert [item.node for item in state.at(BlockKind.STATE, 0)][-2:] == ["weather", "working_memory"]


def test_two_injectors_stand_by_name_whatever_order_they_were_registered_in() -> None:
    one, two = Weather(name="a"), Weather(name="b")
    there = register(register(builtin(), one, "x"), two, "y")
    back = register(register(builtin(), two, "y"), one, "x")
    assert write_prompt(RICH, there) == write_prompt(RICH, back)


@pytest.mark.parametrize(
    ("formatter", "why"),
    [
        (object(), "no formatter"),
        (Pirate(), r"needs name, block and inject\(ctx\)"),
        (Weather(name="codex"), "in use by one of lorekeep"),
        (Weather(name="Not A Name"), "lower-case"),
        (Weather(block="floor"), "no block 'floor'; the blocks are identity"),
        (Weather(block=BlockKind.QUERY), "user's own words"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_the_name_of_its_distribution(formatter: object, why: str) -> None:
    with pytest.raises(BrokenFormatter, match=rf"acme.*{why}"):
        register(builtin(), formatter, "acme")


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (RuntimeError("no weather today"), "RuntimeError: no weather today"),
        ((Item("1", "no newline"),), "newline"),
        ((Item("1", "a\n"), Item("1", "b\n")), "have the key"),
        ((Item("1", "a\n", role=Role.USER),), "which have none"),
        (("a string",), "AttributeError"),
        (None, "TypeError"),
        ((Item("1", None),), "AttributeError"),  # type: ignore[arg-type]
    ],
)
def test_an_injector_that_fails_is_left_out_and_named(items: object, why: str) -> None:
    prompt = write_prompt(RICH, register(builtin(), Weather(items=items), "acme-weather"))
    assert prompt == write_prompt(RICH, builtin())
    (failure,) = prompt.failures
    assert failure.distribution == "acme-weather"
    assert why in str(failure)


def test_an_injector_that_breaks_the_order_of_turns_is_left_out_and_named() -> None:
    late = Weather(block=BlockKind.STATE, items=(Item("1", "late\n", turn=99),))
    prompt = write_prompt(RICH, register(builtin(), late, "acme-weather"))
    assert prompt == write_prompt(RICH, builtin())
    assert "comes after the words of turn" in str(prompt.failures[0])


def test_discovery_takes_what_works_and_reports_the_rest() -> None:
    entries = [
        entry("formatters.context:StateView", "another_thing"),
        entry("no_such_module:thing", "gone"),
        entry("formatters.writers:NoSuchName", "misspelt"),
        entry("json:dumps", "not_a_formatter"),
    ]
    registry = discover(entries=entries)
    assert not registry.injectors
    told = sorted(str(failure) for failure in registry.failures)
    assert len(told) == 4
    assert "ModuleNotFoundError" in "".join(told)
    assert "this is no formatter" in "".join(told)
