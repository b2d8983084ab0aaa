"""Messages between the loader and a worker process, over a pair of sockets.

A message is its length and its bytes; a descriptor may ride along. Each worker has a pair of its
own: one that dies in the middle of a message disturbs nobody else.
"""

import contextlib
import os
import select
import socket
import struct
from collections import deque

from slipstream.errors import StorageError

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 18
MOST_DESCRIPTORS = 16
_DESCRIPTOR_ROOM = socket.CMSG_SPACE(4 * MOST_DESCRIPTORS)
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Closed(Exception):
    """The other end is gone."""


class Wire:
    """One end of the pair. Not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        # Readable when the process at the other end is dead: whoever it has forked may still hold
        # that end open.
        self.peer_death = -1
        self._received = bytearray()
        self._descriptors: deque[int] = deque()

    def fileno(self) -> int:
        """The socket's descriptor, for `select`."""
        return self.socket.fileno()

    def send(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send all of it, however long the other end takes. Raises `Closed`.

        While the other end does not read, what it sends is taken in: two ends that send at the same
        time do not wait for each other.
        """
        data = memoryview(_LENGTH.pack(len(message)) + message)
        try:
            if descriptors:
                sent = socket.send_fds(self.socket, [data], descriptors)
                data = data[sent:]
            while data:
                try:
                    data = data[self.socket.send(data, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    self._wait_for_room()
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        if self.peer_death >= 0:
            poll.register(self.peer_death, select.POLLIN)
        ready = dict(poll.poll())
        if self.peer_death in ready:
            raise Closed
        if ready[self.fileno()] & select.POLLIN:
            self._receive_some()

    def try_receive(self) -> bytes | None:
        """The next message if it is all there. Raises `Closed` when there will be no more."""
        while (message := self._take()) is None:
            try:
                self._receive_some()
            except BlockingIOError:
                return None
        return message

    def receive(self) -> bytes:
        """The next message; waits for it. Raises `Closed`."""
        while (message := self._take()) is None:
            self._receive_some(wait=True)
        return message

    def take_descriptor(self) -> int:
        """The next descriptor that came with the messages so far. Raises `StorageError` where this
        process may have no more of them: then the kernel drops what comes.
        """
        if not self._descriptors:
            raise StorageError(
                "Cannot take a batch's memory over: Too many open files. Raise the limit on"
                " descriptors with ulimit -n, or use fewer workers."
            )
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close this end; the other one sees `Closed`, unless a forked process holds it, too."""
        self.socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def hang_up(self) -> None:
        """Close the connection itself: the other end sees `Closed`, whoever else holds this one."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def _take(self) -> bytes | None:
        received = self._received
        if len(received) < _LENGTH.size:
            return None
        end = _LENGTH.size + int(_LENGTH.unpack_from(received)[0])
        if len(received) < end:
            return None
        message = bytes(memoryview(received)[_LENGTH.size : end])
        del received[:end]
        return message

    def _receive_some(self, *, wait: bool = False) -> None:
        flags = _CLOSE_ON_EXEC if wait else _CLOSE_ON_EXEC | socket.MSG_DONTWAIT
        try:
            data, ancillary, _, _ = self.socket.recvmsg(_CHUNK, _DESCRIPTOR_ROOM, flags)
        except ConnectionResetError:
            raise Closed from None
        for level, kind, packed in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(packed) // 4
                self._descriptors.extend(struct.unpack(f"{count}i", packed[: 4 * count]))
        if not data:
            raise Closed
        self._received += data
