"""The writers of the blocks, what plug-ins add, and the prompt that they write together.

Plug-ins are found by entry points in the groups of `formatters.plugins`. A plug-in adds and replaces nothing: an installed
package must not rewrite a prompt. Where a setting names its template, that writes a block. A plug-in that fails, at its
import or while it writes, is left out and reported; it never stops an answer.

Items whose node the relevance gate left out are not written:

    of State                 in the turn that it was left out of
    of Environment, Karma    until a turn of the conversation has it: nothing is taken out of a block that stands
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from formatters.blocks import ORDER, Block, BlockKind, BrokenPlugin, InvalidPrompt, Item, Prompt, Role, turns_of
from formatters.context import ArtifactInjector, PromptTemplate, StateView, TurnContext, Turning
from formatters.foreign import ForeignCalls
from formatters.plugins import HIDDEN_STATES, INACTIVE, PROPOSED, RETIRED, ContextNode, MemoryKind, ModelTool
from formatters.writers import Memo, Writer, writers

FORMATTERS, NODES, MEMORIES = "lorekeep.formatters", "lorekeep.nodes", "lorekeep.memories"
TOOLS = "lorekeep.tools"
OURS = "lorekeepd"
SETTINGS = "the settings"  # in the place of a distribution
NONE = "none"  # in the place of the injectors that are chosen
INJECTED = "6"
TEMPLATED = (BlockKind.ENVIRONMENT, BlockKind.KARMA)
NODED = tuple(kind.capitalize() for kind in (*TEMPLATED, BlockKind.STATE))
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


Part = TypeVar("Part", ArtifactInjector, PromptTemplate, ModelTool)


@dataclass(frozen=True)
class Registered(Generic[Part]):
    """A part of a plug-in and its distribution. `call` calls it."""

    part: Part
    distribution: str
    call: ForeignCalls = field(default_factory=ForeignCalls, repr=False, compare=False)


@dataclass(frozen=True)
class Registry:
    """The writer of each block; by name injectors, templates, nodes, kinds of memories (each has a node of its name) and
    tools; the templates that write a block; and the plug-ins that could not be registered."""

    writers: Mapping[BlockKind, Writer]
    injectors: Mapping[str, Registered[ArtifactInjector]] = field(default_factory=dict)
    templates: Mapping[str, Registered[PromptTemplate]] = field(default_factory=dict)
    writing: Mapping[BlockKind, Registered[PromptTemplate]] = field(default_factory=dict)
    nodes: Mapping[str, ContextNode] = field(default_factory=dict)
    kinds: Mapping[str, MemoryKind] = field(default_factory=dict)
    tools: Mapping[str, Registered[ModelTool]] = field(default_factory=dict)
    failures: tuple[BrokenPlugin, ...] = ()
    _blocks: Mapping[BlockKind, Memo[tuple[Item, ...], Block]] = field(
        default_factory=lambda: {kind: Memo(partial(Block, kind)) for kind in ORDER}, repr=False, compare=False
    )

    def written(self, kind: BlockKind, turn: TurnContext) -> Block:
        """The block by its own writer; made once while that gives the same tuple."""
        return self._blocks[kind](self.writers[kind](turn))


def builtin() -> Registry:
    """The registry without any plug-in."""
    return Registry(writers())


def discover(entries: Iterable[EntryPoint] | None = None, reserved: Collection[str] = ()) -> Registry:
    """The built-in writers and what the installed distributions add, in an order that does not depend on the disk.

    entries:  entry points to use instead of the installed ones.
    reserved: names of nodes, kinds and tools that Lorekeep has itself.
    Never raises: `failures` has the faults.
    """
    registry = builtin()
    for entry in sorted(_installed() if entries is None else entries, key=_by_distribution):
        try:
            registry = _with(registry, entry, reserved)
        except (Exception, SystemExit) as fault:  # noqa: BLE001 - an import runs foreign code, which may raise anything
            registry = _failed(registry, _broken(_distribution(entry), entry.name, fault))
    return registry


def chosen(registry: Registry, injectors: Collection[str], templates: Collection[str]) -> Registry:
    """The registry with these injectors alone (none named: all of them), and with these templates in use. A name that no
    package brings is a failure of the settings, and so is a second template of a block."""
    if injectors:
        for name in sorted({*injectors} - {*registry.injectors, NONE}):
            registry = _failed(registry, _absent("injector", name, registry.injectors))
        registry = replace(
            registry, injectors={name: one for name, one in registry.injectors.items() if name in injectors}
        )
    for name in templates:
        registry = _with_template(registry, name)
    return registry


def _with_template(registry: Registry, name: str) -> Registry:
    one = registry.templates.get(name)
    if one is None:
        return _failed(registry, _absent("template", name, registry.templates))
    if holder := registry.writing.get(one.part.block):
        why = f"{holder.part.name} writes {one.part.block} already; take one of both"
        return _failed(registry, BrokenPlugin(SETTINGS, name, why))
    return replace(registry, writing={**registry.writing, one.part.block: one})


def register(registry: Registry, formatter: object, distribution: str) -> Registry:
    """The registry with one more injector or template. Raises BrokenPlugin: no formatter, a wrong block, a name in use."""
    checked = _checked(formatter, distribution)
    taken = {name: one.distribution for name, one in registry.injectors.items()}
    taken |= {name: one.distribution for name, one in registry.templates.items()}
    _refuse_taken(checked.name, dict.fromkeys(ORDER, OURS) | taken, distribution)
    if isinstance(checked, PromptTemplate):
        return replace(registry, templates={**registry.templates, checked.name: Registered(checked, distribution)})
    return replace(registry, injectors={**registry.injectors, checked.name: Registered(checked, distribution)})


def add_node(registry: Registry, node: object, distribution: str, reserved: Collection[str] = ()) -> Registry:
    """The registry with one more node. Raises BrokenPlugin: no node, a name in use, a block that no question may change."""
    if not isinstance(node, ContextNode):
        raise BrokenPlugin(distribution, type(node).__name__, "this is no node: make a formatters.ContextNode")
    _refuse_name(node.name, distribution)
    _refuse_taken(node.name, dict.fromkeys(reserved, OURS) | dict.fromkeys(registry.nodes, "a plug-in"), distribution)
    if node.block not in NODED:
        why = f"its block is {node.block!r}: it must be {', '.join(NODED)}; the floor is the same for every question"
        raise BrokenPlugin(distribution, node.name, why)
    if not isinstance(node.cost, int) or node.cost < 0:
        raise BrokenPlugin(distribution, node.name, f"its cost is {node.cost!r}: it must be a number of tokens")
    return replace(registry, nodes={**registry.nodes, node.name: node})


def add_kind(registry: Registry, kind: object, distribution: str, reserved: Collection[str] = ()) -> Registry:
    """The registry with one more kind of memories, and its node. What was proposed of it may be confirmed or set aside.
    Raises BrokenPlugin: no kind, a name in use, a table of states that leads nowhere."""
    if not isinstance(kind, MemoryKind):
        raise BrokenPlugin(
            distribution, type(kind).__name__, "this is no kind of memories: make a formatters.MemoryKind"
        )
    node = ContextNode(kind.name, "Karma", kind.cost, "memories")
    registry = add_node(registry, node, distribution, reserved)
    if why := _fault_of(kind):
        raise BrokenPlugin(distribution, kind.name, why)
    states = {PROPOSED: {kind.first, INACTIVE}, INACTIVE: {kind.first}} | dict(kind.states)
    return replace(registry, kinds={**registry.kinds, kind.name: replace(kind, states=states, node=kind.name)})


def add_tool(registry: Registry, tool: object, distribution: str, reserved: Collection[str] = ()) -> Registry:
    """The registry with one more tool. Raises BrokenPlugin: no tool, a name in use, a schema that is no object's."""
    if not isinstance(tool, ModelTool):
        raise BrokenPlugin(distribution, type(tool).__name__, "this is no tool: make a formatters.ModelTool")
    _refuse_name(tool.name, distribution)
    _refuse_taken(tool.name, dict.fromkeys(reserved, OURS) | dict.fromkeys(registry.tools, "a plug-in"), distribution)
    if not callable(tool.run):
        raise BrokenPlugin(distribution, tool.name, "its run cannot be called")
    if not isinstance(tool.description, str) or not tool.description.strip():
        raise BrokenPlugin(distribution, tool.name, "a model needs its description")
    if not isinstance(tool.parameters, Mapping) or tool.parameters.get("type") != "object":
        raise BrokenPlugin(
            distribution, tool.name, 'its parameters must be the JSON schema of an object: {"type": "object", …}'
        )
    return replace(registry, tools={**registry.tools, tool.name: Registered(tool, distribution)})


