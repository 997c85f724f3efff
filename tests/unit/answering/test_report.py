"""What an answer says of itself, from what the engine reported."""

import json

from orchestrator.answering import report
from orchestrator.answering.ledger import WRITTEN_ANYHOW
from orchestrator.answering.report import first_token_ms, relevance_stats
from orchestrator.engine.messages import Completion, Outcome, Reason, TicketTimings
from orchestrator.karma.recall import MEMORY_NODES
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import NODES, catalogue
from orchestrator.relevance.ledger import RuleFigures


def completion(drafted: int, accepted: int) -> Completion:
    return Completion(
        1, Outcome.DONE, Reason.STOP, "", 10, 8, 2, 20, drafted, accepted, TicketTimings(1.0, 2.0, 3.0, 40.0)
    )


def test_drafts_are_those_of_all_inferences_of_an_answer() -> None:
    told = report.drafts([completion(12, 7), completion(5, 0)])
    assert (told.drafted, told.accepted) == (17, 7)


def test_an_answer_without_an_inference_drafted_nothing() -> None:
    assert report.drafts([]).drafted == 0


def test_times_are_milliseconds_and_the_speed_is_the_last_inference_s() -> None:
    told = report.timings([completion(0, 0), completion(0, 0)], 0.126, 30.0, 90.0)
    assert (told.assemble_ms, told.queue_ms, told.ttft_ms, told.total_ms) == (0.13, 2.0, 30.0, 90.0)
    assert told.tokens_per_second == 40.0


# ---- What a plan predicts, from what was measured and from nothing else


def test_the_first_token_comes_when_what_is_not_cached_is_computed():
    assert first_token_ms({"ms_per_token_empty": 2.0}, 50, 1_000) == 98.0


def test_its_last_token_costs_what_a_step_of_an_answer_does():
    costs = {"ms_per_token_empty": 2.0, "ms_per_answer_empty": 20.0, "ms_per_answer_cell": 0.01}
    assert first_token_ms(costs, 50, 1_000) == 98.0 + 20.0 + 10.0
    assert first_token_ms(costs, 1, 1_000) == 30.0


def test_nothing_is_predicted_before_anything_was_measured():
    assert first_token_ms({}, 50, 1_000) is None


def test_every_gated_node_is_a_memorys_or_a_notes_or_is_written_anyhow() -> None:
    gated = {node.name for node in NODES if node.gated}
    notes = {"identity_modulation", "onboarding_nudge", "warm_return_hint", "focus"}
    assert gated == MEMORY_NODES | notes | WRITTEN_ANYHOW
    assert not MEMORY_NODES & WRITTEN_ANYHOW


def test_nothing_is_suggested_of_rules_whose_right_nobody_can_tell() -> None:
    focus = RuleFigures("", "rules.focus[0]", "focus", "soft", 100, 0, 900, 0)
    episodes = RuleFigures("", "rules.episodic_memory[0]", "episodic_memory", "soft", 100, 0, 900, 0)
    told = relevance_stats([focus, episodes], read_rules(catalogue()))
    assert [one.node for one in told.rules] == ["focus", "episodic_memory"]
    assert [words.split(" for ")[0] for words in told.changes] == ["harden rules.episodic_memory[0]"]
    assert list(json.loads(told.patch)) == ["rules"]
    assert relevance_stats([episodes], None).patch == ""
