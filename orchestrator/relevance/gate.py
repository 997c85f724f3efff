"""The relevance gate: which context nodes are worth fetching for this turn. Pure, and under 0.5 ms.

    masks → signal rules → urgency → soft recovery → dependencies → safety → safeguard

Its rules are at two places: in context-relevance.json those that a user may change (`configuration` reads them), and here
those that nobody does: the nodes, and what is there for safety. Each layer sees what those before it left. The gate takes
nothing out of a block that stands, and the prompt never shows what it decided.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from formatters.plugins import ContextNode
from orchestrator.errors import InvalidRequest, instead
from orchestrator.relevance.signals import WARM, Signal, Signals

NODES: Final = (
    ContextNode("identity_context", "Identity", 300, "persona"),
    ContextNode("codex", "Codex", 0, "floor", gated=False),
    ContextNode("world_state", "Environment", 100, "levels"),
    ContextNode("available_tools", "Environment", 200, "sigil"),
    ContextNode("available_skills", "Environment", 200, "memories"),
    ContextNode("user_traits", "Environment", 200, "memories"),
    ContextNode("communication_style", "Environment", 150, "memories"),
    ContextNode("client_system", "Environment", 0, "client", gated=False),
    ContextNode("client_tools", "Environment", 0, "client", gated=False),
    ContextNode("facts", "Karma", 50, "memories"),
    ContextNode("gists", "Karma", 300, "memories"),
    ContextNode("episodic_memory", "Karma", 50, "memories"),
    ContextNode("decisions", "Karma", 50, "memories"),
    ContextNode("procedures", "Karma", 50, "memories"),
    ContextNode("censors", "Karma", 100, "memories"),
    ContextNode("active_lists", "Karma", 200, "memories"),
    ContextNode("client_context", "State", 100, "client"),
    ContextNode("identity_modulation", "State", 150, "frame"),
    ContextNode("onboarding_nudge", "State", 100, "codices"),
    ContextNode("warm_return_hint", "State", 100, "session"),
    ContextNode("attachments", "State", 0, "client", gated=False),
    ContextNode("evidence", "State", 0, "archive", gated=False),
    ContextNode("focus", "State", 300, "session"),
    ContextNode("working_memory", "State", 800, "session"),
    ContextNode("act_history", "State", 0, "turn", gated=False),
)
"""In the order of the prompt. The costs sum to what a full turn without codex, client and evidence takes on average. Those
of memories that are looked up were counted on the labelled set: 17 to 63 tokens in a prompt that has some. With the 400 and
800 of before, a warm conversation seemed to have no room for episodes.

Attachments, evidence and act_history are never gated: the user gave the first, the strategy decides the second, and an
agent without the third would repeat its calls.
"""
BUILTIN: Final = frozenset(node.name for node in NODES)

Strength = Literal["hard", "soft"]
DEFAULT_BUDGET: Final = 6_000
"""Tokens of a frame's total, for a caller that has no frame."""
UNCOUNTED: Final = frozenset({"codex", "censors"})
"""Always there, and so not counted by the safeguard; nor are the nodes that are never gated."""

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "_gte": operator.ge,
    "_gt": operator.gt,
    "_lte": operator.le,
    "_lt": operator.lt,
}


def catalogue(further: Iterable[ContextNode] = ()) -> Mapping[str, ContextNode]:
    """The built-in nodes and `further` ones, by name. Raises ValueError for a name that there is twice."""
    found: dict[str, ContextNode] = {}
    for node in (*NODES, *further):
        if node.name in found:
            raise ValueError(f"there are two nodes named {node.name!r}")
        found[node.name] = node
    return MappingProxyType(found)


@dataclass(frozen=True, slots=True)
class Predicate:
    """`suffix` is one of COMPARISONS, or empty: equal."""

    signal: str
    suffix: str
    value: Signal

    def holds(self, signals: Signals) -> bool:
        given = signals.get(self.signal)
        if given is None:
            return False
        if not self.suffix:
            return isinstance(given, bool) == isinstance(self.value, bool) and given == self.value
        if isinstance(given, str | bool) or isinstance(self.value, str | bool):
            return False
        return COMPARISONS[self.suffix](given, self.value)


