"""What a plan predicts, from what was measured and from nothing else."""

from orchestrator.answering.planning import first_token_ms


def test_the_first_token_comes_when_what_is_not_cached_is_computed():
    assert first_token_ms({"ms_per_token_empty": 2.0}, 50, 1_000) == 100.0


def test_nothing_is_predicted_before_anything_was_measured():
    assert first_token_ms({}, 50, 1_000) is None
