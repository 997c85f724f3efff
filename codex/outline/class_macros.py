"""Macros between `class` and a class's name, made blank for the parser.

    class CORE_EXPORT Widget : public Object {        class             Widget : public Object {

A C or C++ grammar takes the macro for the name and the class for a function. Offsets and lines stay as they are, so what
the parser finds is read from the text itself. Knows no grammar.
"""

import re

_MACRO = re.compile(
    rb"\b(?P<head>(?:class|struct|union|enum(?:[ \t]+class)?)[ \t]+)"
    rb"(?P<macro>[A-Z][A-Z0-9_]{2,80})(?=[ \t\n]+[A-Za-z_][\w:]{0,200}(?:[ \t]+final)?[ \t\r\n]{0,80}[:{](?!:))"
)


def without_class_macros(raw: bytes) -> bytes:
    """The same number of bytes, with spaces where such macros stand."""
    return _MACRO.sub(lambda found: found["head"] + b" " * len(found["macro"]), raw)
