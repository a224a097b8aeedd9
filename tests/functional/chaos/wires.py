#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.
"""TCP connections that stall, are cut, or have a byte flipped on their way."""

import contextlib
import socket
import threading

from testing import server

_PIECE = 65536


class Wire:
    """A port whose connections go to another port.

    :ivar port: where clients connect
    :ivar flows: cleared while nothing passes, as in a network that drops all
    """

    def __init__(self, target: int) -> None:
        """:param target: port on the loopback address"""
        self.port = server.free_port()
        self.flows = threading.Event()
        self.flows.set()
        self._flip = threading.Event()
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((server.LOOPBACK, self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def flip(self) -> None:
        """Flip the bits of a byte of what passes next."""
        self._flip.set()

    def close(self) -> None:
        """Stop to listen, and end all connections."""
        self.flows.set()
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,),
                             daemon=True).start()

    def _join(self, client):
        try:
            there = socket.create_connection((server.LOOPBACK, self._target))
        except OSError:
            client.close()
            return
        with self._lock:
            self._open |= {client, there}
        back = threading.Thread(target=self._pump, args=(there, client),
                                daemon=True)
        back.start()
        self._pump(client, there)
        back.join()
        with self._lock:
            self._open -= {client, there}
        client.close()
        there.close()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self.flows.wait()
                if self._flip.is_set() and len(piece) > 1000:
                    self._flip.clear()
                    middle = len(piece) // 2
                    piece = (piece[:middle] + bytes([piece[middle] ^ 0xff])
                             + piece[middle + 1:])
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
