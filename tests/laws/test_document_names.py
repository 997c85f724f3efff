"""Laws of names and text: a safe name leads back to its file, and decoding never fails and never changes its mind."""

import os

from hypothesis import given
from hypothesis import strategies as st

from codex.documents import decode, name_of, path_of

RAW_PATHS = st.binary(min_size=1, max_size=40).map(lambda raw: raw.replace(b"\0", b"\\x"))


@given(RAW_PATHS)
def test_a_safe_name_leads_back_to_exactly_its_file(raw: bytes) -> None:
    assert os.fsencode(path_of(name_of(raw))) == raw


@given(RAW_PATHS)
def test_a_safe_name_is_one_line_of_valid_utf8(raw: bytes) -> None:
    name = name_of(raw)
    name.encode("utf-8")
    assert len(name.splitlines()) <= 1
    assert name.isprintable() or not any(ord(character) < 32 for character in name)


@given(RAW_PATHS, RAW_PATHS)
def test_two_files_never_share_a_safe_name(one: bytes, other: bytes) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


@given(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode)))
def test_any_bytes_decode_to_text_that_can_be_written_again_or_are_binary(raw: bytes) -> None:
    decoded = decode(raw)
    if decoded is not None:
        decoded.text.encode("utf-8")
        assert "\r" not in decoded.text
        assert decode(raw) == decoded


@given(st.text(max_size=200).filter(lambda text: "\0" not in text and text.isprintable()))
def test_printable_utf8_is_text_as_it_is(text: str) -> None:
    decoded = decode(text.encode())
    assert decoded is not None
    assert decoded.text == text.removeprefix("\ufeff")
