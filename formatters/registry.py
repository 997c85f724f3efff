"""The writers of the blocks, the injectors of plug-ins, and the prompt that they write together.

Plug-ins are found by entry points in the group `lorekeep.formatters`. A plug-in adds items and replaces none: an installed
package must not rewrite a prompt. One that fails, at its import or while it writes, is left out and reported; it never
stops an answer.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points

from formatters.blocks import ORDER, Block, BlockKind, BrokenFormatter, InvalidPrompt, Item, Prompt, turns_of
from formatters.context import ArtifactInjector, TurnContext, Turning
from formatters.writers import Memo, Writer, writers

GROUP = "lorekeep.formatters"
OURS = "lorekeepd"
INJECTED = "6"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class Registered:
    """An injector and its distribution."""

    injector: ArtifactInjector
    distribution: str


@dataclass(frozen=True)
class Registry:
    """The writer of each block, injectors by name, and the plug-ins that could not be registered."""

    writers: Mapping[BlockKind, Writer]
    injectors: Mapping[str, Registered] = field(default_factory=dict)
    failures: tuple[BrokenFormatter, ...] = ()
    _blocks: Mapping[BlockKind, Memo[tuple[Item, ...], Block]] = field(
        default_factory=lambda: {kind: Memo(partial(Block, kind)) for kind in ORDER}, repr=False, compare=False
    )

    def written(self, kind: BlockKind, turn: TurnContext) -> Block:
        """The block by its own writer; made once while that gives the same tuple."""
        return self._blocks[kind](self.writers[kind](turn))


def builtin() -> Registry:
    """The registry without any plug-in."""
    return Registry(writers())


def discover(entries: Iterable[EntryPoint] | None = None) -> Registry:
    """The built-in writers and the injectors of the installed distributions, in an order that does not depend on the disk.

    entries: entry points to use instead of the installed ones.
    Never raises: `failures` has the faults.
    """
    registry = builtin()
    for entry in sorted(entry_points(group=GROUP) if entries is None else entries, key=_by_distribution):
        try:
            registry = register(registry, _load(entry), _distribution(entry))
        except Exception as fault:  # noqa: BLE001 - importing a plug-in runs foreign code, which may raise anything
            failure = _broken(_distribution(entry), entry.name, fault)
            registry = replace(registry, failures=(*registry.failures, failure))
    return registry


def register(registry: Registry, formatter: object, distribution: str) -> Registry:
    """The registry with one more injector. Raises BrokenFormatter: no formatter, a wrong block, a name in use."""
    checked = _checked(formatter, distribution)
    holders = dict.fromkeys(ORDER, OURS) | {name: one.distribution for name, one in registry.injectors.items()}
    if checked.name in holders:
        why = f"the name is in use by one of {holders[checked.name]}; rename it"
        raise BrokenFormatter(distribution, checked.name, why)
    return replace(registry, injectors={**registry.injectors, checked.name: Registered(checked, distribution)})


def write_prompt(turn: TurnContext, registry: Registry) -> Prompt:
    """The six blocks for this turn, without the items of a plug-in that fails, which is in the prompt's `failures`.

    Raises InvalidPrompt only for faults of the built-in writers or the context.
    """
    failures: list[BrokenFormatter] = []
    blocks = tuple(_write_block(turn, registry, kind, failures) for kind in ORDER)
    return Prompt(blocks, tuple(failures))


def _write_block(turn: TurnContext, registry: Registry, kind: BlockKind, failures: list[BrokenFormatter]) -> Block:
    block = registry.written(kind, turn)
    for name, one in registry.injectors.items():
        if one.injector.block is kind:
            try:
                block = _joined(block, one.injector.inject(Turning(turn)), name)
            except Exception as fault:  # noqa: BLE001 - a plug-in is foreign code and may raise anything
                failures.append(_broken(one.distribution, name, fault))
    return block


def _joined(block: Block, items: Iterable[Item], name: str) -> Block:
    added = tuple(_namespaced(item, name) for item in items)
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


def _load(entry: EntryPoint) -> object:
    """The formatter that an entry point names: an instance, or a class or function to call without arguments."""
    loaded = entry.load()
    is_made = isinstance(loaded, ArtifactInjector) and not isinstance(loaded, type)
    made: object = loaded if is_made else loaded()
    return made


def _checked(formatter: object, distribution: str) -> ArtifactInjector:
    if not isinstance(formatter, ArtifactInjector):
        wanted = "it needs name, block and inject(ctx)"
        raise BrokenFormatter(distribution, type(formatter).__name__, f"this is no formatter: {wanted}")
    name, block = formatter.name, formatter.block
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BrokenFormatter(distribution, str(name), "the name must be lower-case letters, digits, - and _")
    if not isinstance(block, BlockKind):
        raise BrokenFormatter(distribution, name, f"there is no block {block!r}; the blocks are {', '.join(ORDER)}")
    if block is BlockKind.QUERY:
        raise BrokenFormatter(distribution, name, "Query is the user's own words: add to State instead")
    return formatter


def _broken(distribution: str, name: str, fault: Exception) -> BrokenFormatter:
    if isinstance(fault, BrokenFormatter):
        return fault
    return BrokenFormatter(distribution, name, f"{type(fault).__name__}: {fault}")


def _by_distribution(entry: EntryPoint) -> tuple[str, str, str]:
    return (_distribution(entry), entry.name, entry.value)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value
