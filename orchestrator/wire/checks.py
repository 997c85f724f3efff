"""What `lore doctor` found at one place, as `--json` has it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`fix` is what to type: needed where it is not `ok`, else a tip. `absent`: it is no fault, and it is not there."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    absent: bool = False


def checked(name: str, ok: bool, detail: str, fix: str) -> Check:
    """What is good needs no mending."""
    return Check(name, ok, detail, "" if ok else fix)
