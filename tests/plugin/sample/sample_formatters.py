"""A formatter as a third party writes it. It imports `formatters` and nothing else."""

from collections.abc import Iterator

from formatters import BlockKind, Item

RULES = {"main": "Nothing is pushed to main without a review.", "release": "Only fixes on this branch."}


class HouseRules:
    """Tells the rule of the branch that the codex is on. It stands in Environment, which changes with the branch."""

    name = "house-rules"
    block = BlockKind.ENVIRONMENT

    def inject(self, ctx, /) -> Iterator[Item]:
        rule = RULES.get(ctx.deps.environment.branch)
        if rule is not None:
            yield Item(key="1", text=f"House rule: {rule}\n\n", source="house-rules")
