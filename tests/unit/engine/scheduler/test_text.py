"""Text leaves an answer as whole characters and without its stop strings, wherever tokens cut it."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.messages import Chance, Chosen
from orchestrator.engine.scheduler.ticket import ChosenBeside, TextStream


def streamed(data: bytes, cuts: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    stream = TextStream(stop)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [stream.push(data[start:end]) for start, end in pairwise(places)]
    return [*parts, stream.finish()]


cuts = st.lists(st.integers(0, 1000), max_size=12)
letters = st.text("abé🦉\n", max_size=40)
stops = st.lists(st.text("abé🦉\n", min_size=1, max_size=4), max_size=3).map(tuple)


@given(st.text(max_size=60), cuts)
def test_any_cut_gives_the_same_text(text: str, places: list[int]) -> None:
    assert "".join(streamed(text.encode(), places)) == text


@given(st.binary(max_size=60), cuts)
def test_bytes_that_are_no_text_become_the_same_replacement_characters(data: bytes, places: list[int]) -> None:
    assert "".join(streamed(data, places)) == data.decode("utf-8", "replace")


@given(letters, st.text("abé🦉\n", min_size=1, max_size=4), cuts)
def test_a_stop_string_ends_the_text_before_it_and_never_leaks(text: str, stop: str, places: list[int]) -> None:
    shown = "".join(streamed(text.encode(), places, (stop,)))
    assert shown == text.split(stop)[0]


@given(letters, stops, cuts)
def test_of_several_stop_strings_none_is_ever_shown(text: str, stop: tuple[str, ...], places: list[int]) -> None:
    shown = "".join(streamed(text.encode(), places, stop))
    assert text.startswith(shown)
    assert not any(one in shown for one in stop)


@given(letters, stops)
def test_single_bytes_stop_at_the_stop_string_that_is_complete_first(text: str, stop: tuple[str, ...]) -> None:
    data = text.encode()
    shown = "".join(streamed(data, list(range(len(data))), stop))
    firsts = [(text.index(one) + len(one), text.index(one)) for one in stop if one in text]
    first = min((end for end, _ in firsts), default=None)
    assert shown in ({text[:start] for end, start in firsts if end == first} if firsts else {text})


def test_what_cannot_become_a_stop_string_is_not_held_back() -> None:
    stream = TextStream(("</end>",))
    assert [stream.push(piece) for piece in (b"abc<", b"/x", b"</", b"end", b">more")] == ["abc", "</x", "", "", ""]
    assert stream.stopped


def test_an_empty_stop_string_is_none() -> None:
    assert "".join(streamed(b"abc", [], ("",))) == "abc"


def test_after_a_stop_nothing_more_is_shown() -> None:
    stream = TextStream(("b",))
    assert (stream.push(b"ab"), stream.push(b"cd"), stream.finish()) == ("a", "", "")


# ---- what is told of tokens ------------------------------------------------------------------------------------------


def told(data: bytes, cuts: list[int], stop: tuple[str, ...]) -> list[tuple[str, tuple[Chosen, ...]]]:
    """Text and tokens as they leave; the tokens are the pieces between the cuts."""
    stream, beside, out = TextStream(stop), ChosenBeside(), []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for number, (start, end) in enumerate(pairwise(places)):
        beside.push(Chosen(Chance(number, data[start:end], -1.0)))
        shown = stream.push(data[start:end])
        out.append((shown, beside.shown(shown, settled=stream.settled)))
        if stream.stopped:
            return out
    shown = stream.finish()
    return [*out, (shown, beside.shown(shown, settled=stream.settled))]


@given(st.text("abé🦉\n", max_size=40), cuts)
def test_every_token_is_told_once_in_order_and_never_before_its_text(text: str, places: list[int]) -> None:
    shown, bytes_told, last = "", b"", 1
    for piece, tokens in told(text.encode(), places, ("aé🦉",)):
        shown += piece
        bytes_told += b"".join(one.token.text for one in tokens)
        assert shown.encode().startswith(bytes_told) or bytes_told.startswith(shown.encode())
        last = max([last, *(len(one.token.text) for one in tokens)])
        assert len(bytes_told) - len(shown.encode()) < last
    if "aé🦉" not in text:
        assert bytes_told == text.encode()


@given(letters, stops, cuts)
def test_no_token_is_told_that_begins_behind_what_is_shown(text: str, stop: tuple[str, ...], places: list[int]) -> None:
    parts = told(text.encode(), places, stop)
    shown = "".join(piece for piece, _ in parts).encode()
    tokens = [one.token for _, many in parts for one in many]
    assert [one.token for one in tokens] == list(range(len(tokens)))
    begins = 0
    for one in tokens:
        assert begins < len(shown)
        begins += len(one.text)
    assert begins >= len(shown)
