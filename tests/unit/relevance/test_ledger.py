"""What is suggested of the rules: from fifty firings on, each change in a patch that makes exactly that change."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InvalidRequest, SettingsError
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import GateRules, catalogue, chosen_variant, relevance
from orchestrator.relevance.ledger import RuleFigures, changes_of, patch_of, patch_text
from orchestrator.relevance.signals import Turn, signals_of

NODES = catalogue()
RULES = read_rules(NODES)
MASK = RuleFigures("", "masks.ACKNOWLEDGE", "facts", "hard", 50, 0, 900, 6)
SOFT = RuleFigures("", "rules.focus[0]", "focus", "soft", 50, 0, 900, 0)


def patched(*figures: RuleFigures, over: str = "{}") -> GateRules:
    """The rules once a user merged the patch over his file."""
    patch = patch_of(changes_of(figures), read_rules(NODES, over))
    return read_rules(NODES, over, json.dumps(patch))


def test_a_mask_that_is_regretted_too_often_becomes_a_soft_rule_for_that_node_alone() -> None:
    rules = patched(MASK)
    assert rules.masks["ACKNOWLEDGE"] == RULES.masks["ACKNOWLEDGE"] - {"facts"}
    thanks = signals_of(Turn("thanks", 1))
    assert [(one.node, one.strength) for one in relevance(thanks, rules, NODES, 0).fired if one.node == "facts"] == [
        ("facts", "soft")
    ]
    assert not relevance(thanks, rules, NODES, 0).wants("facts")
    assert relevance(thanks, rules, NODES, 100_000).wants("facts")


def test_a_hard_rule_that_is_regretted_becomes_soft_and_a_soft_one_goes() -> None:
    hard = RuleFigures("", "rules.episodic_memory[1]", "episodic_memory", "hard", 100, 0, 900, 11)
    assert [one.strength for one in patched(hard).rules["episodic_memory"]] == ["soft", "soft"]
    assert patched(replace(SOFT, regretted=6)).rules["focus"] == ()


def test_a_soft_rule_that_was_never_recovered_and_never_regretted_can_be_hard() -> None:
    assert [one.strength for one in patched(SOFT).rules["focus"]] == ["hard"]
    for kept in (replace(SOFT, recovered=1), replace(SOFT, regretted=1), replace(SOFT, fired=49)):
        assert changes_of([kept]) == []


def test_a_tenth_is_not_more_than_a_tenth_and_few_firings_say_nothing() -> None:
    assert changes_of([replace(MASK, regretted=5), replace(MASK, fired=49, regretted=49)]) == []


def test_what_was_changed_since_is_left_alone() -> None:
    gone = json.dumps({"masks": {"ACKNOWLEDGE": ["gists"]}, "rules": {"focus": []}})
    assert patch_of(changes_of([MASK, SOFT]), read_rules(NODES, gone)) == {}
    assert patch_of(changes_of([replace(SOFT, variant="gone")]), RULES) == {}
    assert patch_text({}) == ""


def test_what_is_regretted_in_a_variant_is_changed_in_that_variant() -> None:
    over = json.dumps({"variants": {"lean": {"masks": {"ACKNOWLEDGE": ["facts", "decisions"]}}}})
    rules = patched(replace(MASK, variant="lean"), over=over)
    assert rules.masks == RULES.masks
    assert rules.of("lean").masks["ACKNOWLEDGE"] == {"decisions"}


def test_a_change_says_in_words_what_it_was_counted_from() -> None:
    (change,) = changes_of([replace(MASK, variant="lean")])
    assert change.why == ("soften masks.ACKNOWLEDGE of variant lean for facts: 50 firings, 0 recovered, 6 regretted")


NODE_NAMES = st.sampled_from(["facts", "gists", "focus", "episodic_memory"])
FIGURES = st.builds(
    RuleFigures,
    st.sampled_from(["", "lean"]),
    st.sampled_from(["masks.ACKNOWLEDGE", "rules.episodic_memory[0]", "rules.episodic_memory[1]", "rules.focus[0]"]),
    NODE_NAMES,
    st.sampled_from(["hard", "soft"]),
    st.integers(1, 200),
    st.integers(0, 2),
    st.just(0),
    st.integers(0, 30),
)


@given(st.lists(FIGURES, max_size=6, unique_by=lambda one: (one.variant, one.rule, one.node)))
def test_a_patch_is_always_valid_and_changes_only_rules_that_fired(figures: list[RuleFigures]) -> None:
    over = '{"variants": {"lean": {}}}'
    rules = patched(*figures, over=over)
    changed = {one.figures.rule for one in changes_of(figures)}
    for before, after in ((RULES, rules), (RULES, rules.of("lean"))):
        modes = {mode for mode in before.masks if before.masks[mode] != after.masks[mode]}
        assert {f"masks.{mode}" for mode in modes} <= changed
    assert rules.needs == RULES.needs


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"variants": {"lean": {"mask": {}}}}', "variants.lean.mask is not known"),
        ('{"variants": {"lean": {"masks": {"ACT": ["fcous"]}}}}', "variants.lean.masks.ACT[0] is not known"),
        ('{"variants": {"lean": {"variants": {}}}}', "variants.lean.variants is not known"),
        ('{"variants": {"": {}}}', "variants. is no name"),
        ('{"variants": {"a b": {}}}', "variants.a b is no name"),
        ('{"variants": {"lean": []}}', "variants.lean should be an object"),
        ('{"variants": []}', "variants should be an object"),
    ],
)
def test_a_faulty_variant_is_named_by_its_path(text: str, path: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_rules(NODES, text)
    assert path in raised.value.message


def test_a_variant_is_a_few_keys_over_the_rest_and_an_unknown_one_is_the_rest() -> None:
    rules = read_rules(NODES, '{"most_nodes": 5, "variants": {"all": {"enabled": false}}}')
    assert (rules.of("all").enabled, rules.of("all").most, rules.of("all").variant) == (False, 5, "all")
    assert rules.of("").enabled and rules.of("gone") is rules.of("")


def test_a_session_keeps_the_variant_that_it_was_first_asked_under() -> None:
    rules = read_rules(NODES, '{"variants": {"lean": {}, "rich": {}}}')
    assert chosen_variant(None, "", rules) == ""
    assert chosen_variant("lean", "", rules) == "lean"
    assert chosen_variant("lean", "lean", rules) == chosen_variant(None, "lean", rules) == "lean"
    with pytest.raises(InvalidRequest, match="pinned to variant lean"):
        chosen_variant("rich", "lean", rules)


def test_a_variant_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    rules = read_rules(NODES, '{"variants": {"lean": {}}}')
    with pytest.raises(InvalidRequest) as raised:
        chosen_variant("laen", "", rules)
    assert (raised.value.message, raised.value.hint) == (
        "there is no variant laen of the rules of relevance",
        "there are: lean",
    )
    with pytest.raises(InvalidRequest) as raised:
        chosen_variant("lean", "", None)
    assert raised.value.hint == "context-relevance.json had none under variants when the daemon started"
