"""Plug-ins: what is taken, what is refused by name, and that a broken one never stops an answer."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.blocks import BlockKind, BrokenPlugin, Item, Role
from formatters.context import StateView, Turning, TurnView
from formatters.foreign import ForeignCalls
from formatters.plugins import ContextNode, MemoryKind, ModelTool
from formatters.registry import add_kind, add_node, add_tool, builtin, chosen, discover, register, write_prompt
from formatters.testing import check_formatter, samples

RICH = samples()[1]


@dataclass(frozen=True)
class Weather:
    """An injector that is right, unless a test says otherwise."""

    name: str = "weather"
    block: object = BlockKind.ENVIRONMENT
    items: object = (Item("1", "Weather: rain\n"),)

    def inject(self, ctx: object) -> Iterable[Item]:
        if isinstance(self.items, BaseException):
            raise self.items
        return self.items  # type: ignore[return-value]


@dataclass(frozen=True)
class Pirate:
    """It writes a whole block."""

    name: str = "pirate"
    block: object = BlockKind.IDENTITY
    items: object = (Item("1", "Arr.\n"),)

    def write(self, ctx: object) -> Iterable[Item]:
        if isinstance(self.items, Exception):
            raise self.items
        return self.items  # type: ignore[return-value]


class Both(Weather):
    def write(self, ctx: object) -> Iterable[Item]:
        return ()


PIRATE = Pirate(block=BlockKind.KARMA)
RAIN = ContextNode("weather", "State", 20, "sky")


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
        (Pirate(), "a template writes environment or karma, and not identity"),
        (Both(), "both inject and write"),
        (Weather(name="codex"), "in use by one of lorekeep"),
        (Weather(name="Not A Name"), "lower-case"),
        (Weather(block="floor"), "no block 'floor'; the blocks are identity"),
        (Weather(block=BlockKind.QUERY), "user's own words"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_the_name_of_its_distribution(formatter: object, why: str) -> None:
    with pytest.raises(BrokenPlugin, match=rf"acme.*{why}"):
        register(builtin(), formatter, "acme")


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (RuntimeError("no weather today"), "RuntimeError: no weather today"),
        (SystemExit(3), "it raised SystemExit"),
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


def test_an_injector_that_never_returns_is_waited_for_once_and_left_out_from_then_on() -> None:
    called, over = [], threading.Event()

    class Hangs(Weather):
        def inject(self, ctx: object) -> Iterable[Item]:
            called.append(ctx)
            over.wait()
            return ()

    registry = register(register(builtin(), Weather(name="quick"), "acme"), Hangs(name="slow"), "acme")
    slow = replace(registry.injectors["slow"], call=ForeignCalls(limit_s=0.05))
    registry = replace(registry, injectors={**registry.injectors, "slow": slow})
    prompts = [write_prompt(RICH, registry) for _ in range(3)]
    over.set()
    assert len(called) == 1
    for prompt in prompts:
        assert prompt == write_prompt(RICH, register(builtin(), Weather(name="quick"), "acme"))
        assert ["took longer than 0.05 s" in str(failure) for failure in prompt.failures] == [True]


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


def test_a_template_writes_nothing_until_a_setting_names_it() -> None:
    registry = register(builtin(), PIRATE, "acme")
    assert write_prompt(RICH, registry) == write_prompt(RICH, builtin())
    karma = write_prompt(RICH, chosen(registry, (), ["pirate"]))[BlockKind.KARMA]
    assert karma.items == (Item("1", "Arr.\n", "pirate", node="pirate"),)


@pytest.mark.parametrize(
    "items", [RuntimeError("no wind"), (Item("1", "no newline"),), None, (Item("1", "a\n", turn=1),)]
)
def test_where_a_template_fails_the_built_in_writer_writes_and_the_template_is_named(items: object) -> None:
    registry = register(builtin(), Pirate(block=BlockKind.KARMA, items=items), "acme")
    prompt = write_prompt(RICH, chosen(registry, (), ["pirate"]))
    assert prompt == write_prompt(RICH, builtin())
    assert [(one.distribution, one.entry) for one in prompt.failures] == [("acme", "pirate")]


def test_settings_choose_injectors_and_what_they_choose_in_vain_is_named() -> None:
    registry = register(register(builtin(), Weather(name="a"), "x"), Weather(name="b"), "y")
    assert list(chosen(registry, ["b"], ()).injectors) == ["b"]
    assert list(chosen(registry, [], ()).injectors) == ["a", "b"]
    assert list(chosen(registry, ["none"], ()).injectors) == []
    (failure,) = chosen(registry, ["a", "c"], ()).failures
    assert str(failure) == "'c' of the settings: no installed package brings this injector; there is a, b"
    assert "there is none" in str(chosen(registry, [], ["a"]).failures[0])


def test_two_templates_of_one_block_are_told_and_the_first_writes() -> None:
    registry = register(register(builtin(), PIRATE, "x"), Pirate(name="corsair", block=BlockKind.KARMA), "y")
    found = chosen(registry, (), ["corsair", "pirate"])
    assert found.writing[BlockKind.KARMA].part.name == "corsair"
    assert "corsair writes karma already" in str(found.failures[0])


# -- nodes


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (object(), "this is no node"),
        (ContextNode("Weather", "State", 20, "sky"), "lower-case"),
        (ContextNode("facts", "State", 20, "sky"), "in use by one of lorekeepd"),
        (ContextNode("rain", "State", 20, "sky"), "in use by one of a plug-in"),
        (ContextNode("weather", "Codex", 20, "sky"), "the floor is the same for every question"),
        (ContextNode("weather", "state", 20, "sky"), "it must be Environment, Karma, State"),
        (ContextNode("weather", "State", -1, "sky"), "must be a number of tokens"),
    ],
)
def test_a_node_that_cannot_be_used_is_refused_by_its_name(node: object, why: str) -> None:
    rain = add_node(builtin(), ContextNode("rain", "State", 20, "sky"), "acme")
    with pytest.raises(BrokenPlugin, match=why):
        add_node(rain, node, "acme", {"facts"})


def turns(*asked: tuple[str, ...]) -> StateView:
    """A conversation whose questions lack these nodes; the last one is being asked."""
    *earlier, last = asked
    said = [
        one
        for names in earlier
        for one in (TurnView(role="user", text="Why?", left_out=names), TurnView(role="assistant", text="So."))
    ]
    return StateView(turns=tuple(said), left_out=last)


@dataclass(frozen=True)
class EveryTurn:
    """An item for each turn, those of answers too."""

    name: str = "weather"
    block: object = BlockKind.STATE

    def inject(self, ctx: Turning) -> Iterable[Item]:
        return [Item("1", f"Weather {turn}\n", turn=turn) for turn in range(len(ctx.deps.state.turns) + 1)]


OUT = st.lists(st.sampled_from([(), ("weather",), ("other",), ("weather", "other")]), min_size=1, max_size=6)


@given(OUT)
def test_what_the_gate_leaves_out_of_a_turn_is_written_neither_then_nor_later(asked: list[tuple[str, ...]]) -> None:
    turn = RICH.model_copy(update={"state": turns(*asked)})
    prompt = write_prompt(turn, register(builtin(), EveryTurn(), "acme"))  # type: ignore[arg-type]
    written = {item.turn for item in prompt[BlockKind.STATE].items if item.node == "weather"}
    last = 2 * len(asked) - 2
    assert written == {turn for turn in range(last + 1) if "weather" not in asked[turn // 2]}


@given(OUT)
def test_left_of_state_a_node_comes_with_the_first_turn_that_has_it_and_stays(asked: list[tuple[str, ...]]) -> None:
    registry = register(builtin(), Weather(), "acme")
    there = [
        "weather"
        in {
            item.node
            for item in write_prompt(RICH.model_copy(update={"state": turns(*asked[:end])}), registry)[
                BlockKind.ENVIRONMENT
            ].items
        }
        for end in range(1, len(asked) + 1)
    ]
    assert there == [any("weather" not in names for names in asked[:end]) for end in range(1, len(asked) + 1)]


def test_a_turn_that_has_ended_lacks_what_it_lacked() -> None:
    closed = turns(("weather",)).closed("Why?", TurnView(role="assistant", text="So."))
    assert closed.turns[0].left_out == ("weather",)
    assert closed.left_out == ()


# -- kinds of memories

STATES = {"open": {"done", "retired"}, "done": {"open"}, "retired": set()}
QUESTION = MemoryKind("question", heading="Open", states=STATES, first="open", end="retired")


def test_a_kind_brings_its_node_and_what_is_proposed_of_it_can_be_confirmed_or_set_aside() -> None:
    registry = add_kind(builtin(), QUESTION, "acme")
    assert registry.nodes == {"question": ContextNode("question", "Karma", 200, "memories")}
    kind = registry.kinds["question"]
    assert kind.may_become("proposed", "open")
    assert kind.may_become("proposed", "inactive")
    assert kind.may_become("inactive", "open")
    assert not kind.may_become("retired", "open")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("question", "this is no kind of memories"),
        (replace(QUESTION, name="fact"), "in use by one of lorekeepd"),
        (replace(QUESTION, name="rain"), "in use by one of a plug-in"),
        (replace(QUESTION, name="Question!"), "lower-case"),
        (replace(QUESTION, first="begun"), "its first state 'begun'"),
        (replace(QUESTION, first="retired"), "its first state 'retired'"),
        (replace(QUESTION, states={"open": {"gone"}}), "no state leads on from 'gone'"),
        (replace(QUESTION, states={"open": {"Done"}, "Done": set()}), "the state 'Done' must be lower-case"),
        (replace(QUESTION, end="done"), "its end is 'done'"),
        (replace(QUESTION, heading="Open\n# Identity"), "its heading must be a line"),
        (replace(QUESTION, heading=" "), "its heading must be a line"),
        (replace(QUESTION, budget=0), "or none of it is ever found"),
        (replace(QUESTION, candidates=0), "or none of it is ever found"),
    ],
)
def test_a_kind_that_cannot_be_used_is_refused_by_its_name(kind: object, why: str) -> None:
    rain = add_node(builtin(), ContextNode("rain", "State", 20, "sky"), "acme")
    with pytest.raises(BrokenPlugin, match=why):
        add_kind(rain, kind, "acme", {"fact"})


# -- tools


def rain(ctx: Turning, arguments: object) -> str:
    return f"rain, {ctx.deps.query}, {arguments}"


SKY = ModelTool("sky", "What the sky does.", rain)


def test_a_tool_is_there_under_its_name() -> None:
    assert add_tool(builtin(), SKY, "acme").tools["sky"].part is SKY


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (rain, "this is no tool"),
        (replace(SKY, name="search_archive"), "in use by one of lorekeepd"),
        (replace(SKY, name="moon"), "in use by one of a plug-in"),
        (replace(SKY, name="The Sky"), "lower-case"),
        (replace(SKY, run="rain"), "its run cannot be called"),
        (replace(SKY, description=" "), "a model needs its description"),
        (replace(SKY, parameters={"type": "string"}), "the JSON schema of an object"),
    ],
)
def test_a_tool_that_cannot_be_used_is_refused_by_its_name(tool: object, why: str) -> None:
    moon = add_tool(builtin(), replace(SKY, name="moon"), "acme")
    with pytest.raises(BrokenPlugin, match=why):
        add_tool(moon, tool, "acme", {"search_archive"})
