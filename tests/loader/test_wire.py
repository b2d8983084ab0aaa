"""Messages arrive whole and in order, or the other end's death is told."""

import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from slipstream.errors import StorageError
from slipstream.loader.wire import MOST_DESCRIPTORS, Closed, Wire

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def pair() -> Iterator[tuple[Wire, Wire]]:
    ends = socket.socketpair()
    wires = Wire(ends[0]), Wire(ends[1])
    yield wires
    for wire in wires:
        wire.close()


def test_messages_come_in_order(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    for message in (b"", b"a", b"bc" * 1000):
        one.send(message)
    assert [other.receive() for _ in range(3)] == [b"", b"a", b"bc" * 1000]
    assert other.try_receive() is None


def test_a_message_in_pieces(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    data = struct.pack("<Q", 5) + b"hello" + struct.pack("<Q", 1) + b"!"
    for byte in data[:-1]:
        one.socket.send(bytes([byte]))
        came = other.try_receive()
        assert came in (None, b"hello")
    one.socket.send(data[-1:])
    assert other.try_receive() == b"!"


def test_both_ends_send_a_lot_at_once(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    sent = [b"1" * 20_000_000, b"2" * 20_000_000]
    came: list[bytes] = []

    def talk(wire: Wire, message: bytes) -> None:
        wire.send(message)
        came.append(wire.receive())

    thread = threading.Thread(target=talk, args=(one, sent[0]))
    thread.start()
    talk(other, sent[1])
    thread.join(20)
    assert sorted(came) == sent


def test_descriptors_ride_along(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    pipes = [os.pipe() for _ in range(MOST_DESCRIPTORS)]
    one.send(b"before")
    one.send(b"many", tuple(reading for reading, _ in pipes))
    assert [other.receive(), other.receive()] == [b"before", b"many"]
    for number, (reading, writing) in enumerate(pipes):
        came = other.take_descriptor()
        os.write(writing, bytes([number]))
        assert os.read(came, 1) == bytes([number])
        assert not os.get_inheritable(came)
        for descriptor in (came, reading, writing):
            os.close(descriptor)
    with pytest.raises(StorageError, match="Too many open files"):
        other.take_descriptor()


def test_descriptors_that_nobody_took_are_closed(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    reading, writing = os.pipe()
    one.send(b"here", (reading,))
    os.close(reading)
    other.receive()
    other.close()
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)


def test_the_other_end_is_gone(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    one.send(b"last words")
    one.close()
    assert other.receive() == b"last words"
    for call in (other.receive, other.try_receive, lambda: other.send(b"anyone?")):
        with pytest.raises(Closed):
            call()


def test_the_other_end_dies_in_the_middle_of_a_message(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    one.socket.send(struct.pack("<Q", 1000) + b"half")
    one.close()
    with pytest.raises(Closed):
        other.receive()


def test_the_other_end_dies_while_we_send(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    timer = threading.Timer(0.2, one.hang_up)
    timer.start()
    with pytest.raises(Closed):
        other.send(bytes(50_000_000))
    timer.join()


def test_the_other_process_dies_but_its_end_stays_open(pair: tuple[Wire, Wire]) -> None:
    one, _ = pair
    one.peer_death, dying = os.pipe()
    timer = threading.Timer(0.2, os.close, (dying,))
    timer.start()
    with pytest.raises(Closed):
        one.send(bytes(50_000_000))
    timer.join()
    os.close(one.peer_death)


def test_hanging_up_is_heard_though_a_copy_of_the_end_is_open(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    with socket.fromfd(one.fileno(), socket.AF_UNIX, socket.SOCK_STREAM):
        one.hang_up()
        with pytest.raises(Closed):
            other.receive()
    one.hang_up()
