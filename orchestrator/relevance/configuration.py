"""context-relevance.json: what the gate goes by. The shipped file, the installation's and the user's, merged key by key.

Every fault is a SettingsError that names the path of the faulty rule (`rules.focus[0].when.warmth_gte`).
"""

import difflib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

from formatters.plugins import ContextNode
from orchestrator.errors import SettingsError
from orchestrator.relevance.gate import COMPARISONS, ExclusionRule, GateRules, Predicate, Strength
from orchestrator.relevance.signals import SIGNALS, Signal
from orchestrator.wire.places import GATE_FILE

VARIANTS: Final = "variants"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.IGNORECASE)
KEYS: Final = (
    "enabled",
    "masks",
    "rules",
    "urgency_nodes",
    "soft_recovery_budget",
    "soft_recovery_priority",
    "dependencies",
    "most_nodes",
)
STRENGTHS: Final = ("hard", "soft")
SUFFIXES: Final = (*COMPARISONS, "_eq")


@cache
def shipped() -> str:
    """The text of the defaults."""
    return files("orchestrator.relevance").joinpath(GATE_FILE).read_text(encoding="utf-8")


def read_rules(nodes: Mapping[str, ContextNode], *texts: str) -> GateRules:
    """The shipped rules with `texts` merged over them, in their order. Raises SettingsError."""
    merged: dict[str, Any] = {}
    for text in (shipped(), *texts):
        merged = merge(merged, _parsed(text))
    return checked(merged, nodes)


def gate_rules(places: Iterable[Path], nodes: Mapping[str, ContextNode]) -> GateRules:
    """The shipped rules with those of the files that there are over them. `nodes`: all that rules may name. Raises
    SettingsError with the faulty file and rule."""
    texts: list[str] = []
    for file in places:
        try:
            if file.is_fifo():
                raise OSError("it is a pipe: a start would wait for whoever writes to it")
            texts.append(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file} cannot be read: {error}", "mend or remove the file") from error
        try:
            read_rules(nodes, *texts)  # at each file, so that a fault names its own
        except SettingsError as fault:
            raise SettingsError(f"{file}: {fault.message}", fault.hint) from fault
    return read_rules(nodes, *texts)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Objects are merged key by key, at any depth but within a list; every other value of `above` replaces."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def checked(given: Mapping[str, Any], nodes: Mapping[str, ContextNode]) -> GateRules:
    """With its variants, each of which is a few keys merged over the rest. Raises SettingsError at the first fault."""
    for key in given:
        _known(key, (*KEYS, VARIANTS), key)
    plain = {key: value for key, value in given.items() if key != VARIANTS}
    named = _object({VARIANTS: {}, **given}, VARIANTS)
    rules = _checked(plain, nodes)
    return replace(rules, variants={name: _variant(name, over, plain, nodes) for name, over in named.items()})


def _variant(name: str, over: object, plain: Mapping[str, Any], nodes: Mapping[str, ContextNode]) -> GateRules:
    path = f"{VARIANTS}.{name}"
    if NAME.fullmatch(name) is None:
        raise _fault(path, "is no name", "a name has at most 64 letters, digits, dots and hyphens")
    if not isinstance(over, dict):
        raise _fault(path, "should be an object", "write the keys that differ: {...}")
    try:
        return replace(_checked(merge(plain, over), nodes), variant=name)
    except SettingsError as fault:
        raise SettingsError(fault.message.replace(f"{GATE_FILE}: ", f"{GATE_FILE}: {path}.", 1), fault.hint) from fault


def _checked(given: Mapping[str, Any], nodes: Mapping[str, ContextNode]) -> GateRules:
    for key in given:
        _known(key, KEYS, key)
    if missing := [key for key in KEYS if key not in given]:
        raise _fault(missing[0], "is missing", "the shipped file has it")
    needs = {
        name: _names(names, nodes, f"dependencies.{name}") for name, names in _object(given, "dependencies").items()
    }
    for name in needs:
        _known(name, nodes, f"dependencies.{name}")
    if found := cycle(needs):
        raise _fault("dependencies", f"go in a cycle: {' -> '.join(found)}", "take one of these arrows away")
    return GateRules(
        masks={
            mode: frozenset(_names(names, nodes, f"masks.{mode}")) for mode, names in _object(given, "masks").items()
        },
        rules={name: _rules(name, listed, nodes) for name, listed in _object(given, "rules").items()},
        needs=needs,
        recovery=_names(given["soft_recovery_priority"], nodes, "soft_recovery_priority"),
        recovery_budget=_count(given, "soft_recovery_budget"),
        urgent=_names(given["urgency_nodes"], nodes, "urgency_nodes"),
        most=_count(given, "most_nodes"),
        enabled=_boolean(given["enabled"], "enabled"),
    )


