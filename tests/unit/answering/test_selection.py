"""Where the user is, as the model is told of it."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from codex.catalog.generations import FileEntry, Generation
from codex.citations import Files
from codex.trees.port import TreeState
from formatters.context import CodexView
from orchestrator.answering.selection import Passage, lines_of, pointed, pointing
from orchestrator.codices.state import CodexState
from orchestrator.prompt.coverage import Coverage, CoverageDecision, CoverageSizes

TEXT = "import os\n\n\ndef run():\n    return os.name\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()


def standing():
    generation = Generation("demo", 1, TreeState(), (FileEntry("src/app/main.py", DIGEST, len(TEXT)),))
    return CodexState(
        name="demo",
        roots=("/src/demo",),
        generation=generation,
        view=CodexView(name="demo", root="/src/demo", generation=1),
        sizes=CoverageSizes(10, None, None),
        decision=CoverageDecision(Coverage.FULL, 1, 10, 100, "it fits"),
        tokens=10,
        files=Files({"src/app/main.py": 5}),
    )


def told(client, stands=True, text=TEXT):
    found = pointed(client, standing() if stands else None, lambda path, digest: text)
    return found.attachment.text if found else None


def test_a_selection_that_stands_in_the_codex_is_told_with_its_lines_under_the_codex_s_name():
    said = told({"file": "/src/demo/src/app/main.py", "selection": "def run():\n    return os.name\n"})
    assert said.startswith("The user has src/app/main.py open. Selected is src/app/main.py:4-5:\n\ndef run():")


def test_a_selection_that_was_not_saved_is_told_without_lines():
    assert "Selected is:\n\nx = 2" in told({"file": "main.py", "selection": "x = 2"})


def test_a_file_alone_is_named_and_one_outside_of_the_codex_as_it_was_given():
    assert told({"file": "main.py"}) == "The user has src/app/main.py open."
    assert told({"file": "/tmp/other.py"}) == "The user has /tmp/other.py open."
    assert told({"file": "main.py"}, stands=False) == "The user has main.py open."


def test_a_selection_without_a_file_is_told():
    assert told({"selection": "x = 1\n"}) == "Selected is:\n\nx = 1"


def test_a_selection_that_stands_in_the_codex_goes_with_its_place():
    client = {"file": "main.py", "selection": "\ndef run():\n    return os.name\n"}
    found = pointed(client, standing(), lambda path, digest: TEXT)
    assert found.selection == Passage("src/app/main.py", 4, "def run():\n    return os.name")


def test_a_selection_that_was_not_saved_or_of_no_file_of_the_codex_has_no_place():
    for client in ({"file": "main.py", "selection": "x = 2"}, {"selection": "def run():"}, {"file": "main.py"}):
        assert pointed(client, standing(), lambda path, digest: TEXT).selection is None


def test_a_terminal_tells_nothing():
    assert not pointing({"cwd": "/src"})
    assert told({"file": " \n", "selection": " "}) is None


def test_a_name_of_two_lines_is_one_line():
    assert told({"file": "a\nb.py"}) == "The user has a b.py open."


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=8), st.data())
def test_the_lines_are_those_at_which_the_selection_stands(lines, data):
    text = "".join(f"{line}\n" for line in lines)
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start, len(lines) - 1))
    selection = "\n".join(lines[start : end + 1])
    places = [at for at in range(len(text)) if text.startswith(selection, at)]
    expected = (start + 1, end + 1) if len(places) == 1 else None
    assert lines_of(selection, text) == expected
