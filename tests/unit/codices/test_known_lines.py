"""How a change of a large file is told: by whole definitions, or by a few lines around it."""

import pytest

from codex.documents import Document
from orchestrator.codices.known_lines import changed_parts, laid_over

BODY = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(200))
CODE = f"import os\nimport sys\n\nLIMIT = 10\n\n\n{BODY}"


def told(old: str, new: str, name: str = "a.py") -> str | None:
    return changed_parts(Document(name, old, "1", len(old)), Document(name, new, "2", len(new)))


def test_a_changed_import_is_told_with_a_few_lines_around_it() -> None:
    text = told(CODE, CODE.replace("import sys", "import re\nimport sys"))
    assert text == "lines 1-5, in place of lines 1-4:\nimport os\nimport re\nimport sys\n\nLIMIT = 10\n"


def test_a_line_in_a_function_is_told_by_the_whole_function_and_what_it_stands_for() -> None:
    new = CODE.replace("import sys\n", "").replace("return value + 150\n", "value += 1\n    return value\n")
    text = told(CODE, new)
    assert text == (
        "lines 1-4, in place of lines 1-5:\nimport os\n\nLIMIT = 10\n\n\n"
        "lines 606-608, function_150, in place of lines 607-608:\n"
        "def function_150(value):\n    value += 1\n    return value\n"
    )


def test_a_constant_that_was_removed_right_above_a_definition_is_not_hidden_by_it() -> None:
    old = CODE.replace("def function_7(", "SEVEN = 7\ndef function_7(")
    text = told(old, CODE)
    assert text is not None
    assert laid_over(old, text) == CODE


def test_a_line_in_a_very_long_definition_is_told_with_a_few_lines_around_it() -> None:
    old = "class Long:\n" + "".join(f"    field_{number} = {number}\n" for number in range(500))
    text = told(old, old.replace("field_250 = 250", "field_250 = 0"))
    assert text is not None
    assert text.startswith("lines 249-255, in place of lines 249-255:\n")
    assert "field_250 = 0" in text


def test_prose_and_settings_are_told_by_lines_too() -> None:
    old = "".join(f"Sentence number {number}.\n" for number in range(300))
    text = told(old, old.replace("number 100.", "number one hundred."), "README.md")
    assert text is not None
    assert text.startswith("lines 98-104, in place of lines 98-104:\n")


def test_changes_whose_surroundings_touch_are_one_part() -> None:
    old = "".join(f"key_{number} = {number}\n" for number in range(300))
    text = told(old, old.replace("key_50 = 50\n", "key_50 = 0\n").replace("key_56 = 56\n", ""), "settings.ini")
    assert text is not None
    assert text.count("in place of") == 1
    assert text.startswith("lines 48-59, in place of lines 48-60:\n")


def test_a_file_that_changed_nearly_everywhere_is_told_whole() -> None:
    assert told(CODE, CODE.replace("return value", "return -value")) is None


def test_parts_that_do_not_fit_what_was_told_are_refused() -> None:
    with pytest.raises(ValueError, match="did not have"):
        laid_over("one\n", "lines 1-1, in place of lines 4-9:\ntwo\n")
    with pytest.raises(ValueError, match="no part begins"):
        laid_over("one\n", "lines 5-6, go:\ndef go():\n    return 1\n")
