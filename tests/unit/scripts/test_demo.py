"""The demo asks what the codebase answers, and draws the prompt to scale."""

from demo import brought_back, how_cold
from demo_picture import picture
from demo_quotes import Quote, quotes

CODE = '''
class Signal:
    """A notification emitter that keeps a list of receivers for it."""

    # Receivers are called in no particular order by this method here.
    def send(self): return [1]
'''


def test_a_question_is_the_beginning_of_a_sentence_that_stands_once(tmp_path):
    (tmp_path / "a.py").write_text(CODE)
    assert quotes(tmp_path, 2) == [
        Quote("a.py", 3, "A notification emitter that keeps a", "list of receivers for it."),
        Quote("a.py", 5, "Receivers are called in no particular", "order by this method here."),
    ]


def test_what_stands_twice_is_never_asked(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(CODE)
    assert quotes(tmp_path, 2) == []


def test_a_first_question_that_found_tokens_is_not_called_cold():
    assert how_cold(0) == "cold"
    assert how_cold(4189) == "first (4,189 tokens stood since the load)"


def block(kind, tokens, cached, source="vram"):
    return {"kind": kind, "tokens": tokens, "cached": cached, "from": source}


def test_a_bar_is_solid_where_tokens_came_from_the_cache_and_hollow_where_they_were_computed():
    lines = list(picture({"blocks": [block("codex", 100, 50), block("query", 10, 0), block("karma", 0, 0)]}))
    assert lines[0].count("█") == lines[0].count("░") == 24
    assert "50 cached, 50 computed" in lines[0]
    assert lines[1].count("░") == 5
    assert lines[2].endswith("empty")


def test_a_cached_block_says_from_which_tier():
    assert "cached (disk)" in next(picture({"blocks": [block("codex", 100, 100, "disk")]}))


def test_even_one_token_beside_thousands_has_a_bar():
    lines = list(picture({"blocks": [block("codex", 100_000, 100_000), block("query", 1, 0)]}))
    assert "░" in lines[1]


def test_what_came_back_is_told_in_tokens_and_bytes():
    cache = {"tiers": {"disk": {"tokens": 8030}}, "restores": {"bytes": 3 << 19}, "tokens": {"computed": 0}}
    assert brought_back(cache) == "restored from disk: 8,030 tokens, 1.5 MiB; computed: 0"
