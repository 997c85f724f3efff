import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.plugins import ContextNode
from orchestrator.errors import SettingsError
from orchestrator.relevance.configuration import cycle, gate_rules, read_rules
from orchestrator.relevance.gate import NODES, Decided, Relevance, catalogue, relevance
from orchestrator.relevance.signals import Turn, signals_of
from orchestrator.settings.paths import Paths

NODE = catalogue()
RULES = read_rules(NODE)
LATER = {"turns": 4, "silence": 0.0}


def decided(
    question: str, tokens: int = 5, budget: int = 6_000, over: dict[str, Any] | None = None, **turn: Any
) -> Relevance:
    rules = read_rules(NODE, json.dumps(over or {}))
    return relevance(signals_of(Turn(question, tokens, **turn)), rules, NODE, budget)


def test_a_first_greeting_keeps_the_memories_and_skills_out() -> None:
    found = decided("Hello!", tokens=2)
    kept_out = ("episodic_memory", "facts", "decisions", "procedures", "gists", "working_memory", "available_skills")
    assert not [name for name in kept_out if found.wants(name)]
    assert found.excluded["facts"] == Decided("mask", "masks.ACKNOWLEDGE")


def test_a_warm_question_leaves_out_episodes_and_a_budget_brings_them_back() -> None:
    assert decided("where is it?", budget=0, **LATER).excluded["episodic_memory"] == Decided(
        "rule", "rules.episodic_memory[0]"
    )
    assert decided("where is it?", budget=9_000, **LATER).recovered == ("episodic_memory",)


def test_a_hard_exclusion_is_not_recovered_and_the_strongest_rule_wins() -> None:
    found = decided("hello", tokens=2, mode="RESPOND", budget=50_000, **LATER)
    assert found.excluded["episodic_memory"] == Decided("rule", "rules.episodic_memory[1]")
    assert found.recovered == ("focus",)


def test_urgency_forces_in_what_a_mask_took_out() -> None:
    assert {"working_memory", "facts"} <= set(decided("thanks", urgency="high").overrides)


def test_an_included_node_pulls_in_what_it_needs() -> None:
    found = decided("where?", over={"masks": {"RESPOND": ["gists"]}})
    assert found.included["gists"] == Decided("dependency", "episodic_memory")


def test_safety_comes_last_and_forces_in_identity_history_and_censors() -> None:
    masks = {
        "masks": {"RESPOND": ["identity_context", "working_memory", "censors"]},
        "dependencies": {"onboarding_nudge": [], "warm_return_hint": []},
    }
    assert decided("where?", over=masks, turns=1).overrides == ("identity_context", "working_memory", "censors")
    assert decided("where?", over=masks, **LATER).overrides == ("working_memory", "censors")


def test_more_than_the_safeguard_allows_is_named_and_nothing_is_cut() -> None:
    found = decided("where?")
    assert len(found.crowded) > 12
    assert not {"codex", "censors", "client_tools"} & set(found.crowded)


def test_an_unknown_mode_a_disabled_gate_and_no_configuration_include_everything() -> None:
    signals = signals_of(Turn("Hello!", 2, mode="DREAM"))
    assert not relevance(signals, RULES, NODE).excluded
    assert not relevance(signals_of(Turn("Hello!", 2)), None, NODE).excluded
    assert not decided("Hello!", over={"enabled": False}).excluded