def cycle(needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The first cycle, its first name again at its end; empty where there is none."""
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        waiting = [(start, 0)]
        while waiting:
            name, depth = waiting.pop()
            del path[depth:]
            if name in path:
                return (*path[path.index(name) :], name)
            if name in done:
                continue
            path.append(name)
            waiting += [(needed, depth + 1) for needed in needs.get(name, ())]
        done.add(start)
    return ()


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number of more than 4,300 digits
        raise SettingsError(f"{GATE_FILE}: is no JSON: {error}", "mend the file, or take it away") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{GATE_FILE}: should be an object", "begin it with { and end it with }")
    return found


def _rules(name: str, listed: object, nodes: Mapping[str, ContextNode]) -> tuple[ExclusionRule, ...]:
    path = f"rules.{name}"
    _known(name, nodes, path)
    if not isinstance(listed, list):
        raise _fault(path, "should be a list of rules", "write [{...}]")
    return tuple(_rule(rule, f"{path}[{place}]") for place, rule in enumerate(listed))


def _rule(given: object, path: str) -> ExclusionRule:
    if not isinstance(given, dict):
        raise _fault(path, "should be an object", 'write {"when": {...}, "strength": "soft"}')
    for key in given:
        _known(key, ("when", "strength"), f"{path}.{key}")
    strength = given.get("strength")
    if strength not in STRENGTHS:
        raise _fault(f"{path}.strength", "should be hard or soft", "write one of them")
    when = given.get("when")
    if not isinstance(when, dict) or not when:
        raise _fault(f"{path}.when", "should be an object with at least one predicate", "name a signal and its value")
    predicates = tuple(_predicate(key, value, f"{path}.when.{key}") for key, value in when.items())
    return ExclusionRule(predicates, cast(Strength, strength), path)


def _predicate(key: str, value: object, path: str) -> Predicate:
    suffix = next((suffix for suffix in SUFFIXES if key.endswith(suffix)), "")
    signal = key.removesuffix(suffix)
    if signal not in SIGNALS:
        _known(key, [name + end for name, kind in SIGNALS.items() for end in _suffixes(kind)], path)
    wanted = SIGNALS[signal]
    if suffix in COMPARISONS and wanted is not float:
        raise _fault(path, "compares what is no number", f"write {signal} without {suffix}")
    if not (_is_number(value) if wanted is float else isinstance(value, wanted)):
        word = {float: "a number", bool: "true or false", str: "a string"}[wanted]
        raise _fault(path, f"should be {word}", "the type of a value is that of its signal")
    return Predicate(signal, suffix if suffix in COMPARISONS else "", cast(Signal, value))


def _suffixes(kind: type) -> tuple[str, ...]:
    return ("", *SUFFIXES) if kind is float else ("", "_eq")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _names(given: object, nodes: Mapping[str, ContextNode], path: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise _fault(path, "should be a list of nodes", 'write ["facts", "gists"]')
    for place, name in enumerate(given):
        _known(name, nodes, f"{path}[{place}]")
    return tuple(given)


def _object(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(given[key], dict):
        raise _fault(key, "should be an object", "write {...}")
    return cast(dict[str, Any], given[key])


def _count(given: Mapping[str, Any], key: str) -> int:
    value = given[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _fault(key, "should be a whole number of at least 0", "write one")
    return value


def _boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _fault(path, "should be true or false", "write one of them")
    return value


def _known(name: str, known: Collection[str], path: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise _fault(path, "is not known", f"the nearest is {near[0]}" if near else "take it away")


def _fault(path: str, what: str, hint: str) -> SettingsError:
    return SettingsError(f"{GATE_FILE}: {path} {what}", hint)
