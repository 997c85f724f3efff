"""Unseen and cited questions are made as their notes say, tools answer alike, and a peer that cannot be had says so."""

import json
import subprocess
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
import run
from code_questions.citing import cited, questions
from code_questions.floor import Floor
from hypothesis import given
from hypothesis import strategies as st
from peers import environments, worker
from peers.contender import OURS, running
from peers.corpus import first_bytes, written
from unseen import FLOOR, Asked, groups, lost, told
from unseen_questions.changes import Note, changes, django_notes, plain, sqlalchemy_notes
from unseen_questions.names import asked_by_docstring, asked_by_name, definitions, first_sentence, without
from unseen_questions.questions import Question, Repository, drawn
from unseen_questions.repositories import SQLALCHEMY, made

from codex.documents import Document, document_from

REPOSITORY = Repository("shop", "1", "lib/")
DJANGO_NOTES = """
* Fixed a crash of ``Model.full_clean()`` on models with a field
  (:ticket:`35127`).

* Two at once (:ticket:`1001`, :ticket:`1002`).

Other heading
=============
"""
SQLALCHEMY_NOTES = """
.. changelog::

    .. change::
        :tags: bug, orm
        :tickets: 12748

        Fixed issue where :paramref:`_orm.Mapper.version_id` was ignored, see #9999 and 12001.
        Pull request courtesy Somebody.

    .. change::
        :tags: bug
        :tickets: 1, 2

        Two at once.
"""


def document(path: str, text: str) -> Document:
    made = document_from(path, text.encode())
    assert made is not None
    return made


def question(kind: str = "name", text: str = "?", package: str = "shop") -> Question:
    return Question(package, kind, text, ("a.py",))


# ---- questions from cited answers ------------------------------------------------------------------------------------

PATHS = ("src/app/main.py", "src/app/forms.py", "src/lib/forms.py", "tests/test_main.py")


def test_an_answer_cites_the_files_that_it_names_so_that_no_other_can_be_meant():
    answer = "See `src/app/main.py` (lines 3-9), test_main.py and ./src/lib/forms.py; not forms.py, x.py or ain.py."
    assert cited(answer, PATHS) == ("src/app/main.py", "src/lib/forms.py", "tests/test_main.py")
    assert cited("forms.py", PATHS) == ()


def test_the_lines_of_a_question_are_the_definitions_that_its_answer_names_as_code(tmp_path):
    text = "class Cart:\n    size = 0\n    def add(self):\n        pass\n    def drop(self):\n        pass\n"
    rows = [
        {"question": "How?", "answer": "`Cart.add()` of shop.py and `Cart`, not drop."},
        {"question": "Which?", "answer": "None."},
    ]
    (tmp_path / "Benchmark").mkdir()
    (tmp_path / "Benchmark" / "shop.jsonl").write_text("\n".join(map(json.dumps, rows)))
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "questions")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (one,) = questions(tmp_path, "shop", [document("lib/shop.py", text)])
    assert (one.text, one.files) == ("How?", ("lib/shop.py",))
    assert one.lines == {("lib/shop.py", line) for line in (1, 2, 3, 4)}


def test_the_floor_reads_windows_of_sixty_lines_the_best_first():
    floor = Floor([document("a.py", "x = 1\n" * 60 + "walrus = 2\n"), document("b.py", "y = 1\n")])
    assert floor.windows("Where is walrus?") == [("a.py", range(61, 121))]
    assert floor.files("Where is walrus?") == ["a.py"]


# ---- questions from changelogs ---------------------------------------------------------------------------------------


