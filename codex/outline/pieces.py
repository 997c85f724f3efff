"""A text in the pieces that tree-sitter's binding reads, which never lets go of one.

The binding (0.26.1) keeps a reference to every piece that it was given to parse: whoever parses a gigabyte keeps a
gigabyte. So it is given the same byte array again and again, filled anew, and what it keeps is one. Knows no grammars.
"""

_PIECE = 65_536  # bytes
_PIECE_OF_NODE = 256  # names are short, and the binding takes from the start of a node what it needs

_given = bytearray()


class Pieces:
    """What `Parser.parse` reads from; and behind `parsed` what predicates of queries read of its tree.

    One parse at a time, in the whole process.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed = False
        self._last = b""  # the binding looks at it once more when it has let it go

    def __call__(self, offset: int, point: object) -> bytes | bytearray:  # noqa: ARG002 - the binding gives it too
        if self._parsed:
            self._last = self._raw[offset : offset + _PIECE_OF_NODE]
            return self._last
        _given[:] = memoryview(self._raw)[offset : offset + _PIECE]
        return _given

    def parsed(self) -> None:
        """The parse is over, however it ended."""
        self._parsed = True
