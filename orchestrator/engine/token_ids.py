"""Token ids: an array of uint32 where they are worked with, its bytes in native order where they cross or are kept."""

from array import array
from collections.abc import Iterable

Ids = bytes


def ids_to_bytes(ids: Iterable[int]) -> Ids:
    return array("I", ids).tobytes()


def bytes_to_ids(data: Ids) -> "array[int]":
    ids = array("I")
    ids.frombytes(data)
    return ids
