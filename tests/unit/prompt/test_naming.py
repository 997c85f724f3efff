"""Which files a question names."""

import pytest

from orchestrator.prompt.naming import named_documents

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


def test_what_is_too_long_for_a_name_is_none_and_hides_none_beside_it() -> None:
    assert named_documents(f"{'a/' * 6_000}b.py and b.py, see {'.' * 12_000}", PATHS) == ("src/b.py",)


def test_a_path_is_found_by_each_of_its_ends_and_by_no_piece_of_a_name() -> None:
    paths = ("x/src/deep/a.py", "y/src/deep/a.py")
    assert named_documents("x/src/deep/a.py", paths) == paths[:1]
    assert named_documents("src/deep/a.py or deep/a.py", paths) == paths
    assert named_documents("eep/a.py", paths) == ()