@dataclass(frozen=True, slots=True)
class ExclusionRule:
    """Excludes its node where all predicates hold. `path` is its place in the configuration: `rules.focus[0]`."""

    when: tuple[Predicate, ...]
    strength: Strength
    path: str


@dataclass(frozen=True)
class GateRules:
    """All that the gate goes by, checked already: every node is known, and `needs` has no cycle."""

    masks: Mapping[str, frozenset[str]]
    rules: Mapping[str, tuple[ExclusionRule, ...]]
    needs: Mapping[str, tuple[str, ...]]
    recovery: tuple[str, ...]
    recovery_budget: int
    urgent: tuple[str, ...]
    most: int
    enabled: bool = True
    variant: str = ""
    variants: Mapping[str, "GateRules"] = field(default_factory=dict)

    def of(self, variant: str) -> "GateRules":
        """Those of this variant; the plain ones for '' and for a name that there is not any more."""
        return self.variants.get(variant, self)


@dataclass(frozen=True, slots=True)
class Decided:
    """What decided about a node last: a layer and, where there is one, the rule's path or the node that needs it."""

    layer: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class FiredRule:
    """A mask or a rule that held for a node. `rule` is its place in the configuration; `tokens` are the node's cost.
    `recovered`: the node was fetched all the same, for room, urgency or safety, or because another needs it."""

    node: str
    rule: str
    strength: Strength
    tokens: int
    recovered: bool


@dataclass(frozen=True)
class Relevance:
    """Every node is in `included` or in `excluded`, with what decided it. `tokens` is an estimate."""

    mode: str
    included: Mapping[str, Decided]
    excluded: Mapping[str, Decided]
    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    tokens: int = 0
    crowded: tuple[str, ...] = ()
    """The counted nodes, where there are more than the safeguard's number."""
    fired: tuple[FiredRule, ...] = ()
    variant: str = ""

    def wants(self, node: str) -> bool:
        """Whether to fetch it. A node that the gate does not know is fetched."""
        return node not in self.excluded

    def event(self) -> dict[str, object]:
        """The fields of the one log event of a turn."""
        return {
            "mode": self.mode,
            "variant": self.variant,
            "excluded_hard": list(self.hard),
            "excluded_soft": list(self.soft),
            "recovered_soft": list(self.recovered),
            "deps_added": list(self.added),
            "overrides_applied": list(self.overrides),
            "total_included": len(self.included),
            "est_tokens": self.tokens,
        }


@dataclass
class _Selection:
    """The nodes between two layers."""

    nodes: Mapping[str, ContextNode]
    included: dict[str, Decided]
    hard: dict[str, Decided] = field(default_factory=dict)
    soft: dict[str, Decided] = field(default_factory=dict)

    def exclude(self, name: str, strength: Strength, why: Decided) -> None:
        if name in self.nodes and self.nodes[name].gated:
            self.included.pop(name, None)
            (self.hard if strength == "hard" else self.soft)[name] = why

    def include(self, name: str, why: Decided) -> bool:
        """Whether it was out."""
        if name not in self.nodes or name in self.included:
            return False
        self.hard.pop(name, None)
        self.soft.pop(name, None)
        self.included[name] = why
        return True

    def tokens(self) -> int:
        return sum([self.nodes[name].cost for name in self.included])


def chosen_variant(named: str | None, pinned: str, rules: GateRules | None) -> str:
    """The variant of the rules that decides: the session's, else the `named` one; '' for none. Raises InvalidRequest for
    another one than the session's, and for one that there is not."""
    if not named or named == pinned:
        return pinned
    if pinned:
        hint = "leave variant out, or begin another session"
        raise InvalidRequest(f"the session is pinned to variant {pinned} of the rules of relevance", hint)
    known = list(rules.variants) if rules is not None else []
    if named not in known:
        none = "context-relevance.json had none under variants when the daemon started"
        raise InvalidRequest(f"there is no variant {named} of the rules of relevance", instead(named, known, none, ""))
    return named


