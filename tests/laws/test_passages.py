"""Laws of how texts match a question: shares, order, and the words of the index itself."""

import sqlite3
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as some

from orchestrator.karma.passages import TOKENIZER, Candidate, Term, matches, stems, together, tokens, windows

WORDS = some.sampled_from(
    ["deploy", "deploys", "deployed", "cache", "caching", "health", "healthy", "mail", "Yes", "last", "week", "Käse"]
)
LINES = some.lists(WORDS, max_size=6).map(" ".join)
TEXTS = some.lists(LINES, min_size=1, max_size=4).map("\n".join)
CANDIDATES = some.lists(
    some.builds(Candidate, TEXTS, some.lists(LINES, max_size=2), some.lists(LINES, max_size=2)), min_size=1, max_size=6
)
TERMS = some.lists(some.builds(Term, WORDS.map(str.lower), some.floats(0.1, 9)), unique_by=lambda one: one.word)


@given(LINES, TERMS, CANDIDATES)
@settings(deadline=None)
def test_a_share_is_between_0_and_1_and_is_1_where_a_text_holds_every_word(
    question: str, terms: list[Term], candidates: list[Candidate]
) -> None:
    every = Candidate(" ".join(term.word for term in terms))
    *found, whole = matches(question, terms, [*candidates, every])
    assert all(0 <= one.similarity <= 1 + 1e-9 and one.strength >= 0 for one in found)
    assert not terms or abs(whole.similarity - 1) < 1e-9


@given(LINES, TERMS, CANDIDATES)
@settings(deadline=None)
def test_a_candidate_matches_as_it_does_in_any_order_of_them(
    question: str, terms: list[Term], candidates: list[Candidate]
) -> None:
    forth, back = matches(question, terms, candidates), matches(question, terms, candidates[::-1])[::-1]
    assert [round(one.strength, 9) for one in forth] == [round(one.strength, 9) for one in back]
    assert [one.similarity for one in forth] == [one.similarity for one in back]


@given(TERMS, TEXTS, LINES)
@settings(deadline=None)
def test_what_stands_beside_a_text_never_lessens_its_share(terms: list[Term], text: str, beside: str) -> None:
    alone, answered = (matches("", terms, [one])[0].similarity for one in (Candidate(text), Candidate(text, [beside])))
    assert answered >= alone


@given(some.permutations(["cache", "deploy", "health", "mail", "week"]))
def test_words_in_a_row_as_in_the_question_are_stronger_than_the_same_words_apart(words: list[str]) -> None:
    terms = [Term(word, 1.0) for word in words]
    said, apart, other = " ".join(words), " ".join([*words[::2], *words[1::2]]), Candidate("nothing of it")
    inside, outside, _ = matches(f"Which {said} was it?", terms, [Candidate(said), Candidate(apart), other])
    assert inside.strength > outside.strength
    assert inside.similarity == outside.similarity
    the_same = matches("", terms, [Candidate(said), Candidate(apart), other])
    assert abs(the_same[0].strength - the_same[1].strength) < 1e-9


@given(some.lists(some.floats(0, 9), min_size=1, max_size=9), some.integers(0, 8), some.floats(0, 9))
def test_of_several_lines_each_that_answers_better_counts_and_none_makes_a_text_better_than_its_best(
    scores: list[float], place: int, more: float
) -> None:
    place %= len(scores)
    better = [*scores[:place], scores[place] + more, *scores[place + 1 :]]
    assert together(scores) <= together(better) + 1e-9
    assert max(scores) / 2 <= together(scores) <= max(scores) + 1e-9
    assert together([more]) == more


@given(some.lists(some.floats(0, 9), max_size=9))
def test_every_passage_gives_its_neighbours_the_same_share(scores: list[float]) -> None:
    assert windows(scores) == windows(scores[::-1])[::-1] or len(scores) > 2
    assert all(after >= before for before, after in zip(scores, windows(scores), strict=True))
    lone = windows([0, 0, 0, 1, 0, 0, 0])
    assert lone == [0, 0.2, 0.5, 1, 0.5, 0.2, 0]


@given(some.lists(some.text(max_size=12), max_size=5))
@settings(deadline=None)
def test_a_text_has_the_words_and_stems_that_the_index_has(texts: list[str]) -> None:
    """But for what is neither letter nor digit to Python and part of a word to the index, or the other way round."""
    plain = ["".join(sign for sign in text if sign.isascii()) for text in texts]
    with closing(sqlite3.connect(":memory:")) as small:
        small.execute(f"CREATE VIRTUAL TABLE one USING fts5 (text, tokenize = '{TOKENIZER}')")
        small.execute("CREATE VIRTUAL TABLE each USING fts5vocab (one, instance)")
        small.executemany("INSERT INTO one VALUES (?)", [(text.replace("\0", " "),) for text in plain])
        indexed = {row: [] for row in range(1, len(plain) + 1)}
        for term, row in small.execute("SELECT term, doc FROM each ORDER BY doc, offset"):
            indexed[row].append(term)
    for row, text in enumerate(plain, 1):
        known = stems(tokens(text.replace("\0", " ")))
        assert [known[token] for token in tokens(text.replace("\0", " "))] == indexed[row]
