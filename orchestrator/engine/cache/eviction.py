"""What is lost when cells, a whole pool or a checkpoint go: one rule for every tier. Pure.

    worth = milliseconds to have one of its tokens again / (1 + age)

What goes makes room, and room is counted in tokens: hence the cost of one token and not of them all. It grows with the
tokens before it. Age is counted in uses of others since its own last one. What is worth least goes first.
"""

from dataclasses import dataclass

CARRIED_IN_A_SECOND = 500e6  # bytes between cells and tiers: what a restore ought to reach


@dataclass(frozen=True)
class Price:
    """Milliseconds of a prompt token with nothing before it, and what each token before it adds."""

    empty: float
    cell: float

    def again(self, start: int, end: int) -> float:
        """Of a token in the half-open range [start, end), on average."""
        return self.empty + self.cell * (start + end) / 2


UNSEEN = Price(1.0, 1 / 4096)  # before anything is learned: attention to 4,096 tokens costs as much as all the rest


def worth(price: Price, start: int, end: int, age: int) -> float:
    return aged(price.again(start, end), age)


def aged(milliseconds: float, age: int) -> float:
    return milliseconds / (1 + age)
