"""A document is one text file as the codex holds it: a name, its text, and the digest of its bytes.

This module defines how bytes become a string, how a file's name becomes one safe line, and where lines end. All three are
pure and deterministic, so that stored bytes always give the same document.

Name.    Relative, posix. A backslash is doubled, bytes that are not UTF-8 are written `\\xNN`, control characters and
         line separators `\\uNNNN`. So a name is valid UTF-8 and one line, and leads back to exactly one file.
Text.    1 byte order mark · 2 UTF-8 · 3 the encoding that the file declares · 4 UTF-8 with few damaged bytes ·
         5 Windows-1252 · else it is binary. From 3 on there is a notice. CR LF and CR become LF.
Lines.   Numbered from 1, ended by LF only: a form feed or U+2028 inside a line ends none.
"""

import codecs
import hashlib
import os
import re
from dataclasses import dataclass

_SNIFFED_BYTES = 8192  # git looks for a NUL in the first 8,000
_DECLARED = re.compile(rb"(?:coding|encoding|charset)\s*[:=]\s*[\"']?([A-Za-z0-9][-\w.]{1,39})", re.IGNORECASE)
_UNSAFE = re.compile("[\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|x[0-9a-f]{2}|u[0-9a-f]{4})")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PRINTABLE = bytes(code for code in range(32, 127) if code != ord("\\")) + rb"\x41\n"
_WINDOWS_1252 = {code: bytes([code]).decode("cp1252", errors="ignore") or chr(code) for code in range(0x80, 0xA0)}
_SELDOM_IN_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\x1b\b")) + b"\x7f"


@dataclass(frozen=True, slots=True)
class Document:
    """One text file: safe relative posix name, text, sha256 (hex) of the raw bytes, and their number."""

    path: str
    text: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """Text and the encoding it was read with; `notice` says what a reader should know, or is None."""

    text: str
    encoding: str
    notice: str | None = None


def digest_of(raw: bytes) -> str:
    """The sha256 of the raw bytes, as 64 hex digits."""
    return hashlib.sha256(raw).hexdigest()


def document_from(path: str, raw: bytes) -> Document | None:
    """The document for these bytes, or None when they are not text."""
    decoded = decode(raw)
    return None if decoded is None else Document(path, decoded.text, digest_of(raw), len(raw))


def decode(raw: bytes) -> DecodedFile | None:
    """Text of a file by the rules above; None when it is binary."""
    marked = _by_mark(raw)
    if marked is not None:
        return marked
    if looks_binary(raw[:_SNIFFED_BYTES]):
        return None
    try:
        return DecodedFile(_lf(raw.decode("utf-8")), "utf-8")
    except UnicodeDecodeError:
        return _by_declaration(raw) or _damaged_utf8(raw) or _legacy(raw)


def looks_binary(head: bytes) -> bool:
    """Whether the first bytes of a file hold a NUL, or more control characters than text ever does."""
    if b"\x00" in head:
        return True
    return bool(head) and (len(head) - len(head.translate(None, _SELDOM_IN_TEXT))) / len(head) > 0.05


def lines(text: str) -> list[str]:
    """Lines without their LF; the empty piece behind a closing LF is no line."""
    pieces = text.split("\n")
    return pieces[:-1] if pieces[-1] == "" else pieces


def name_of(raw_path: str | bytes) -> str:
    """The safe name of a path as the file system gives it (`str` as of os.fsdecode, or raw bytes)."""
    return _UNSAFE.sub(_escape, os.fsdecode(raw_path))


def path_of(name: str) -> str:
    """The path to open for a safe name: the inverse of `name_of`, as os.fsdecode would give it."""
    return _ESCAPE.sub(_unescape, name)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] == "\\":
        return "\\\\"
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def _unescape(match: re.Match[str]) -> str:
    kind, digits = match[1][0], match[1][1:]
    if kind == "\\":
        return "\\"
    return chr(int(digits, 16) + (0xDC00 if kind == "x" else 0))


def _by_mark(raw: bytes) -> DecodedFile | None:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if raw.startswith(mark):
            text = raw[len(mark) :].decode(encoding, errors="replace")
            if encoding == "utf-8" and "\x00" in text[:_SNIFFED_BYTES]:
                return None
            return DecodedFile(_lf(text), encoding, None if encoding == "utf-8" else f"read as {encoding}")
    return None


def _by_declaration(raw: bytes) -> DecodedFile | None:
    found = _DECLARED.search(raw[:1024])
    if found is None:
        return None
    try:
        encoding = codecs.lookup(found[1].decode("ascii")).name
        if _PRINTABLE.decode(encoding) != _PRINTABLE.decode("ascii"):
            return None  # the declaration itself was read as ASCII: utf-16 or unicode_escape cannot be meant
        text = raw.decode(encoding)
    except (LookupError, UnicodeError):
        return None
    return None if encoding == "utf-8" else DecodedFile(_lf(text), encoding, f"read as {encoding}, as it declares")


def _damaged_utf8(raw: bytes) -> DecodedFile | None:
    """UTF-8 when whole characters beyond ASCII outnumber the damaged ones."""
    text = raw.decode("utf-8", errors="replace")
    damaged = text.count("�") - raw.count("�".encode())
    beyond_ascii = sum(1 for character in text if character > "\x7f") - damaged
    if beyond_ascii <= damaged:
        return None
    return DecodedFile(_lf(text), "utf-8", f"{damaged} damaged bytes shown as U+FFFD")


def _legacy(raw: bytes) -> DecodedFile | None:
    """Windows-1252, in which most undeclared 8-bit text was written; its five holes are read as Latin-1."""
    return DecodedFile(_lf(raw.decode("latin-1").translate(_WINDOWS_1252)), "cp1252", "not UTF-8: read as Windows-1252")


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
