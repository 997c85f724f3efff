"""Messages cross whole and in order, whatever the socket's cuts; a closed end is an end, not a fault."""

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.messages import Cancel, DecodedText, Encode
from orchestrator.engine.transport import HEADER, Wire, pack, unpack

messages = st.lists(
    st.builds(Cancel, st.integers())
    | st.builds(DecodedText, st.integers(), st.text(st.characters(exclude_categories=["Cs"])))
    | st.builds(Encode, st.integers(), st.tuples(st.text(st.characters(exclude_categories=["Cs"])))),
    max_size=5,
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(messages)
def test_what_is_packed_is_unpacked(batch: list[object]) -> None:
    data = pack(batch)
    assert HEADER.unpack(data[: HEADER.size])[0] == len(data) - HEADER.size
    assert unpack(data[HEADER.size :]) == tuple(batch)


@given(st.lists(messages, max_size=4), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_batches_arrive_in_order_however_the_stream_is_cut(batches: list[list[object]], cuts: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        data, at = b"".join(pack(batch) for batch in batches), 0
        for cut in cuts:
            ours.sendall(data[at : at + cut])
            at += cut
        ours.sendall(data[at:])
        ours.close()
        assert list(Wire(theirs).receive()) == [message for batch in batches for message in batch]


@pytest.mark.parametrize("kept", [1, HEADER.size, HEADER.size + 5])
def test_a_batch_that_was_cut_off_is_not_delivered(ends: tuple[socket.socket, socket.socket], kept: int) -> None:
    ours, theirs = ends
    ours.sendall(pack([Cancel(1)]) + pack([Cancel(2)])[:kept])
    ours.shutdown(socket.SHUT_WR)
    assert list(Wire(theirs).receive()) == [Cancel(1)]


def test_an_end_that_was_killed_with_messages_unread_is_an_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    Wire(theirs).send([Cancel(1)])
    ours.close()  # unread: the kernel resets the connection, as it does when the process is killed
    assert list(Wire(theirs).receive()) == []


def test_sending_to_an_end_that_is_gone_is_no_fault(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()
    wire = Wire(ours)
    wire.send([Cancel(1)])
    wire.send([Cancel(2)])


def test_threads_that_send_at_once_do_not_mix_their_batches(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire, text = Wire(ours), "x" * 100_000
    threads = [
        threading.Thread(target=lambda n=n: [wire.send([DecodedText(n, text)]) for _ in range(20)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    received = Wire(theirs).receive()
    got = [next(received) for _ in range(80)]
    for thread in threads:
        thread.join()
    assert sorted(message.call for message in got) == sorted([0, 1, 2, 3] * 20)
    assert {message.text for message in got} == {text}
