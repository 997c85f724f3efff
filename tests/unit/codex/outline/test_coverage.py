"""Skeletons and hot files."""

from hypothesis import given
from hypothesis import strategies as st

from codex.documents import Document, lines
from codex.outline.coverage import Heat, hot, skeleton
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


def test_the_hottest_fill_the_budget_and_what_does_not_fit_leaves_its_room() -> None:
    files = [Heat("big.py", 900, churn=9), Heat("asked.py", 300, touched=1), Heat("b.py", 200), Heat("a.py", 200)]
    assert hot(files, 1_000) == ("asked.py", "a.py", "b.py")
    assert hot(files, 1_300) == ("asked.py", "big.py")
    assert hot(files, 0) == ()


@given(
    st.lists(st.builds(Heat, st.text("abc", min_size=1, max_size=3), st.integers(0, 50), *[st.floats(0, 9)] * 3)),
    st.integers(0, 200),
)
def test_hot_files_never_exceed_the_budget_nor_depend_on_the_order_given(files: list[Heat], budget: int) -> None:
    files = list({one.path: one for one in files}.values())
    chosen = hot(files, budget)
    cost = {one.path: one.tokens for one in files}
    assert sum(cost[path] for path in chosen) <= budget
    assert hot(list(reversed(files)), budget) == chosen
