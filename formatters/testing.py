"""The laws of formatters as functions for tests, of the built-in formatters and of plug-ins.

    from formatters.testing import check_formatter

    def test_my_formatter_keeps_the_laws():
        check_formatter(MyFormatter())

Each law raises AssertionError with the difference. Pass your own contexts where the samples do not reach your code.
"""

from collections.abc import Iterable

from formatters.blocks import FLOOR, ORDER, Block, BlockKind, Item
from formatters.context import (
    AmendmentView,
    ArtifactInjector,
    AttachmentView,
    CodexPiece,
    CodexView,
    EnvironmentView,
    Evidence,
    IdentityView,
    KarmaEntry,
    KarmaView,
    SigilView,
    StateView,
    ToolView,
    TurnContext,
    Turning,
    TurnView,
)
from formatters.registry import builtin, register, write_prompt

_LEFT_OF_STATE = ORDER[: ORDER.index(BlockKind.STATE)]


def check_formatter(formatter: ArtifactInjector, contexts: Iterable[TurnContext] = ()) -> None:
    """Holds one formatter to every law, over the sample contexts and those given."""
    for context in (*samples(), *contexts):
        gives_the_same_twice(formatter, context)
        makes_whole_items(formatter, context)
        ignores_what_stands_further_right(formatter, context)
        ignores_the_order_of_evidence(formatter, context)
        keeps_a_turn_when_it_closes(formatter, context)
        takes_its_place_among_the_others(formatter, context)


def gives_the_same_twice(formatter: ArtifactInjector, context: TurnContext) -> None:
    """Law 1: an equal context gives equal items, whether it is the same object or a copy."""
    first, again = items_of(formatter, context), items_of(formatter, context)
    assert first == again, f"{formatter.name} gave other items for the same context: {_differing(first, again)}"
    copy = TurnContext.model_validate(context.model_dump())
    assert first == items_of(formatter, copy), f"{formatter.name} gave other items for an equal context"


def makes_whole_items(formatter: ArtifactInjector, context: TurnContext) -> None:
    """Laws 2 and 3: clean endings, unique keys, roles and turns only where they belong."""
    items = items_of(formatter, context)
    assert all(isinstance(item, Item) for item in items), f"{formatter.name} must give items, and nothing else"
    Block(formatter.block, items)
    spoken = [item.key for item in items if item.role]
    assert not spoken, f"{formatter.name} is an injector, whose items have no role, but these have one: {spoken}"


def ignores_what_stands_further_right(formatter: ArtifactInjector, context: TurnContext) -> None:
    """Law 4: what changes with a question changes nothing left of State, what changes with a user nothing in the floor."""
    if formatter.block not in _LEFT_OF_STATE:
        return
    before, after = items_of(formatter, context), items_of(formatter, _another_question(context))
    assert before == after, (
        f"{formatter.name} of {formatter.block} depends on the question: {_differing(before, after)}"
    )
    if formatter.block in FLOOR:
        after = items_of(formatter, _another_user(context))
        assert before == after, f"{formatter.name} of the floor depends on who asks: {_differing(before, after)}"


def ignores_the_order_of_evidence(formatter: ArtifactInjector, context: TurnContext) -> None:
    """Law 3: evidence comes ranked, and a rank must not become an order in the prompt."""
    turned = context.state.model_copy(update={"evidence": context.state.evidence[::-1]})
    before = Block(formatter.block, items_of(formatter, context))
    after = Block(formatter.block, items_of(formatter, context.model_copy(update={"state": turned})))
    assert before == after, f"{formatter.name} follows the rank of evidence: {_differing(before.items, after.items)}"


def keeps_a_turn_when_it_closes(formatter: ArtifactInjector, context: TurnContext) -> None:
    """State only grows at its end: its content while a question runs is unchanged when the question has ended."""
    if formatter.block is not BlockKind.STATE:
        return
    closed = context.model_copy(
        update={"state": context.state.closed(context.query, *context.running), "query": "And then?", "running": ()}
    )
    before = Block(formatter.block, items_of(formatter, context)).items
    after = Block(formatter.block, items_of(formatter, closed)).items
    assert after[: len(before)] == before, f"{formatter.name} rewrites a closed turn: {_differing(before, after)}"


