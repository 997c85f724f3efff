"""The registered formatters, and the prompt that they write together.

Plug-ins are found by entry points in the group `lorekeep.formatters`. A plug-in that fails, at its import or while it
writes, is left out and reported; it never stops an answer.

    injector    used as soon as it is installed
    template    writes its block only when it is chosen by name: an installed package must not rewrite a prompt
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from formatters.blocks import ORDER, Block, BlockKind, BrokenFormatter, InvalidPrompt, Item, Prompt, turns_of
from formatters.context import ArtifactInjector, Formatter, PromptTemplate, Turning
from formatters.writers import (
    CodexWriter,
    EnvironmentWriter,
    IdentityWriter,
    KarmaWriter,
    Memo,
    QueryWriter,
    StateWriter,
)

GROUP = "lorekeep.formatters"
OURS = "lorekeepd"
INJECTED = "6"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


Kind = TypeVar("Kind", bound=Formatter, covariant=True)


@dataclass(frozen=True)
class Registered(Generic[Kind]):
    """A formatter and its distribution."""

    formatter: Kind
    distribution: str


@dataclass(frozen=True)
class Registry:
    """Formatters by name, the template that writes each block, and the plug-ins that could not be registered."""

    templates: Mapping[str, Registered[PromptTemplate]]
    injectors: Mapping[str, Registered[ArtifactInjector]] = field(default_factory=dict)
    chosen: Mapping[BlockKind, str] = field(default_factory=dict)
    failures: tuple[BrokenFormatter, ...] = ()
    _blocks: Mapping[BlockKind, Memo[tuple[Item, ...], Block]] = field(
        default_factory=lambda: {kind: Memo(partial(Block, kind)) for kind in ORDER}, repr=False, compare=False
    )

    def holder(self, name: str) -> str | None:
        """The distribution that a name belongs to."""
        one = self.templates.get(name) or self.injectors.get(name)
        return one.distribution if one else None

    def block_of(self, kind: BlockKind, items: Iterable[Item]) -> Block:
        """The block of these items; made once while a template keeps giving the same tuple."""
        return self._blocks[kind](items if isinstance(items, tuple) else tuple(items))


def builtin() -> Registry:
    """The registry without any plug-in. Each call makes formatters of its own: what they remember is theirs."""
    ours: tuple[PromptTemplate, ...] = (
        IdentityWriter(),
        CodexWriter(),
        EnvironmentWriter(),
        KarmaWriter(),
        StateWriter(),
        QueryWriter(),
    )
    return Registry({formatter.name: Registered(formatter, OURS) for formatter in ours})


def discover(chosen: Mapping[BlockKind, str] | None = None, entries: Iterable[EntryPoint] | None = None) -> Registry:
    """The built-in formatters and those of the installed distributions, in an order that does not depend on the disk.

    chosen:  names of templates that write a block instead of the built-in one.
    entries: entry points to use instead of the installed ones.
    Never raises: `failures` has the faults, and a template that is not available is replaced by the built-in one.
    """
    registry = builtin()
    for entry in sorted(entry_points(group=GROUP) if entries is None else entries, key=_by_distribution):
        try:
            registry = register(registry, _load(entry), _distribution(entry))
        except Exception as fault:  # noqa: BLE001 - importing a plug-in runs foreign code, which may raise anything
            failure = _broken(_distribution(entry), entry.name, fault)
            registry = replace(registry, failures=(*registry.failures, failure))
    return _choose(registry, chosen or {})


def register(registry: Registry, formatter: object, distribution: str) -> Registry:
    """The registry with one more formatter. Raises BrokenFormatter: no formatter, a wrong block, a name in use."""
    checked = _checked(formatter, distribution)
    holder = registry.holder(checked.name)
    if holder is not None:
        raise BrokenFormatter(distribution, checked.name, f"the name is in use by one of {holder}; rename it")
    if isinstance(checked, PromptTemplate):
        return replace(registry, templates={**registry.templates, checked.name: Registered(checked, distribution)})
    injectors = {**registry.injectors, checked.name: Registered(checked, distribution)}
    return replace(registry, injectors=injectors)


def write_prompt(ctx: Turning, registry: Registry) -> Prompt:
    """The six blocks for this turn, without the items of a plug-in that fails, which is in the prompt's `failures`.

    Raises InvalidPrompt only for faults of the built-in writers or the context.
    """
    failures: list[BrokenFormatter] = []
    blocks = tuple(_write_block(ctx, registry, kind, failures) for kind in ORDER)
    return Prompt(blocks, tuple(failures))


def _write_block(ctx: Turning, registry: Registry, kind: BlockKind, failures: list[BrokenFormatter]) -> Block:
    block = _write_template(ctx, registry, kind, failures)
    for name, one in registry.injectors.items():
        if one.formatter.block is kind:
            try:
                block = _joined(block, one.formatter.inject(ctx), name, ctx)
            except Exception as fault:  # noqa: BLE001 - a plug-in is foreign code and may raise anything
                failures.append(_broken(one.distribution, name, fault))
    return block


def _write_template(ctx: Turning, registry: Registry, kind: BlockKind, failures: list[BrokenFormatter]) -> Block:
    name = registry.chosen.get(kind)
    if name is not None:
        one = registry.templates[name]
        try:
            return _sound(registry.block_of(kind, one.formatter.write(ctx)), ctx)
        except Exception as fault:  # noqa: BLE001 - a plug-in is foreign code and may raise anything
            failures.append(_broken(one.distribution, name, fault))
    return registry.block_of(kind, registry.templates[kind].formatter.write(ctx))


def _joined(block: Block, items: Iterable[Item], name: str, ctx: Turning) -> Block:
    added = tuple(_namespaced(item, name) for item in items)
    spoken = [item.key for item in added if item.role is not None]
    if spoken:
        raise InvalidPrompt(f"item {spoken[0]!r} has a role: an injector adds artifacts, which have none")
    return _sound(Block(block.kind, block.items + added), ctx) if added else block


def _sound(block: Block, ctx: Turning) -> Block:
    """The block, checked here as well as in the whole prompt, so that a fault is reported with its plug-in."""
    if block.kind is BlockKind.STATE and turns_of(block) != tuple(turn.role for turn in ctx.deps.state.turns):
        raise InvalidPrompt("State must hold every turn of the conversation, each with its speaker")
    return block


def _namespaced(item: Item, name: str) -> Item:
    return replace(item, key=f"{INJECTED}/{name}/{item.key}", source=item.source or name, node=item.node or name)


def _load(entry: EntryPoint) -> object:
    """The formatter that an entry point names: an instance, or a class or function to call without arguments."""
    loaded = entry.load()
    made: object = loaded() if isinstance(loaded, type) or not _is_formatter(loaded) else loaded
    return made


def _checked(formatter: object, distribution: str) -> Formatter:
    if not isinstance(formatter, PromptTemplate | ArtifactInjector):
        wanted = "it needs name, block and write(ctx), or name, block and inject(ctx)"
        raise BrokenFormatter(distribution, type(formatter).__name__, f"this is no formatter: {wanted}")
    name, block = formatter.name, formatter.block
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BrokenFormatter(distribution, str(name), "the name must be lower-case letters, digits, - and _")
    if isinstance(formatter, PromptTemplate) == isinstance(formatter, ArtifactInjector):
        raise BrokenFormatter(distribution, name, "it has both write and inject: make two formatters of it")
    if not isinstance(block, BlockKind):
        raise BrokenFormatter(distribution, name, f"there is no block {block!r}; the blocks are {', '.join(ORDER)}")
    if block is BlockKind.QUERY and distribution != OURS:
        raise BrokenFormatter(distribution, name, "Query is the user's own words: add to State instead")
    return formatter


def _choose(registry: Registry, chosen: Mapping[BlockKind, str]) -> Registry:
    for block, name in chosen.items():
        one = registry.templates.get(name)
        if one and one.formatter.block is block:
            registry = replace(registry, chosen={**registry.chosen, block: name})
        else:
            reason = f"chosen for {block}, but it is no template of that block; the built-in one writes it"
            failure = BrokenFormatter(registry.holder(name) or "configuration", name, reason)
            registry = replace(registry, failures=(*registry.failures, failure))
    return registry


def _is_formatter(loaded: object) -> bool:
    return isinstance(loaded, PromptTemplate | ArtifactInjector)


def _broken(distribution: str, name: str, fault: Exception) -> BrokenFormatter:
    if isinstance(fault, BrokenFormatter):
        return fault
    return BrokenFormatter(distribution, name, f"{type(fault).__name__}: {fault}")


def _by_distribution(entry: EntryPoint) -> tuple[str, str, str]:
    return (_distribution(entry), entry.name, entry.value)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value
