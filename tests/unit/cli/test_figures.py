"""Numbers and tables as people read them."""

import pytest

from orchestrator.cli.ask import answer_footer, code_state
from orchestrator.cli.codex import taken_in
from orchestrator.cli.terminal import duration, seconds, size, table


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**2, "5.0 MiB"), (3 * 1024**4, "3072.0 GiB")],
)
def test_bytes_have_binary_units(number, text):
    assert size(number) == text


def test_times_are_short():
    assert [seconds(12.3), seconds(1234), duration(61), duration(5)] == ["12 ms", "1.2 s", "1 min 01 s", "5 s"]


def test_columns_of_numbers_stand_right():
    assert table(("name", "n"), [("a", "1"), ("bb", "1,000")]) == "name      n\na         1\nbb    1,000"


@pytest.mark.parametrize(
    ("codex", "text"),
    [
        ({"branch": "main", "revision": "1a2b3c4d5e"}, "main@1a2b3c4"),
        ({"branch": "main", "revision": "1a2b3c4", "amendments": ["a"]}, "main@1a2b3c4 + 1 changed file"),
        ({"revision": "1a2b3c4"}, "1a2b3c4"),
        ({"amendments": ["a", "b"]}, "+ 2 changed files"),
        ({"amendments": ["a", "b"], "removed": ["b"]}, "+ 1 changed, 1 removed file"),
        ({"amendments": ["a", "b"], "removed": ["a", "b"]}, "+ 2 removed files"),
        ({}, ""),
    ],
)
def test_the_state_of_the_code_is_one_phrase(codex, text):
    assert code_state(codex) == text


def test_the_footer_says_what_it_knows_and_no_more():
    assert answer_footer({}) == []
    assert answer_footer({"prompt": {"cached": 1, "computed": 2}}) == ["no codex · 1 tokens cached, 2 computed"]
    noticed = {"model": "builtin:quoter", "notice": "no GPU support in this build"}
    assert answer_footer(noticed)[-1] == "no GPU support in this build"


def test_a_codex_tells_files_that_are_gone_as_removed_not_as_changed():
    codex = {"generation": 3, "branch": "main", "revision": "1a2b3c4d", "amendments": 5}
    since = {"changed_files": ["a.py", "b.py"], "removed_files": ["b.py"]}
    assert taken_in({**codex, **since}) == "generation 3, main@1a2b3c4 + 1 changed, 1 removed file"
    assert taken_in({"generation": 1, "changed_files": [], "removed_files": []}) == "generation 1"


def test_the_footer_without_a_codex_names_no_strategy_and_what_only_quotes_is_said_in_short():
    answer = {"strategy": {"name": "NONE", "tier": "none"}, "prompt": {"cached": 1, "computed": 2}}
    assert answer_footer(answer) == ["no codex · 1 tokens cached, 2 computed"]
    notice = (
        "no model is configured, so this is the quoting self-test model: it only continues text; model.threads is 9"
    )
    line = answer_footer({"model": "builtin:quoter", "notice": notice})[-1]
    assert line.startswith("no model is configured: builtin:quoter only quotes; a real model: ")
    assert line.endswith("; model.threads is 9")
