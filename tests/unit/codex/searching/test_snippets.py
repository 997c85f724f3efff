"""The lines shown of a chunk, and where the first of them stands."""

from hypothesis import given
from hypothesis import strategies as st

from codex.searching.search import snippet

TEXT = "# head\n\ndef one():\n    pass\n\ndef two():\n    walrus()\n"


def test_the_best_line_comes_first_and_its_place_is_told():
    assert snippet(TEXT, ["walrus"]) == (6, "    walrus()")
    assert snippet(TEXT, [])[0] == 0


@given(st.lists(st.sampled_from(["", " ", "a", "b walrus", "walrus a"]), max_size=20), st.sampled_from(["a", "walrus"]))
def test_the_first_line_shown_is_the_line_at_its_place(lines, word):
    before, shown = snippet("\n".join(lines), [word])
    if shown:
        assert shown.split("\n")[0] == lines[before]
