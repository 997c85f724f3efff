"""The desk answers what can be read beside a step, and hands everything else to the loop."""

import socket
from array import array

import pytest

from orchestrator.engine.child.cache_view import Picture, Shape
from orchestrator.engine.child.frontend import Frontend
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.messages import (
    Cancel,
    Decode,
    DecodedText,
    DropFloor,
    Encode,
    Encoded,
    InferenceJob,
    Matched,
    PrefixMatch,
    PutFloor,
    Reuse,
    Sampling,
    Tier,
)
from orchestrator.engine.token_ids import ids_to_bytes
from orchestrator.engine.transport import Wire, pack

FLOOR = array("I", range(10))
TAIL = Shape(array("I", [7, 8]), 2, 2, 1)
STANDS = Picture({"f": Shape(array("I"), 0, 0, None, (Shape(FLOOR, 10, 10, None, (TAIL,)),))})


def answered(*messages: object) -> tuple[list[object], list[object]]:
    """What the desk sent, and what it handed on."""
    daemon, child = socket.socketpair()
    with daemon, child:
        forwarded = list[object]()
        desk = Frontend(FakeBackend(), Wire(child), lambda: STANDS, forwarded.append)
        daemon.sendall(pack(messages))
        daemon.shutdown(socket.SHUT_WR)
        desk.serve()
        child.shutdown(socket.SHUT_WR)
        return list(Wire(daemon).receive()), forwarded


def test_it_encodes_and_decodes() -> None:
    sent, forwarded = answered(Encode(1, ("ab", "")), Decode(2, ids_to_bytes([104, 105])))
    assert sent == [Encoded(1, (ids_to_bytes([97, 98]), b"")), DecodedText(2, "hi")]
    assert forwarded == []


def test_a_job_is_studied_before_the_loop_has_it() -> None:
    done = list[object]()

    class Studying(FakeBackend):
        def study(self, sampling: Sampling) -> None:
            done.append(sampling.schema)

    job = InferenceJob(1, "f", b"", owner=0, max_tokens=1, sampling=Sampling(schema="{}"))
    daemon, child = socket.socketpair()
    with daemon, child:
        daemon.sendall(pack([job]))
        daemon.shutdown(socket.SHUT_WR)
        Frontend(Studying(), Wire(child), lambda: STANDS, done.append).serve()
    assert done == ["{}", job]


def test_what_it_does_not_know_goes_to_the_loop_in_order() -> None:
    floor = PutFloor("f", FLOOR.tobytes())
    assert answered(floor, Cancel(1), Cancel(2)) == ([], [floor, Cancel(1), Cancel(2)])


@pytest.mark.parametrize(
    ("tail", "owner", "most", "length"),
    [([7, 8, 9], 1, 5, 12), ([7, 9], 1, 5, 11), ([7, 8], 2, 5, 10), ([], 1, 0, 10), ([], 1, 5, 9), ([7, 8], 1, 5, 11)],
)
def test_it_says_what_of_a_prompt_stands_for_its_owner(tail: list[int], owner: int, most: int, length: int) -> None:
    sent, _ = answered(PutFloor("f", FLOOR.tobytes()), PrefixMatch(5, "f", ids_to_bytes(tail), owner, most))
    computed = Reuse(length, 10 + len(tail), Tier.COMPUTED)
    parts = (Reuse(0, length, Tier.VRAM), *([computed] if computed.end > length else ()))
    assert sent == [Matched(5, length, parts)]


def test_of_a_floor_that_was_dropped_nothing_stands_and_the_loop_is_told() -> None:
    sent, forwarded = answered(PutFloor("f", FLOOR.tobytes()), DropFloor("f"), PrefixMatch(5, "f", b"", 1))
    assert (sent, forwarded[1:]) == ([Matched(5, 0, ())], [DropFloor("f")])


def test_of_a_floor_that_nobody_told_nothing_stands() -> None:
    assert answered(PrefixMatch(5, "other", b"", 1))[0] == [Matched(5, 0, ())]
