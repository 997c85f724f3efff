"""Laws of known lines: wherever a line that was shown is said to be now, it is, and no other line is said to be known."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codex.documents import Document, lines
from codex.following.amendments import Amendment, ChangeKind
from formatters.context import CodexPiece
from orchestrator.codices.known_lines import MOVED, base_of, heads_in, known_now, moved_heads, parts_of, span_now

WORDS = st.sampled_from(["", "import os", "class A:", "    x = 1", "    def f(self):", "        return 1", "def g():"])
TEXTS = st.lists(WORDS, min_size=1, max_size=40).map(lambda kept: "".join(f"{line}\n" for line in kept))
SHOWN = st.sets(st.integers(1, 40), min_size=1)
PATH = "a.py"


def document(text: str) -> Document:
    return Document(PATH, text, "d", len(text))


def log_of(texts: list[str]) -> list[Amendment]:
    """Every state after the first told by its parts, where it differs."""
    log: list[Amendment] = []
    for old, new in pairwise(texts):
        if old != new:
            told = "\n".join(part.written() for part in parts_of(document(old), document(new)))
            log.append(Amendment(len(log) + 1, PATH, ChangeKind.CHANGED, "d", told, whole=False))
    return log


def skeleton(text: str, shown: set[int]) -> CodexPiece:
    rows = [f"{number} {line}" for number, line in enumerate(lines(text), start=1) if number in shown]
    return CodexPiece(path=PATH, text="".join(f"{row}\n" for row in rows), kind="skeleton")


@given(st.lists(TEXTS, min_size=1, max_size=5), SHOWN)
def test_what_is_known_is_what_a_reader_knows_who_moves_each_line_by_hand(texts: list[str], shown: set[int]) -> None:
    known = known_now(PATH, base_of([skeleton(texts[0], shown)]), log_of(texts))
    by_hand = [(line, number in shown) for number, line in enumerate(lines(texts[0]), start=1)]
    for old, new in pairwise(texts):
        kept, at = [], 0
        for part in parts_of(document(old), document(new)) if old != new else ():
            kept += [*by_hand[at : part.old_start], *((line, True) for line in part.text)]
            at = part.old_end
        by_hand = [*kept, *by_hand[at:]]
    assert [line for line, _ in by_hand] == lines(texts[-1])
    numbers = {head.number for head in known.heads}
    numbers |= {number for start, end in known.spans for number in range(start, end + 1)}
    assert numbers == {number for number, (_, is_known) in enumerate(by_hand, start=1) if is_known}
    assert all(lines(texts[-1])[head.number - 1] == head.behind[1:] for head in known.heads)


@given(TEXTS, TEXTS, st.integers(1, 40), st.integers(1, 40))
def test_a_span_moves_as_each_of_its_lines_does(old: str, new: str, one: int, other: int) -> None:
    parts = parts_of(document(old), document(new))
    first, last = min(one, other), max(one, other)
    single = [moved for number in range(first, last + 1) for moved in span_now((number, number), parts)]
    together = span_now((first, last), parts)
    assert [number for start, end in together for number in range(start, end + 1)] == [start for start, _ in single]


@given(st.lists(TEXTS, min_size=2, max_size=5), SHOWN)
def test_what_was_told_of_moved_lines_stays_when_the_log_grows_and_leads_to_where_they_are(
    texts: list[str], shown: set[int]
) -> None:
    pieces, log = [skeleton(texts[0], shown)], log_of(texts)
    told = moved_heads(pieces, log)
    for count in range(len(log)):
        assert moved_heads(pieces, log[:count]) == {number: text for number, text in told.items() if number <= count}
    for number, text in told.items():
        known = known_now(PATH, base_of(pieces), log[:number])
        assert text.startswith(f"{MOVED}\n")
        assert set(heads_in(text)) <= set(known.heads)


def test_many_lines_that_moved_are_told_by_how_much() -> None:
    old = "".join(f"def f{number}(): ...\n" for number in range(100))
    new = old.replace("def f0(): ...\n", "import os\nimport re\ndef f0(): ...\n").replace("def f50(): ...\n", "")
    log = log_of([old, new])
    (text,) = moved_heads([skeleton(old, set(range(1, 101)))], log).values()
    assert text == f"{MOVED} 4-47 by +2, 55-100 by +1\n"
    (short,) = moved_heads([skeleton(old, {2, 90, 91})], log).values()
    assert short == f"{MOVED}\n91 def f89(): ...\n92 def f90(): ...\n"


def test_listed_lines_are_told_as_the_skeleton_indents_them() -> None:
    text = "3 class App\n7   def route(self)\n"
    entry = Amendment(1, PATH, ChangeKind.CHANGED, "d", "lines 1-2, added behind line 0:\n#\n#\n", whole=False)
    pieces = [CodexPiece(path=PATH, text=text, kind="skeleton"), CodexPiece(path="b.py", text="9 lives", kind="line")]
    assert moved_heads(pieces, [entry]) == {1: f"{MOVED}\n5 class App\n9   def route(self)\n"}
    assert moved_heads(pieces[1:], [replace(entry, path="b.py")]) == {}, "a line lists no lines"
    assert moved_heads(pieces, [replace(entry, whole=True)]) == {}
    assert moved_heads([CodexPiece(path=PATH, text="x\n" * 9)], [entry]) == {}
