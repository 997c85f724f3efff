"""A formatter as a third party writes it. It imports `formatters` and nothing else."""

from collections.abc import Iterator

from formatters import BlockKind, Item

RULES = {"main": "Nothing is pushed to main without a review.", "release": "Only fixes on this branch."}


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
