"""Tokens from a sample: near what counting gives, marked where they are told, and nothing is stored for them."""

import re
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.library import SAMPLE_FILES, SAMPLE_HEAD, Library, SampledFile, draw_sample, sample_head, scale_up
from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec
from orchestrator.codices.coverages import surveyed, whole_tokens
from orchestrator.codices.loading import known_from
from orchestrator.codices.report import tokens_of
from orchestrator.prompt.coverage import CoverageSizes, FloorRoom, decide_coverage

STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
WORD = re.compile(r"\w+|[^\w\s]|\n")


def count(texts):
    return [len(WORD.findall(text)) for text in texts]


@pytest.fixture
def library(tmp_path):
    opened = Library(tmp_path / "library")
    yield opened
    opened.close()


def test_an_estimate_is_near_what_counting_gives(library):
    """On the standard library's own modules, of very different lengths."""
    request = LoadSpec((str(STANDARD_LIBRARY),), "std", globs=Globs(include=("/*.py",)))
    found = library.survey(request)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(STANDARD_LIBRARY.glob("*.py"))]
    exact = sum(count(texts))
    assert found.files > SAMPLE_FILES == len(found.sample)
    assert whole_tokens(found.sample, 0, found.bytes, count) == pytest.approx(exact, rel=0.1)


def test_what_a_load_would_leave_out_holds_no_tokens(library, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("a = 1\n" * 100)
    (code / "b").write_bytes(b"\0" * 600)
    found = library.survey(LoadSpec((str(code),), "it"))
    assert whole_tokens(found.sample, 0, found.bytes, count) == 400
    assert library.catalog.codices() == ()


def test_of_a_small_codebase_everything_is_in_the_sample(library, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    for number in range(5):
        (code / f"m{number}.py").write_text(f"def f{number}(x):\n" + "    x += 1\n" * number * 40)
    found = library.survey(LoadSpec((str(code),), "it"))
    exact = sum(count([path.read_text() for path in code.iterdir()]))
    assert whole_tokens(found.sample, 0, found.bytes, count) == pytest.approx(exact, abs=1)


def test_a_decision_on_estimated_figures_says_about():
    sizes = CoverageSizes(90_000, 9_000, 2_000, estimated=("full", "skeleton", "map"))
    decision = decide_coverage(sizes, FloorRoom(window=32_000, identity=0, kv_tokens=32_000))
    assert decision.reason == (
        "skeleton+hot, because about 90,000 tokens do not fit in the 22,400 that a window of 32,000 leaves"
    )


def test_counted_figures_are_not_called_estimates():
    sizes = CoverageSizes(1_000)
    assert "about" not in decide_coverage(sizes, FloorRoom(window=32_000, identity=0, kv_tokens=32_000)).reason


def test_all_tiers_of_a_survey_are_estimated(library, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("def f(x):\n" + "    x += 1\n" * 200)
    found = library.survey(LoadSpec((str(code),), "it"))
    sizes = surveyed(found.sample, found.files, found.bytes, count)
    assert sizes.skeleton is not None
    assert sizes.skeleton < 40 < sizes.full
    assert sizes.map is not None
    assert sizes.map < 40  # what it would hold, not what it may take
    small = FloorRoom(window=4_000, identity=0, kv_tokens=300)
    many = surveyed(found.sample, 100, found.bytes, count)
    assert tokens_of(many, decide_coverage(many, small)).map == 300


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=8), st.integers(0, 1 << 24)), max_size=300, unique_by=lambda x: x[0]
    )
)
def test_a_sample_is_bounded_never_empty_and_the_same_in_any_order(files):
    chosen = draw_sample(files, lambda one: one[0], lambda one: one[1])
    assert chosen == draw_sample(list(reversed(files)), lambda one: one[0], lambda one: one[1])
    assert len(chosen) <= SAMPLE_FILES
    assert bool(chosen) == bool(files)
    assert len(chosen) == 1 or sum(size for _, size in chosen) <= 8 << 20


@given(st.text(max_size=100), st.integers(1, 2_000))
def test_a_head_begins_the_text_and_ends_a_line_where_it_can(line, times):
    text = (line + "\n") * times
    begun = sample_head(text)
    assert text.startswith(begun)
    assert len(begun) <= SAMPLE_HEAD
    assert begun.endswith("\n")


def test_shares_are_weighed_by_size():
    assert scale_up([(100, 0.5), (300, 0.1)], 4_000) == 800
    assert scale_up([], 10) == 0


def test_figures_are_called_estimates_only_where_something_was_not_read():
    short, long = SampledFile("a.py", 6, "a = 1\n"), SampledFile("b.py", 90_000, "b = 1\n" * 15_000)
    assert known_from([short], 1) == "all its files were read"
    assert known_from([short], 3) == "estimated from 1 of 3 files"
    assert known_from([short, long], 2) == "estimated from the beginnings of all 2 files"


def test_an_estimate_that_fits_is_one_good_sentence():
    sizes = CoverageSizes(9_000, estimated=("full",))
    reason = decide_coverage(sizes, FloorRoom(window=32_000, identity=0, kv_tokens=32_000)).reason
    assert reason == "full, because about 9,000 tokens fit in 22,400 of a window of 32,000"