def _fault_of(kind: MemoryKind) -> str:
    """Why this is no kind; '' where it is one."""
    led = {new for ends in kind.states.values() for new in ends}
    names = {kind.first, *kind.states, *led}
    if unknown := sorted(led - {*kind.states, INACTIVE}):
        return f"no state leads on from {unknown[0]!r}: name it in states, with an empty set where it is the last"
    if wrong := sorted(name for name in names if not _NAME.fullmatch(name)):
        return f"the state {wrong[0]!r} must be lower-case letters, digits, - and _"
    if kind.first not in kind.states or kind.first in HIDDEN_STATES:
        return f"its first state {kind.first!r} must be one of its states that a model may be shown"
    if kind.end and kind.end not in (INACTIVE, RETIRED):
        return f"its end is {kind.end!r}: it must be {INACTIVE} or {RETIRED}, which no model is shown, or ''"
    if not kind.heading.strip() or "\n" in kind.heading:
        return "its heading must be a line"
    if kind.budget < 1 or kind.candidates < 1:
        return "budget and candidates must be 1 at least, or none of it is ever found"
    return ""


def write_prompt(turn: TurnContext, registry: Registry) -> Prompt:
    """The six blocks for this turn, without the items of a plug-in that fails, which is in the prompt's `failures`.

    Raises InvalidPrompt only for faults of the built-in writers or the context.
    """
    failures: list[BrokenPlugin] = []
    blocks = tuple(_write_block(turn, registry, kind, failures) for kind in ORDER)
    return Prompt(blocks, tuple(failures))


