"""The desk answers what can be read beside a step, and hands everything else to the loop."""

import socket
from array import array

from orchestrator.engine.child.frontend import Frontend
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.messages import (
    Cancel,
    Decode,
    DecodedText,
    Encode,
    Encoded,
    InferenceJob,
    PrefixMatch,
    PutFloor,
    Sampling,
    ids_to_bytes,
)
from orchestrator.engine.transport import Wire, pack

FLOOR = array("I", range(10))


def answered(*messages: object) -> tuple[list[object], list[object]]:
    """What the desk sent, and what it handed on."""
    daemon, child = socket.socketpair()
    with daemon, child:
        forwarded = list[object]()
        desk = Frontend(FakeBackend(), Wire(child), forwarded.append)
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
        Frontend(Studying(), Wire(child), done.append).serve()
    assert done == ["{}", job]


def test_what_it_does_not_know_goes_to_the_loop_in_order() -> None:
    floor = PutFloor("f", FLOOR.tobytes())
    match = PrefixMatch(5, "f", b"", 1)
    assert answered(floor, match, Cancel(2)) == ([], [floor, match, Cancel(2)])