def takes_its_place_among_the_others(formatter: ArtifactInjector, context: TurnContext) -> None:
    """A prompt with this formatter in it is a prompt, and reports no failure."""
    prompt = write_prompt(context, register(builtin(), formatter, "the one under test"))
    assert not prompt.failures, prompt.failures[0]


def items_of(formatter: ArtifactInjector, context: TurnContext) -> tuple[Item, ...]:
    """What the formatter makes of a context, as it made it."""
    return tuple(formatter.inject(Turning(context)))


def samples() -> tuple[TurnContext, ...]:
    """Contexts that between them fill every field: a bare question, a rich turn, a turn in the middle of a tool call."""
    bare = TurnContext(identity=IdentityView(name="plain"), sigil=SigilView(name="guest", uid=65534), query="Why?")
    rich = TurnContext(
        identity=_identity(),
        sigil=SigilView(name="owner", uid=1000, scopes=frozenset({"query", "search", "tools:search_archive"})),
        codex=_codex(),
        environment=_environment(),
        karma=_karma(),
        state=_state(),
        query="Where is the config parsed?",
    )
    running = (
        TurnView(role="assistant", text='<tool_call>{"name": "search_archive"}</tool_call>'),
        TurnView(role="tool", text="src/config.py:3"),
    )
    return bare, rich, rich.model_copy(update={"running": running})


def _identity() -> IdentityView:
    search = ToolView(name="search_archive", description="Finds passages.", parameters_json_schema={"type": "object"})
    return IdentityView(name="keeper", version="1", text="You keep the lore.", tools=(search,))


def _codex() -> CodexView:
    pieces = (
        CodexPiece(path="src/config.py", text="def parse():\n    return 1\n"),
        CodexPiece(path="src/empty.py", text=""),
        CodexPiece(path="src/app.py", text="def main(): ...", kind="skeleton"),
    )
    amended = (AmendmentView(number=1, path="src/config.py", text="def parse():\n    return 2\n"),)
    return CodexView(name="sample", generation=2, branch="main", revision="1a2b3c4", pieces=pieces, amendments=amended)


def _environment() -> EnvironmentView:
    return EnvironmentView(
        vram="calm",
        power="on battery",
        network="offline",
        available_tools=("search_archive",),
        client_system=("Be brief.",),
        client_tools=(ToolView(name="run_tests"),),
    )


def _karma() -> KarmaView:
    return KarmaView(
        entries=(
            KarmaEntry(heading="Known Information", text="The port is 8080."),
            KarmaEntry(heading="Active Constraints", text="No new dependencies.", pinned=True),
        )
    )


def _state() -> StateView:
    passages = tuple(
        Evidence(path="src/config.py", start=start, end=start + 1, text="line\nline", symbol="parse")
        for start in (9, 1)
    )
    asked = TurnView(role="user", text="What is this?", evidence=passages[:1])
    return StateView(
        turns=(asked, TurnView(role="assistant", text="A sample.")),
        amendments=(AmendmentView(number=2, path="src/new.py", text="x = 1\n"),),
        attachments=(AttachmentView(name="stdin", text="Traceback"),),
        evidence=passages,
    )


def _another_question(context: TurnContext) -> TurnContext:
    return context.model_copy(update={"query": "Something else.", "state": StateView(), "running": ()})


def _another_user(context: TurnContext) -> TurnContext:
    stranger = SigilView(name="stranger", uid=4711)
    return context.model_copy(update={"sigil": stranger, "environment": EnvironmentView(), "karma": KarmaView()})


def _differing(before: tuple[Item, ...], after: tuple[Item, ...]) -> str:
    both = set(before) & set(after)
    return (
        ", ".join(f"{item.key!r} (turn {item.turn})" for item in (*before, *after) if item not in both) or "their order"
    )