def _write_block(turn: TurnContext, registry: Registry, kind: BlockKind, failures: list[BrokenPlugin]) -> Block:
    block = _written(turn, registry, kind, failures)
    for name, one in registry.injectors.items():
        if one.part.block is kind:
            try:
                block = _joined(block, _injected(one, turn), name, left_out(turn.state, kind))
            except Exception as fault:  # noqa: BLE001 - a plug-in is foreign code and may raise anything
                failures.append(_broken(one.distribution, name, fault))
    return block


def _injected(one: Registered[ArtifactInjector], turn: TurnContext) -> tuple[Item, ...]:
    items: tuple[Item, ...] = one.call(lambda: tuple(one.part.inject(Turning(turn))))
    return items


def _written(turn: TurnContext, registry: Registry, kind: BlockKind, failures: list[BrokenPlugin]) -> Block:
    one = registry.writing.get(kind)
    if one is not None:
        try:
            items = one.call(lambda: tuple(one.part.write(Turning(turn))))
            return Block(kind, tuple(_of_template(item, one.part.name) for item in items))
        except Exception as fault:  # noqa: BLE001 - a plug-in is foreign code and may raise anything
            failures.append(_broken(one.distribution, one.part.name, fault))
    return registry.written(kind, turn)


def left_out(state: StateView, kind: BlockKind) -> Callable[[Item], bool]:
    """Whether the gate left an item of a plug-in out, by the table above."""
    asked = [frozenset(turn.left_out) for turn in state.turns if turn.role is Role.USER]
    asked.append(frozenset(state.left_out))
    if kind is not BlockKind.STATE:
        never = frozenset.intersection(*asked)
        return lambda item: item.node in never
    if not any(asked):
        return lambda _: False
    by_turn, last = [], frozenset[str]()
    for turn in state.turns:
        last = frozenset(turn.left_out) if turn.role is Role.USER else last
        by_turn.append(last)
    by_turn.append(asked[-1])
    return lambda item: 0 <= item.turn < len(by_turn) and item.node in by_turn[item.turn]


