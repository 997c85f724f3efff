"""Figures are compared as their rows say, prompts are the same in every run, and a failing case hides no other."""

import json

import answers
import prompts
import pytest
import report
from answers import Refused
from report import Row


def test_a_share_is_met_at_its_limit_and_missed_above_it():
    assert report.share("c", "f", 5.0, 10.0, "s", 0.5).met
    assert not report.share("c", "f", 5.1, 10.0, "s", 0.5).met


def test_a_share_without_a_limit_is_neither_met_nor_missed():
    row = report.share("c", "f", 5.0, 10.0, "s", None)
    assert (row.ratio, row.goal, row.met) == (0.5, "", None)


def test_sooner_counts_how_often_our_time_fits_into_theirs():
    row = report.sooner("c", "f", 0.5, 12.0, 20)
    assert (row.ratio, row.met) == (24.0, True)


def test_a_rate_must_reach_its_part_of_theirs():
    assert report.rate("c", "f", 97.0, 100.0, 0.97).met
    assert not report.rate("c", "f", 96.0, 100.0, 0.97).met


def test_the_table_has_a_line_for_each_row_and_says_what_was_missed():
    rows = [report.at_most("help", "median", 124.0, 150, "ms"), report.at_most("plan", "p50", 80.0, 50, "ms")]
    lines = report.table(rows).splitlines()
    assert "| help | median | 124 ms |  |  | ≤ 150 ms | met |" in lines
    assert lines[-1].endswith("missed |")


def test_a_case_that_failed_is_a_line_too():
    assert "| failed |" in report.table([Row("decoding", "the child ended", None, met=False, note="failed")])


def test_figures_are_kept_with_the_machine_they_belong_to(tmp_path):
    report.save(tmp_path / "bench" / "a.json", {"cpu": "x"}, [Row("c", "f", 1.0)])
    kept = json.loads((tmp_path / "bench" / "a.json").read_text())
    assert kept["machine"] == {"cpu": "x"}
    assert kept["rows"][0]["ours"] == 1.0


def test_prompts_are_the_same_in_every_run_and_differ_by_their_seed():
    assert prompts.ids(5, "floor") == prompts.ids(5, "floor")
    assert prompts.ids(100, "floor") != prompts.ids(100, "other")
    assert prompts.question(1) != prompts.question(2)


def test_an_edit_keeps_length_and_everything_but_its_place():
    floor = prompts.ids(100, "floor")
    changed = prompts.edited(floor, 12)
    assert len(changed) == 100
    assert (changed[:50], changed[62:]) == (floor[:50], floor[62:])
    assert changed[50:62] != floor[50:62]


def test_a_running_answer_measures_its_first_token_and_the_gaps_between():
    running = answers.Running()
    for _ in range(3):
        running.tokens(1)
    running.done(cached=8, computed=2, generated=3)
    answer = running.answer()
    assert len(answer.gaps_s) == 2
    assert 0 <= answer.first_s <= answer.total_s
    assert (answer.cached, answer.computed, answer.generated) == (8, 2, 3)


def test_a_failed_answer_raises_for_who_asked_and_wakes_who_waited_for_its_first_token():
    running = answers.Running()
    running.failed("no room")
    assert running.first.is_set()
    with pytest.raises(Refused, match="no room"):
        running.answer()
