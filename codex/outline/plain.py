"""The outline of text without a grammar: headings, else nothing.

Headings are those that people write in plain text: `= Title =`, underlined lines, `# Title`, numbered sections, and
`[section]` of configuration files. Rows are (name, qualname, kind, start, end, signature, doc), lines from 1.
"""

import re

Row = tuple[str, str, str, int, int, str, str]
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+])\1{2,}\s*$")
_HEADING = re.compile(r"^(?:#{1,6}\s+(?P<hash>\S.*)|={1,6}\s+(?P<equals>\S.*)|\[(?P<section>[^\]\n]{1,80})\])\s*$")
_HEADINGS_AT_MOST = 2_000
_LINE_CHARS = 200


def plain_symbols(text: str) -> list[Row]:
    """Sections of a text, each from its heading to the line before the next one."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    heads = _headings(lines)[:_HEADINGS_AT_MOST]
    ends = [start - 1 for start, _ in heads[1:]] + [len(lines)] * bool(heads)
    return [
        (title, title, "section", start, end, title, _first_text(lines, start, end))
        for (start, title), end in zip(heads, ends, strict=True)
    ]


def first_lines(text: str, count: int) -> list[tuple[int, str]]:
    """The first lines that are not blank, with their numbers: what stands for a text without headings."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text[: count * 4 * _LINE_CHARS].split("\n"), start=1):
        if line.strip():
            found.append((number, line.strip()[:_LINE_CHARS]))
        if len(found) == count:
            break
    return found


def _headings(lines: list[str]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for index, line in enumerate(lines):
        if len(line) > _LINE_CHARS:
            continue
        match = _HEADING.match(line)
        if match is not None:
            title = match["hash"] or match["equals"] or match["section"]
            found.append((index + 1, title.strip(" =#")[:_LINE_CHARS]))
        elif index and _UNDERLINE.match(line) and _is_title(lines[index - 1], line):
            found.append((index, lines[index - 1].strip()))
    return found


def _is_title(line: str, underline: str) -> bool:
    title = line.strip()
    return bool(title) and title[0].isalnum() and len(title) <= len(underline.strip()) + 2 and len(title) < _LINE_CHARS


def _first_text(lines: list[str], start: int, end: int) -> str:
    for line in lines[start:end]:
        text = line.strip()
        if text and any(character.isalnum() for character in text):
            return " ".join(text.split())[:160]
    return ""