def relevance(
    signals: Signals, rules: GateRules | None, nodes: Mapping[str, ContextNode], budget: int = DEFAULT_BUDGET
) -> Relevance:
    """Which nodes are worth fetching. `budget`: tokens of the frame. Without rules (an invalid file): every node."""
    mode = str(signals.get("mode", "RESPOND"))
    if rules is None or not rules.enabled:
        return everything(mode, nodes, "disabled" if rules else "no configuration", rules)
    if mode not in rules.masks:
        return everything(mode, nodes, "unknown mode", rules)
    chosen = _Selection(nodes, dict.fromkeys(nodes, Decided("default")))
    _mask(chosen, mode, rules)
    _apply_rules(chosen, signals, rules)
    hard, soft, held = tuple(chosen.hard), tuple(chosen.soft), {**chosen.soft, **chosen.hard}
    overrides = _force(chosen, rules.urgent if signals.get("urgency") == "high" else (), "urgency")
    recovered = _recover(chosen, rules, budget)
    added = _add_needed(chosen, rules.needs)
    overrides += _force(chosen, _safe(signals), "safety")
    return Relevance(
        mode=mode,
        included=chosen.included,
        excluded={**chosen.hard, **chosen.soft},
        hard=hard,
        soft=soft,
        recovered=recovered,
        added=added,
        overrides=overrides,
        tokens=chosen.tokens(),
        crowded=_crowded(chosen.included, nodes, rules.most),
        fired=tuple(
            FiredRule(name, why.rule, "hard" if name in hard else "soft", nodes[name].cost, name in chosen.included)
            for name, why in held.items()
        ),
        variant=rules.variant,
    )


def everything(mode: str, nodes: Mapping[str, ContextNode], why: str, rules: GateRules | None = None) -> Relevance:
    """Every node; `why` stands in the place of the layer."""
    included = dict.fromkeys(nodes, Decided(why))
    crowded = _crowded(included, nodes, rules.most) if rules and rules.enabled else ()
    return Relevance(mode, included, {}, tokens=sum(node.cost for node in nodes.values()), crowded=crowded)


def _mask(chosen: _Selection, mode: str, rules: GateRules) -> None:
    for name in chosen.nodes:
        if name in rules.masks[mode]:
            chosen.exclude(name, "hard", Decided("mask", f"masks.{mode}"))


def _apply_rules(chosen: _Selection, signals: Signals, rules: GateRules) -> None:
    for name, listed in rules.rules.items():
        if name in chosen.hard:
            continue
        holding = [rule for rule in listed if all(predicate.holds(signals) for predicate in rule.when)]
        if holding:
            strongest = next((rule for rule in holding if rule.strength == "hard"), holding[0])
            chosen.exclude(name, strongest.strength, Decided("rule", strongest.path))


def _force(chosen: _Selection, names: tuple[str, ...], layer: str) -> tuple[str, ...]:
    return tuple(name for name in names if chosen.include(name, Decided(layer)))


def _recover(chosen: _Selection, rules: GateRules, budget: int) -> tuple[str, ...]:
    left = budget - chosen.tokens()
    if left <= rules.recovery_budget:
        return ()
    found = []
    for name in rules.recovery:
        if name in chosen.soft and chosen.nodes[name].cost <= left:
            chosen.include(name, Decided("recovery"))
            left -= chosen.nodes[name].cost
            found.append(name)
    return tuple(found)


def _add_needed(chosen: _Selection, needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What included nodes need, transitively."""
    added = []
    waiting = [name for name in chosen.included if name in needs]
    while waiting:
        name = waiting.pop()
        for needed in needs.get(name, ()):
            if chosen.include(needed, Decided("dependency", name)):
                added.append(needed)
                waiting.append(needed)
    return tuple(added)


def _safe(signals: Signals) -> tuple[str, ...]:
    warmth, turns = signals.get("context_warmth"), signals.get("working_memory_turns")
    cold = isinstance(warmth, int | float) and warmth < WARM
    forced = ["identity_context"] if cold or signals.get("returning_from_silence") is True else []
    if isinstance(turns, int | float) and turns >= 1:
        forced.append("working_memory")
    return (*forced, "censors")


def _crowded(included: Mapping[str, Decided], nodes: Mapping[str, ContextNode], most: int) -> tuple[str, ...]:
    counted = tuple(name for name in included if nodes[name].gated and name not in UNCOUNTED)
    return counted if len(counted) > most else ()
