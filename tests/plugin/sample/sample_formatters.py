"""Two formatters as a third party writes them: an injector and a template. It imports `formatters` and nothing else."""

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


class Terse:
    """Writes Identity in one line, whoever is asked."""

    name = "terse"
    block = BlockKind.IDENTITY

    def write(self, ctx, /) -> tuple[Item, ...]:
        return (Item(key="1", text=f"You are {ctx.deps.identity.name}. Be terse.\n\n", source="terse"),)


terse = Terse()
