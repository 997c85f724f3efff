"""Which files a question names."""

import pytest

from orchestrator.context.naming import named_documents

PATHS = ("README.md", "src/a.py", "src/b.py", "src/deep/a.py", "Makefile", "lib/only.rs")


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("what does src/a.py do?", ("src/a.py",)),
        ("what does ./src/a.py do?", ("src/a.py",)),
        ("look at deep/a.py.", ("src/deep/a.py",)),
        ("explain b.py and only.rs", ("src/b.py", "lib/only.rs")),
        ("is `README.md` right?", ("README.md",)),
        ("see src\\b.py:12", ("src/b.py",)),
        ("explain a.py", ()),
        ("explain the loop", ()),
        ("what is 1.5 and e.g. this?", ()),
        ("", ()),
    ],
)
def test_a_file_is_named_by_its_path_or_by_a_name_of_its_own(question: str, named: tuple[str, ...]) -> None:
    assert named_documents(question, PATHS) == named


def test_a_question_that_names_everything_names_a_few() -> None:
    paths = tuple(f"f{place}.py" for place in range(30))
    assert len(named_documents(" ".join(paths), paths)) == 8
