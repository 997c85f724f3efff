"""What goes from the tiers with a floor that is dropped: what only it and its conversations could use.

    ■──■──■ its end ──┬── alice's, named on her own ground (`segments`): goes
                      └── a longer floor, named on this one's end: stays, with all that goes on from it

Of its own segments those go that nothing goes on from and no other floor is made of. Knows no files.
"""

from collections.abc import Container, Sequence

from orchestrator.engine.checkpoints.file import SegmentHeader
from orchestrator.engine.checkpoints.segments import named
from orchestrator.engine.checkpoints.store import Tiers


def forget_chain(tiers: Tiers, chain: Sequence[str], others: Container[str]) -> None:
    """`chain`: the names that lead to the floor's end, at least one; `others`: those that other floors are made of."""
    for header in tiers.below(chain[-1]):
        if not is_floor(header):
            forget_from(tiers, header)
    for name in reversed(chain):
        if name in others or tiers.below(name):
            return
        tiers.forget(name)


def is_floor(header: SegmentHeader) -> bool:
    """Whether a segment behind a floor's end is a longer floor's."""
    return header.name == named(header.parent, header.ids)


def forget_from(tiers: Tiers, header: SegmentHeader) -> None:
    """Drops a segment and all that go on from it, the last ones first; a conversation may be thousands of them."""
    found = [header]
    for one in found:
        found.extend(tiers.below(one.name))
    for one in reversed(found):
        tiers.forget(one.name)