def _joined(block: Block, items: Iterable[Item], name: str, is_left_out: Callable[[Item], bool]) -> Block:
    added = tuple(item for item in (_namespaced(item, name) for item in items) if not is_left_out(item))
    spoken = [item.key for item in added if item.role is not None]
    if spoken:
        raise InvalidPrompt(f"item {spoken[0]!r} has a role: an injector adds artifacts, which have none")
    if not added:
        return block
    joined = Block(block.kind, block.items + added)
    if block.kind is BlockKind.STATE:
        turns_of(joined)  # checked here as well as in the whole prompt, so that a fault is reported with its plug-in
    return joined


def _namespaced(item: Item, name: str) -> Item:
    return replace(item, key=f"{INJECTED}/{name}/{item.key}", source=item.source or name, node=item.node or name)


def _of_template(item: Item, name: str) -> Item:
    return replace(item, source=item.source or name, node=item.node or name)


# -- what is found, and whether it can be used


def _installed() -> list[EntryPoint]:
    return [entry for group in (FORMATTERS, NODES, MEMORIES, TOOLS) for entry in entry_points(group=group)]


def _with(registry: Registry, entry: EntryPoint, reserved: Collection[str]) -> Registry:
    distribution = _distribution(entry)
    if entry.group == NODES:
        return add_node(registry, _made(entry, ContextNode), distribution, reserved)
    if entry.group == MEMORIES:
        return add_kind(registry, _made(entry, MemoryKind), distribution, reserved)
    if entry.group == TOOLS:
        return add_tool(registry, _made(entry, ModelTool), distribution, reserved)
    return register(registry, _made(entry, ArtifactInjector, PromptTemplate), distribution)


def _made(entry: EntryPoint, *kinds: type) -> object:
    """What an entry point names: an instance, or a class or function to call without arguments."""
    loaded = entry.load()
    is_made = isinstance(loaded, kinds) and not isinstance(loaded, type)
    made: object = loaded if is_made else loaded()
    return made


def _checked(formatter: object, distribution: str) -> ArtifactInjector | PromptTemplate:
    injects, writes = isinstance(formatter, ArtifactInjector), isinstance(formatter, PromptTemplate)
    if not isinstance(formatter, ArtifactInjector | PromptTemplate):
        wanted = "it needs name, block and inject(ctx), or name, block and write(ctx)"
        raise BrokenPlugin(distribution, type(formatter).__name__, f"this is no formatter: {wanted}")
    name, block = formatter.name, formatter.block
    _refuse_name(name, distribution)
    if injects and writes:
        raise BrokenPlugin(distribution, name, "it has both inject and write: make two formatters of it")
    if not isinstance(block, BlockKind):
        raise BrokenPlugin(distribution, name, f"there is no block {block!r}; the blocks are {', '.join(ORDER)}")
    if block is BlockKind.QUERY:
        raise BrokenPlugin(distribution, name, "Query is the user's own words: add to State instead")
    if writes and block not in TEMPLATED:
        raise BrokenPlugin(distribution, name, f"a template writes {' or '.join(TEMPLATED)}, and not {block}")
    return formatter


def _refuse_name(name: object, distribution: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BrokenPlugin(distribution, str(name), "the name must be lower-case letters, digits, - and _")


def _refuse_taken(name: str, holders: Mapping[str, str], distribution: str) -> None:
    if name in holders:
        raise BrokenPlugin(distribution, name, f"the name is in use by one of {holders[name]}; rename it")


def _absent(what: str, name: str, known: Collection[str]) -> BrokenPlugin:
    there = f"there is {', '.join(sorted(known))}" if known else "there is none"
    return BrokenPlugin(SETTINGS, name, f"no installed package brings this {what}; {there}")


def _failed(registry: Registry, failure: BrokenPlugin) -> Registry:
    return replace(registry, failures=(*registry.failures, failure))


def _broken(distribution: str, name: str, fault: Exception | SystemExit) -> BrokenPlugin:
    if isinstance(fault, BrokenPlugin):
        return fault
    return BrokenPlugin(distribution, name, f"{type(fault).__name__}: {fault}")


def _by_distribution(entry: EntryPoint) -> tuple[str, str, str]:
    return (_distribution(entry), entry.name, entry.value)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value
