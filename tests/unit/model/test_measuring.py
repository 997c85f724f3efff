"""What is kept of a measurement, what is left of it, and what is said of it."""

import json

import pytest

from governor.footprint import KvPlan
from orchestrator.model.measuring import (
    Measurement,
    MeasurementFile,
    estimated,
    judged_words,
    model_key,
    unanswered,
)
from orchestrator.model.needles import DEPTHS, KINDS, judged, lengths_for

LENGTHS = lengths_for(9_000)
KNOWN = {
    "costs_known": 1.0,
    "ms_per_token_empty": 1.0,
    "ms_per_token_cell": 1e-3,
    "ms_per_answer_empty": 10.0,
    "ms_per_answer_cell": 0.0,
}


def results(*rights, kinds=KINDS):
    """All answers to each length: right or wrong."""
    return {
        (length, kind, depth): right and kind in kinds
        for length, right in zip(LENGTHS, rights, strict=False)
        for kind in KINDS
        for depth in DEPTHS
    }


def test_a_measurement_comes_back_as_it_was_kept_beside_those_of_other_models(tmp_path):
    file = MeasurementFile(tmp_path / "context.json")
    one, other = Measurement(LENGTHS, results(True), 4_096), Measurement(LENGTHS, results(False))
    file.put("one", one)
    file.put("other", other)
    assert (file.get("one"), file.get("other"), file.get("third")) == (one, other, Measurement())
    assert (tmp_path / "context.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["context.json"]


@pytest.mark.parametrize(
    "damaged", ["", "[]", "{", '{"one": 1}', '{"one": {"lengths": [1], "results": [[1]], "limit": null}}']
)
def test_a_damaged_file_counts_as_empty_and_can_be_written_again(tmp_path, damaged):
    path = tmp_path / "context.json"
    path.write_text(damaged)
    file = MeasurementFile(path)
    assert file.get("one") == Measurement()
    file.put("one", Measurement(LENGTHS))
    assert json.loads(path.read_text())["one"]["lengths"] == list(LENGTHS)


def test_a_model_is_known_by_its_file_and_its_kv_types_wherever_it_lies(tmp_path):
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(b"weights" * 1000)
    second.write_bytes(b"weights" * 1000)
    assert model_key(first, KvPlan()) == model_key(second, KvPlan())
    assert model_key(first, KvPlan()) != model_key(first, KvPlan(keys="q8_0"))
    second.write_bytes(b"weighty" * 1000)
    assert model_key(first, KvPlan()) != model_key(second, KvPlan())


def test_lengths_stay_as_they_were_begun_and_those_that_do_not_fit_now_wait():
    begun = Measurement(LENGTHS)
    assert begun.fitting(9_000) == begun.fitting(200_000) == LENGTHS
    assert begun.fitting(LENGTHS[3] + 512) == LENGTHS[:4]
    assert Measurement().fitting(9_000) == LENGTHS


def test_what_is_left_shrinks_with_every_answer_and_is_nothing_beyond_a_lost_length():
    whole = estimated(LENGTHS, {}, KNOWN)
    assert (whole.answers, whole.tokens) == (66, LENGTHS[-1] + 66 * 100)
    cells = results(True, True, True, True, True, True)
    left = [estimated(LENGTHS, dict(list(cells.items())[:known]), KNOWN) for known in range(len(cells) + 1)]
    assert [one.answers for one in left] == sorted((one.answers for one in left), reverse=True)
    assert [one.seconds for one in left] == sorted((one.seconds for one in left), reverse=True)
    assert (left[-1].answers, left[-1].tokens, left[-1].seconds) == (0, 0, 0.0)
    assert estimated(LENGTHS, results(True, False), KNOWN).answers == 0
    assert unanswered(LENGTHS[0], {}) == 11


def test_an_estimate_is_what_steps_cost_here_and_none_before_that_is_known():
    text = LENGTHS[-1] / 1000 * (1.0 + LENGTHS[-1] / 2 * 1e-3)
    questions = sum(11 * (0.1 * (1.0 + (length + 50) * 1e-3) + 20 * 0.01) for length in LENGTHS)
    assert estimated(LENGTHS, {}, KNOWN).seconds == pytest.approx(text + questions)
    assert estimated(LENGTHS, {}, KNOWN | {"costs_known": 0.0}).seconds is None


@pytest.mark.parametrize(
    ("found", "limit", "words"),
    [
        ({}, None, "not measured"),
        (results(True), None, "not measured to the end"),
        (results(False), None, "no measured length: at 1,056 tokens no kind of question is mastered"),
        (results(*[True] * 6), None, "texts of up to 8,448 tokens are followed, the longest that was measured"),
        (
            results(True, True, False),
            4_096,
            "the effective length is 1,601 tokens: at 2,426 too little is found; windows",
        ),
        (results(True, False), None, "1,056 tokens: at 1,601 too little is found; model.measured_context is off"),
        (results(True, True, False, kinds=("single",)), 4_096, "the effective length is 1,601 tokens"),
    ],
)
def test_what_came_of_it_is_a_sentence(found, limit, words):
    assert words in judged_words(judged(LENGTHS, found), LENGTHS, limit)
