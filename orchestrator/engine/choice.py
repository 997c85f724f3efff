"""What is told of a token's choice besides its text, where a client wants to know."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chance:
    """A token, as bytes of text, and its natural log-probability by the model, before anything is cut off or drawn."""

    token: int
    text: bytes
    logprob: float


@dataclass(frozen=True)
class Chosen:
    """A token of an answer, and the likeliest ones in its place, likeliest first."""

    token: Chance
    likeliest: tuple[Chance, ...] = ()
