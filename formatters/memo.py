"""Remembers what was written from a frozen part of the context, so that a codex is not written again for each question."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Source = TypeVar("Source")
Written = TypeVar("Written")

_KEPT = 8  # generations and identities in use at a time; more only costs writing one again


class Memo(Generic[Source, Written]):
    """The last few results of a pure function, found by the identity of its frozen argument.

    By identity, because comparing thousands of pieces costs more than writing them. The argument is kept alive with its
    result: an address can then not be taken by another object.
    """

    def __init__(self, write: Callable[[Source], Written]) -> None:
        self._write = write
        self._kept: OrderedDict[int, tuple[Source, Written]] = OrderedDict()

    def __call__(self, source: Source) -> Written:
        found = self._kept.pop(id(source), None) or (source, self._write(source))
        self._kept[id(source)] = found
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found[1]
