"""A plug-in as a third party writes it. It imports `formatters` and nothing else."""

from collections.abc import Iterator

from formatters import BlockKind, ContextNode, Item, MemoryKind, ModelTool

RULES = {"main": "Nothing is pushed to main without a review.", "release": "Only fixes on this branch."}

NODE = ContextNode("house-rules", block="Environment", cost=30, source="branch")
"""What the relevance gate decides about. The items of the injector of this name belong to it."""

OPEN_QUESTION = MemoryKind(
    "open-question",
    heading="Open Questions",
    states={"open": {"answered", "retired"}, "answered": {"open", "retired"}, "retired": set()},
    first="open",
    end="retired",
    budget=300,
)
"""A kind of memories: `lore memory add --kind open-question "Who may release?"`, then `lore memory become ID answered`."""


def rule_of_branch(ctx, arguments) -> str:
    codex = ctx.deps.codex
    branch = arguments.get("branch") or (codex.branch if codex is not None else "")
    return RULES.get(branch, "There is no rule for it.")


TOOL = ModelTool(
    "rule_of_branch",
    "The house rule of a branch; of the one that was loaded where none is named.",
    run=rule_of_branch,
    parameters={"type": "object", "properties": {"branch": {"type": "string"}}},
)
"""What a model with tools may call."""


class HouseRules:
    """States the rule of the branch that the codex was loaded from. It stands in Environment: in the floor it would make
    each checkout compute the whole codex again."""

    name = "house-rules"
    block = BlockKind.ENVIRONMENT

    def inject(self, ctx, /) -> Iterator[Item]:
        codex = ctx.deps.codex
        rule = RULES.get(codex.branch) if codex is not None else None
        if rule is not None:
            yield Item(key="1", text=f"House rule: {rule}\n\n", source="house-rules")


class PlainKarma:
    """What is remembered as one list without headings, for small models. Used where `prompt.templates` names it."""

    name = "plain-karma"
    block = BlockKind.KARMA

    def write(self, ctx, /) -> Iterator[Item]:
        for place, entry in enumerate(ctx.deps.karma.entries):
            text = f"Remember: {entry.text}\n"
            yield Item(f"{place:04d}", text, entry.source, node=entry.node, pinned=entry.pinned)
