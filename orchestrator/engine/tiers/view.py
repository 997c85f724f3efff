"""What the tiers hold, as an immutable value that another thread may search while the loop goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.engine.messages import Tier
from orchestrator.engine.tiers.checkpoint_file import Header


@dataclass(frozen=True)
class Lies:
    """A kept segment and where it would come from."""

    header: Header
    tier: Tier


@dataclass(frozen=True)
class View:
    """`lying`: segments of one root, by the name of what they go on from."""

    root: str = ""
    lying: Mapping[str, Sequence[Lies]] = field(default_factory=dict)

    def below(self, name: str) -> list[Header]:
        return [one.header for one in self.lying.get(name, ())]

    def tier(self, header: Header) -> Tier:
        """Of a segment that it holds."""
        return next(one.tier for one in self.lying[header.parent] if one.header.name == header.name)