def test_a_node_of_a_plug_in_takes_part() -> None:
    nodes = catalogue([ContextNode("weather", "State", 50, "plug-in")])
    rules = read_rules(nodes, '{"masks": {"ACKNOWLEDGE": ["weather"]}}')
    assert not relevance(signals_of(Turn("thanks", 1)), rules, nodes).wants("weather")
    assert relevance(signals_of(Turn("where is it?", 4)), rules, nodes).wants("weather")


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ('{"mask": {}}', "mask is not known", "masks"),
        ('{"rules": {"focsu": []}}', "rules.focsu is not known", "focus"),
        (
            '{"rules": {"focus": [{"when": {"context_warmth_ge": 1}, "strength": "soft"}]}}',
            "rules.focus[0].when.context_warmth_ge is not known",
            "context_warmth_gte",
        ),
        ('{"rules": {"focus": [{"when": {"context_warmth_gte": "1"}, "strength": "soft"}]}}', "should be a number", ""),
        ('{"rules": {"focus": [{"when": {"context_warmth_gte": NaN}, "strength": "soft"}]}}', "should be a number", ""),
        ('{"rules": {"focus": [{"when": {"is_question": true}, "strength": "firm"}]}}', "rules.focus[0].strength", ""),
        ('{"dependencies": {"gists": ["episodic_memory"]}}', "episodic_memory -> gists -> episodic_memory", ""),
        ('{"most_nodes": true}', "most_nodes should be a whole number", ""),
        ("{", "is no JSON", ""),
        (f'{{"most_nodes": {"1" * 5_000}}}', "is no JSON", ""),
    ],
)
def test_a_fault_names_the_path_and_what_is_nearest(text: str, path: str, hint: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_rules(NODE, text)
    assert path in raised.value.message
    assert hint in raised.value.hint


def test_a_pipe_in_the_place_of_the_rules_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "context-relevance.json")
    with pytest.raises(SettingsError, match="it is a pipe"):
        gate_rules(Paths.of({"CONFIGURATION_DIRECTORY": str(tmp_path)}).gate_rules, NODE)


def test_files_are_merged_key_by_key_and_the_last_one_wins() -> None:
    rules = read_rules(NODE, '{"most_nodes": 5, "masks": {"ACT": []}}', '{"most_nodes": 6}')
    assert (rules.most, rules.masks["ACT"], rules.masks["CLARIFY"]) == (6, frozenset(), RULES.masks["CLARIFY"])


NAMES = st.sampled_from([node.name for node in NODES])


@given(
    st.lists(NAMES),
    st.lists(NAMES),
    st.integers(0, 6),
    st.floats(0, 1e5),
    st.integers(0, 9_000),
    st.sampled_from(["RESPOND", "ACT", "CLARIFY", "ACKNOWLEDGE"]),
)
def test_every_node_is_decided_once_and_what_must_stand_stands(
    masked: list[str], soft: list[str], turns: int, silence: float, budget: int, mode: str
) -> None:
    rule = [{"when": {"prompt_token_count_gte": 0}, "strength": "soft"}]
    over = {"masks": {mode: masked}, "rules": dict.fromkeys(soft, rule)}
    found = decided("hello", budget=budget, over=over, turns=turns, silence=silence, mode=mode)
    assert found.included.keys() | found.excluded.keys() == NODE.keys()
    assert not found.included.keys() & found.excluded.keys()
    assert {node.name for node in NODES if not node.gated} <= found.included.keys()
    assert "censors" in found.included and (turns == 0 or "working_memory" in found.included)
    assert found.tokens == sum(NODE[name].cost for name in found.included)
    assert set(found.recovered) <= set(found.soft)
    assert {one.node for one in found.fired} == {*found.hard, *found.soft}
    assert {one.node for one in found.fired if not one.recovered} == found.excluded.keys()
    assert all(one.rule in (f"masks.{mode}", f"rules.{one.node}[0]", f"rules.{one.node}[1]") for one in found.fired)


@given(st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=3)))
def test_a_cycle_is_found_exactly_where_names_cannot_be_put_in_order(edges: dict[int, list[int]]) -> None:
    needs = {str(name): tuple(map(str, needed)) for name, needed in edges.items()}
    left = dict(needs)
    while free := [name for name, needed in left.items() if not set(needed) & left.keys()]:
        for name in free:
            del left[name]
    assert bool(cycle(needs)) == bool(left)
