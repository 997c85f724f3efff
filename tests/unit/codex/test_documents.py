import codecs

import pytest

from codex.documents import DecodedFile, Document, decode, digest_of, document_from, lines, name_of, path_of


def test_a_document_has_the_digest_and_size_of_the_raw_bytes() -> None:
    raw = b"\xef\xbb\xbfone\r\ntwo"
    assert document_from("a.txt", raw) == Document("a.txt", "one\ntwo", digest_of(raw), 11)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DecodedFile("", "utf-8")),
        ("grün\n".encode(), DecodedFile("grün\n", "utf-8")),
        (codecs.BOM_UTF16_LE + "grün".encode("utf-16-le"), DecodedFile("grün", "utf-16-le", "read as utf-16-le")),
        (codecs.BOM_UTF16_BE + "grün".encode("utf-16-be"), DecodedFile("grün", "utf-16-be", "read as utf-16-be")),
        (codecs.BOM_UTF32_LE + "grün".encode("utf-32-le"), DecodedFile("grün", "utf-32-le", "read as utf-32-le")),
        ("grün".encode("cp1252"), DecodedFile("grün", "cp1252", "not UTF-8: read as Windows-1252")),
        (
            b"# -*- coding: koi8-r -*-\n" + "мир".encode("koi8-r"),
            DecodedFile("# -*- coding: koi8-r -*-\nмир", "koi8-r", "read as koi8-r, as it declares"),
        ),
        (
            b'<?xml version="1.0" encoding="Shift_JIS"?>' + "日本".encode("shift_jis"),
            DecodedFile(
                '<?xml version="1.0" encoding="Shift_JIS"?>日本', "shift_jis", "read as shift_jis, as it declares"
            ),
        ),
        ("ä ö ü ".encode() + b"\xff", DecodedFile("ä ö ü �", "utf-8", "1 damaged bytes shown as U+FFFD")),
        (b"a\rb\r\nc\n", DecodedFile("a\nb\nc\n", "utf-8")),
    ],
)
def test_bytes_become_text(raw: bytes, expected: DecodedFile) -> None:
    assert decode(raw) == expected


@pytest.mark.parametrize(
    "raw", [b"\x7fELF\x02\x01\x00\x00", b"\x89PNG\r\n\x1a\n\x00", bytes(range(1, 32)) * 9, b"\xef\xbb\xbf\x00\x01"]
)
def test_binary_is_no_document(raw: bytes) -> None:
    assert document_from("x", raw) is None


@pytest.mark.parametrize("declared", ["unicode_escape", "utf-16", "rot13", "no-such-thing", "utf-7"])
def test_a_declaration_that_cannot_be_meant_is_not_followed(declared: str) -> None:
    decoded = decode(b"# coding: " + declared.encode() + b"\n\\x41 \xe4")
    assert decoded is not None
    assert decoded.text.endswith("\\x41 ä")


def test_lines_end_at_line_feeds_only() -> None:
    assert lines("a\x0cb\u2028c\n\nd\n") == ["a\x0cb\u2028c", "", "d"]
    assert lines("") == []


def test_a_name_is_one_safe_line_and_leads_back() -> None:
    assert name_of(b"src/a\xff\nb\\c.py") == r"src/a\xff\u000ab\\c.py"
    assert path_of(r"src/a\xff\u000ab\\c.py") == "src/a\udcff\nb\\c.py"
    assert name_of("grün/日本.py") == "grün/日本.py"
