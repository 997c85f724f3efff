"""A place on a path up to which its tokens are named: the nodes of a tree note it, and do not know what names are for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Boundary:
    """Between two segments of a path: the name of the segment that ends there, and the position."""

    parent: str
    start: int
