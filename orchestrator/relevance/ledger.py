"""Whether the rules of the gate pay: how often each fired, what it saved, how often that was regretted, what to change.

    a rule that is hard and regretted in more than 10 % of at least 50 firings      should be soft
    one that is soft and regretted as often                                         should go
    one that is soft and was never recovered and never regretted in at least 50     can be hard

The change is a patch: JSON to be merged over a user's file. Nothing applies it. Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.relevance.configuration import VARIANTS, merge
from orchestrator.relevance.gate import ExclusionRule, GateRules, Predicate, Strength

FIRINGS: Final = 50  # fewer say nothing
REGRETTED: Final = 0.10
_RULE: Final = re.compile(r"rules\.(?P<node>.+)\[(?P<place>\d+)\]")
_MASK: Final = re.compile(r"masks\.(?P<mode>.+)")


@dataclass(frozen=True)
class RuleFigures:
    """What one rule did to one node, in one variant ('' is none). `saved`: tokens, estimated, of the firings that were not
    recovered."""

    variant: str
    rule: str
    node: str
    strength: Strength
    fired: int
    recovered: int
    saved: int
    regretted: int


@dataclass(frozen=True)
class RuleChange:
    """`do`: soften, remove or harden."""

    figures: RuleFigures
    do: str

    @property
    def why(self) -> str:
        one = self.figures
        where = f" of variant {one.variant}" if one.variant else ""
        counted = f"{one.fired} firings, {one.recovered} recovered, {one.regretted} regretted"
        return f"{self.do} {one.rule}{where} for {one.node}: {counted}"


def changes_of(figures: Iterable[RuleFigures]) -> list[RuleChange]:
    """By the table above."""
    found = ((one, _change(one)) for one in figures)
    return [RuleChange(one, do) for one, do in found if do]


def _change(one: RuleFigures) -> str:
    if one.fired < FIRINGS:
        return ""
    if one.regretted > REGRETTED * one.fired:
        return "soften" if one.strength == "hard" else "remove"
    return "harden" if one.strength == "soft" and not one.recovered and not one.regretted else ""


def patch_of(changes: Sequence[RuleChange], rules: GateRules) -> dict[str, Any]:
    """What is to be merged over a file for these changes; {} for none. A rule that is not there any more, or has another
    strength by now, is left alone."""
    patch: dict[str, Any] = {}
    for variant in dict.fromkeys(one.figures.variant for one in changes):
        here = [one for one in changes if one.figures.variant == variant]
        if variant and variant not in rules.variants:
            continue
        part = _patch(here, rules.of(variant))
        if part:
            patch = merge(patch, {VARIANTS: {variant: part}} if variant else part)
    return patch


def _patch(changes: Sequence[RuleChange], rules: GateRules) -> dict[str, Any]:
    """Lists are merged whole, so that all changes of one list are made in it."""
    masks = {mode: list(nodes) for mode, nodes in rules.masks.items()}
    listed: dict[str, list[ExclusionRule | None]] = {node: list(found) for node, found in rules.rules.items()}
    touched: dict[str, set[str]] = {"masks": set(), "rules": set()}
    for one in changes:
        node = one.figures.node
        if (mask := _MASK.fullmatch(one.figures.rule)) and node in masks.get(mask["mode"], ()):
            masks[mask["mode"]].remove(node)
            listed.setdefault(node, []).append(_softened(mask["mode"]))
            touched["masks"].add(mask["mode"])
            touched["rules"].add(node)
        elif (rule := _RULE.fullmatch(one.figures.rule)) and _changed(listed, rule["node"], int(rule["place"]), one):
            touched["rules"].add(rule["node"])
    return {
        key: {name: sorted(masks[name]) if key == "masks" else _written(listed[name]) for name in sorted(names)}
        for key, names in touched.items()
        if names
    }


def _softened(mode: str) -> ExclusionRule:
    """What stands for a node that a mode's mask excluded."""
    return ExclusionRule((Predicate("mode", "", mode),), "soft", "")


def _changed(listed: dict[str, list[ExclusionRule | None]], node: str, place: int, change: RuleChange) -> bool:
    """Whether the rule stood at its place as it was when it fired; it is changed then."""
    rules = listed.get(node, [])
    rule = rules[place] if place < len(rules) else None
    if rule is None or rule.strength != change.figures.strength:
        return False
    strength: Strength = "hard" if change.do == "harden" else "soft"
    rules[place] = None if change.do == "remove" else ExclusionRule(rule.when, strength, rule.path)
    return True


def _written(rules: Iterable[ExclusionRule | None]) -> list[dict[str, Any]]:
    """As the file has them."""
    return [
        {"when": {one.signal + one.suffix: one.value for one in rule.when}, "strength": rule.strength}
        for rule in rules
        if rule is not None
    ]


def patch_text(patch: Mapping[str, Any]) -> str:
    """'' where there is nothing to change."""
    return json.dumps(patch, indent=2) if patch else ""
