"""Deterministic automata as rules of llama.cpp's grammars: one rule for each state. Knows no JSON schema.

Inside a JSON string some characters are written as escapes; all of them begin alike, so a state has at most one more
rule, behind the backslash. Every reference stands last in its alternative: llama.cpp's stacks do not grow.
"""

from collections.abc import Iterator

from orchestrator.engine.llama.automaton import Automaton
from orchestrator.engine.llama.characters import ESCAPES, Ranges, both, inverse, of, union

ESCAPED = union(*(((code, code),) for code in ESCAPES))


def string_rules(automaton: Automaton, name: str) -> dict[str, str]:
    """The rules of JSON strings with the automaton's texts, their quotes included; `name` is the one to begin with."""
    rules = {name: rf'"\"" {name}-0'}
    for state, steps in enumerate(automaton.steps):
        alternatives = [
            f"{_class(plain)} {name}-{target}" for ranges, target in steps if (plain := both(ranges, inverse(ESCAPED)))
        ]
        escaped = [f"{_class(letters)} {name}-{target}" for ranges, target in steps if (letters := _letters(ranges))]
        if escaped:
            alternatives.append(rf'"\\" {name}-{state}-e')
            rules[f"{name}-{state}-e"] = " | ".join(escaped)
        if state in automaton.accepting:
            alternatives.append(r'"\"" space')
        rules[f"{name}-{state}"] = " | ".join(alternatives)
    return rules


def plain_rules(automaton: Automaton, name: str) -> dict[str, str]:
    """The rules of the automaton's texts as they are: numbers."""
    rules = {name: f"{name}-0"}
    for state, steps in enumerate(automaton.steps):
        alternatives = [f"{_class(ranges)} {name}-{target}" for ranges, target in steps]
        rules[f"{name}-{state}"] = " | ".join([*alternatives, *(["space"] if state in automaton.accepting else [])])
    return rules


def _letters(ranges: Ranges) -> Ranges:
    """What stands behind a backslash for those of the characters that are escaped."""
    inside = both(ranges, ESCAPED)
    return of("".join(letter for code, letter in ESCAPES.items() if any(low <= code <= high for low, high in inside)))


def _class(ranges: Ranges) -> str:
    return f"[{''.join(_spelled(ranges))}]"


def _spelled(ranges: Ranges) -> Iterator[str]:
    for low, high in ranges:
        yield _sign(low) + (f"-{_sign(high)}" if high > low else "")


def _sign(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08X}"
