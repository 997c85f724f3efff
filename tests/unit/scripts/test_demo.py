"""The demo asks what the codebase answers, and draws the prompt to scale."""

from pathlib import Path

from demo import brought_back, compare, on_path
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


def test_two_times_are_told_with_what_each_question_found(capsys):
    blocks = [block("identity", 48, 48), block("codex", 6660, 6660), block("query", 6, 0)]
    compare({"blocks": blocks, "timings": {"ttft_ms": 4779.0}}, {"timings": {"ttft_ms": 58.0}}, "asked again")
    assert capsys.readouterr().out.splitlines() == [
        "  time to the first token of a new conversation:",
        "      4,779 ms  asked right after the load, which computes a prefix of 6,708 tokens",
        "         58 ms  asked again",
    ]


def test_the_last_line_makes_lore_a_command_where_it_is_none():
    assert on_path(Path("/a/.venv"), "/usr/bin:/bin") == "Yours: . /a/.venv/bin/activate && lore serve"
    assert on_path(Path("/a/.venv"), "/usr/bin:/a/.venv/bin") == "Yours: lore serve"


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
    counters = {"tier_restored_tokens": 8030, "tier_restored_bytes": 3 << 19, "computed_tokens": 12}
    assert brought_back(counters) == "restored from disk: 8,030 tokens, 1.5 MiB; computed: 12"
