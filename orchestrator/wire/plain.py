"""Text that names something outside of the program: a path, a revision, a pattern. Knows not what it names."""

from typing import Annotated

from pydantic import AfterValidator


def without_nul(text: str) -> str:
    """No path, no argument of a program and no name holds one; what the system says of it is no answer to a person."""
    if "\0" in text:
        raise ValueError("holds a NUL character, which no name does")
    return text


Plain = Annotated[str, AfterValidator(without_nul)]