def test_a_checkout_stands_in_for_the_source_distribution(tmp_path):
    log, source = tmp_path / "doc/build/changelog/changelog_20.rst", tmp_path / "lib/mapper.py"
    for path, text in ((log, SQLALCHEMY_NOTES), (source, "version_id = 1  # see #12748\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    what = made(SQLALCHEMY, 1, tmp_path)
    assert [one.path for one in what.documents] == ["lib/mapper.py"]
    assert [(one.kind, one.files) for one in what.questions] == [("change", ("lib/mapper.py",))]


@pytest.mark.parametrize("text", ["", "sqlalchemy", "sqlalchemy=", "=.", "sqlalchemy=/nowhere"])
def test_a_checkout_is_a_package_and_a_folder(text):
    with pytest.raises(ArgumentTypeError, match="is no package and folder"):
        run.checkout(text)


def test_a_django_note_is_its_prose_and_its_ticket():
    assert list(django_notes(DJANGO_NOTES)) == [
        Note("35127", "Fixed a crash of Model.full_clean() on models with a field.")
    ]


def test_a_sqlalchemy_note_loses_markup_numbers_of_tickets_and_thanks():
    assert list(sqlalchemy_notes(SQLALCHEMY_NOTES)) == [
        Note("12748", "Fixed issue where orm.Mapper.version_id was ignored, see and.")
    ]


def test_a_note_ends_where_a_directive_begins():
    assert plain("Said before.\n\n.. seealso::\n\n    :ref:`x`") == "Said before."


def test_a_note_is_answered_by_the_source_that_names_its_ticket():
    corpus = [document("lib/a.py", "# see #1234"), document("test/t.py", "'''test #1234'''")]
    asked = list(changes(REPOSITORY, [Note("1234", "one two three four five six seven eight")], corpus))
    assert [(one.kind, one.files) for one in asked] == [("change", ("lib/a.py",))]


def test_a_note_that_only_tests_name_is_asked_twice_once_for_tests():
    corpus = [document("test/t.py", "'''test #1234'''")]
    plainly, for_tests = changes(REPOSITORY, [Note("1234", "one two three four five six seven eight")], corpus)
    assert (plainly.kind, for_tests.kind) == ("change, in tests", "change, tests asked for")
    assert for_tests.text == f"Which tests check this change? {plainly.text}"


def test_a_ticket_that_many_files_name_is_no_question():
    corpus = [document(f"lib/{n}.py", "#1234") for n in range(4)]
    assert not list(changes(REPOSITORY, [Note("1234", "one two three four five six seven eight")], corpus))


# ---- questions from definitions --------------------------------------------------------------------------------------

CODE = '''\
class Cart:
    """Holds what a customer has chosen until it is paid. And more.

    Details.
    """


def total_price(cart):
    """Sum of all prices with taxes and without discounts."""
    return sum(cart)
'''


def test_a_docstring_is_asked_by_its_first_sentence_and_gone_from_the_corpus():
    cart = document("lib/cart.py", CODE)
    asked = dict(asked_by_docstring(REPOSITORY, list(definitions(cart))))
    assert [one.text for one in asked] == [
        "Holds what a customer has chosen until it is paid.",
        "Sum of all prices with taxes and without discounts.",
    ]
    left = without(cart, list(asked.values()))
    assert left.text == "class Cart:\n    pass\n\n\ndef total_price(cart):\n    return sum(cart)\n"


def test_a_sentence_that_stands_twice_is_no_question():
    twice = [one for path in ("lib/a.py", "lib/b.py") for one in definitions(document(path, CODE))]
    assert not list(asked_by_docstring(REPOSITORY, twice))


def test_docstrings_of_tests_and_private_definitions_are_not_asked_by():
    tests = list(definitions(document("lib/tests/test_cart.py", CODE)))
    private = list(definitions(document("lib/cart.py", CODE.replace("total_price", "_total").replace("Cart", "_Cart"))))
    assert not list(asked_by_docstring(REPOSITORY, tests))
    assert not list(asked_by_docstring(REPOSITORY, private))


def test_a_name_is_asked_for_where_one_place_defines_it_and_five_others_use_it():
    corpus = [document("lib/cart.py", CODE), *(document(f"test/{n}.py", "total_price([])") for n in range(5))]
    defined = [one for each in corpus for one in definitions(each)]
    assert list(asked_by_name(REPOSITORY, defined, corpus)) == [
        Question("shop", "name", "Where is total_price defined?", ("lib/cart.py",))
    ]
    assert not list(asked_by_name(REPOSITORY, defined, corpus[:-1]))


def test_a_file_that_is_no_python_defines_nothing():
    assert not list(definitions(document("lib/broken.py", "def (:")))


def test_a_first_sentence_has_no_markup():
    assert first_sentence("Return a ``str`` of :class:`.Thing`. Then more.\n\nMore.") == "Return a str of Thing."


@given(st.lists(st.builds(question, text=st.text(max_size=3)), max_size=30), st.integers(0, 10), st.randoms())
def test_a_draw_depends_on_the_questions_and_not_on_their_order(questions, number, shuffler):
    mixed = list(questions)
    shuffler.shuffle(mixed)
    assert drawn(questions, number) == drawn(mixed, number)
    assert len(drawn(questions, number)) == min(number, len(set(questions)))


# ---- scores ----------------------------------------------------------------------------------------------------------


def asked(kind: str, ours: list[str], floor: list[str]) -> Asked:
    return Asked(question(kind), {OURS.name: ours, FLOOR: floor})


def test_figures_are_grouped_by_repository_and_then_by_kind():
    assert {name: len(some) for name, some in groups([asked("name", [], []), asked("change", [], [])]).items()} == {
        "shop: change": 1,
        "shop: name": 1,
        "change": 1,
        "name": 1,
    }


def test_a_question_is_lost_when_the_floor_ranks_it_better():
    behind = asked("name", ["b.py", "a.py"], ["a.py"])
    assert lost(behind)
    assert told(behind).endswith("answer a.py: ours 2, floor 1; first b.py, a.py")
    assert not lost(asked("name", ["a.py"], ["a.py"]))


# ---- tools -----------------------------------------------------------------------------------------------------------


class Remembering:
    def index(self, root: Path, store: Path) -> None:
        pass

    def search(self, query: str, n: int) -> list[str]:
        return [query] * n


def test_a_worker_answers_every_request_with_its_own_seconds():
    assert worker.answer(Remembering(), {"do": "index", "root": "/r", "store": "/s"})["seconds"] >= 0
    assert worker.answer(Remembering(), {"do": "search", "query": "x", "n": 2})["files"] == ["x", "x"]
    assert worker.answer(Remembering(), {"do": "peak"})["bytes"] > 1_000_000
    with pytest.raises(ValueError, match="no such request: dance"):
        worker.answer(Remembering(), {"do": "dance"})


def test_our_own_tool_finds_what_was_written_after_the_first_index(tmp_path):
    root = written([document("lib/cart.py", CODE), document("lib/other.py", "x = 1\n")], tmp_path / "shop")
    with running(OURS, tmp_path) as ours:
        assert ours.index(root, tmp_path / "store") > 0
        assert ours.search("customer", 5).files == ["lib/cart.py"]
        (root / "lib/other.py").write_text("def freshly_written():\n    return 1\n")
        ours.index(root, tmp_path / "store")
        assert ours.search("freshly_written", 5).files == ["lib/other.py"]
        assert ours.peak() > 1_000_000


def test_what_cannot_be_installed_is_named_with_pips_last_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        environments.NotInstalled, match=r"^tantivy cannot be installed here: .*No matching distribution"
    ):
        environments.python_of("tantivy")
    assert not list((tmp_path / "lorekeep-build" / "peers").iterdir())


def test_a_corpus_is_cut_at_a_file():
    corpus = [document(name, "x" * 40) for name in ("c.py", "a.py", "b.py")]
    assert [one.path for one in first_bytes(corpus, 100)] == ["a.py", "b.py"]
    assert first_bytes(corpus, 39) == []
