"""One finding of `lore doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`fix` is what to type: needed where it is not `ok`, else a tip. `absent`: it is no fault, and it is not there."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    absent: bool = False
