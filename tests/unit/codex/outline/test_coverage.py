"""Lines, skeletons, and which file gets how much."""

from codex.documents import Document, lines
from codex.outline.coverage import FileLevel, FileSigns, GradedFile, levels, skeleton, summary_line, values
from codex.outline.symbols import outline

TEXT = '''"""A module."""
LIMIT = 3


class App(Base):
    """The application.

    More."""

    def run(self, host: str = "x") -> None:
        """Runs it."""

        def inner():
            pass


def _helper(a, b):
    return a
'''


def document(path: str, text: str) -> Document:
    return Document(path, text, "", len(text))


def test_a_skeleton_is_signatures_and_first_doc_lines_with_their_lines() -> None:
    assert skeleton(document("a.py", TEXT)) == (
        "2 LIMIT = 3\n"
        "5 class App(Base): The application.\n"
        '10   def run(self, host: str = "x") -> None: Runs it.\n'
        "17 def _helper(a, b)\n"
    )


def test_every_line_number_of_a_skeleton_leads_to_its_definition() -> None:
    for line in skeleton(document("a.py", TEXT)).splitlines():
        number, rest = line.split(" ", 1)
        assert lines(TEXT)[int(number) - 1].strip().startswith(rest.strip().split("(")[0].split(" =")[0].split(":")[0])


def test_text_without_definitions_is_shown_by_headings_or_first_lines() -> None:
    assert skeleton(document("README", "Title\n=====\n\nIntro.\n")) == "1 Title: Intro.\n"
    assert skeleton(document("notes.txt", "\nfirst\n\nsecond\nthird\nfourth\n")) == "2 first\n4 second\n5 third\n"
    assert skeleton(document("empty.txt", "")) == ""


def test_data_is_shown_by_its_first_lines_not_by_its_keys() -> None:
    assert skeleton(document("a.json", '{"a": 1,\n "b": 2}\n')) == '1 {"a": 1,\n2 "b": 2}\n'


def test_skeletons_are_the_same_every_time() -> None:
    one = document("a.py", TEXT)
    assert skeleton(one) == skeleton(one, outline(one))


def test_a_line_names_what_is_defined_for_others_first() -> None:
    one = document("a.py", TEXT)
    assert summary_line(one, outline(one)) == "LIMIT, App, _helper"
    many = document("b.py", "".join(f"def function_{number}(): ...\n" for number in range(9)))
    assert summary_line(many, outline(many)) == "function_0, function_1, function_2, function_3, function_4, …"
    notes = document("notes.txt", "\n  first words \nmore\n")
    assert summary_line(notes, outline(notes)) == "first words"
    assert summary_line(document("empty.txt", ""), outline(document("empty.txt", ""))) == ""


def test_bodies_go_to_the_most_valuable_for_a_token_and_what_does_not_fit_leaves_its_room() -> None:
    signs = [
        FileSigns("big.py", 1, churn=9),
        FileSigns("asked.py", 1, touched=1),
        FileSigns("b.py", 1),
        FileSigns("a.py", 1),
    ]
    worth = values(signs)
    costs = {"big.py": 900, "asked.py": 300, "b.py": 200, "a.py": 200}
    files = [GradedFile(path, worth[path], (0, 0, cost)) for path, cost in costs.items()]
    outlines = dict.fromkeys(costs, FileLevel.SKELETON)

    def whole(budget: int) -> list[str]:
        return sorted(path for path, level in levels(files, budget, outlines).items() if level is FileLevel.FULL)

    assert whole(1_000) == ["a.py", "asked.py", "b.py"]
    assert whole(400) == ["asked.py"]
    assert whole(250) == ["a.py"]
    assert whole(0) == []


def test_tests_come_behind_what_they_test_and_what_a_program_wrote_behind_both() -> None:
    worth = values(
        [FileSigns("a.py", 1, role=1.0), FileSigns("test_a.py", 1, role=0.8), FileSigns("a_pb2.py", 1, role=0.4)]
    )
    assert sorted(worth, key=lambda path: -worth[path]) == ["a.py", "test_a.py", "a_pb2.py"]
