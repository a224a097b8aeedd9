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
"""The processes that keep the capabilities which the agent gives up.

An agent that is started with capabilities starts one small process for each
need (a *context* of oslo.privsep), which keeps what it needs, and drops them
all itself. It then asks those processes, which know a few typed calls each,
check what they are asked for as if an enemy did, and pass on open files.
"""

# Loaded here once, not by the daemon in each process.
import concurrent.futures.thread  # noqa: F401
import itertools
import json
import os
import signal
import socket
import sys
import threading
import traceback
import typing

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import comm
from oslo_privsep import daemon
from oslo_privsep import priv_context

from diffcache_openstack.common import exceptions

# What entry points are below.
PREFIX = 'diffcache_openstack.agent.privileged'
# Calls that a process works on at a time: some wait for QEMU's programs.
_THREADS = 16
_LONGEST_TEXT = 4096
_LENGTH_BYTES = 4
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Configure = typing.Callable[[dict[str, typing.Any]], None]


class Channel(daemon.ForkingClientChannel):
    """A client's side of a connection to a process that was forked before."""

    def __init__(self, connected: socket.socket, context: 'Context') -> None:
        # Not that of the class between, which forks when threads may run.
        super(daemon.ForkingClientChannel, self).__init__(connected, context)


class Context(priv_context.PrivContext):
    """One need, with the capabilities for it.

    Until :meth:`connect` its entry points run in this process.

    :param name: of its attribute in this module
    :param wanted: capabilities; those that this process has are kept
    :param instead: capabilities if it has none of those
    """

    def __init__(self, name: str, wanted: typing.Iterable[int],
                 instead: typing.Iterable[int] = ()) -> None:
        super().__init__(PREFIX, cfg_section=f'diffcache_{name.lower()}',
                         pypath=f'{__name__}.{name}', capabilities=())
        # Not for operators: the context's own way to hold its settings.
        cfg.CONF.set_default('thread_pool_size', _THREADS,
                             group=self.cfg_section)
        self.set_client_mode(False)
        self.name = name
        self._wanted = frozenset(wanted)
        self._instead = frozenset(instead)
        self._connected: socket.socket | None = None
        self.pid = 0
        # For descriptors, by number: those that arrived and whose call has
        # not taken them yet.
        self._files, self._theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._arrived: dict[int, int] = {}

    def granted(self, permitted: typing.Iterable[int]) -> frozenset[int]:
        """Return the capabilities it keeps of those that are permitted."""
        return (self._wanted & frozenset(permitted)
                or self._instead & frozenset(permitted))

    def fork(self, kept: typing.Iterable[int], configure: Configure) -> None:
        """Start its process, before this one has threads.

        It waits for :meth:`connect` or :meth:`end`.

        :param kept: its capabilities
        :param configure: states what it is for, from what :meth:`connect`
            gets
        """
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            self._run(theirs, kept, configure)
        theirs.close()
        self._connected = ours

    def _run(self, connected: socket.socket, kept: typing.Iterable[int],
             configure: Configure) -> typing.NoReturn:
        """Serve until the agent has ended."""
        status = 1
        try:
            # It ends after the agent, which may need it until then.
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            settings = receive_settings(connected)
            if settings is None:
                os._exit(0)
            configure(settings)
            channel = comm.ServerChannel(connected)
            daemon.replace_logging(daemon.PrivsepLogHandler(
                channel, processName=self.name))
            cfg.CONF.set_default('capabilities', list(kept),
                                 group=self.cfg_section)
            daemon.Daemon(channel, self).run()
            status = 0
        except BaseException:
            # To standard error: the agent may not listen any more.
            traceback.print_exc()
        finally:
            os._exit(status)

    def connect(self, settings: dict[str, typing.Any]) -> None:
        """Have entry points run in its process, which was forked before.

        :param settings: what it is for, as JSON can say it
        """
        if self._connected is None:
            return
        send_settings(self._connected, settings)
        try:
            self.channel = Channel(self._connected, self)
        except daemon.FailedToDropPrivileges as error:
            raise exceptions.PermanentError(
                f'The privileged process {self.name} does not work: see'
                f' standard error for the reason.') from error
        self.set_client_mode(True)

    def end(self) -> None:
        """End its process, which is not needed."""
        if self._connected is not None:
            send_settings(self._connected, None)
            self._connected.close()
            self._connected = None
            os.waitpid(self.pid, 0)

    def start(self, method: priv_context.Method = priv_context.Method.FORK
              ) -> None:
        """Refuse to start its process again: this one cannot any more."""
        raise exceptions.ServiceUnavailable(
            f'The privileged process {self.name} of this agent has ended:'
            f' restart the agent.')

    def send(self, fd: int) -> int:
        """Pass on a descriptor; an entry point does this last.

        :returns: its number, which the entry point returns
        """
        number = next(self._numbers)
        socket.send_fds(self._theirs, [number.to_bytes(8)], [fd])
        return number

    def received(self) -> int:
        """Return the descriptor that :meth:`sending` passes on.

        An entry point does this first; it closes the descriptor.
        """
        _, [fd], _, _ = socket.recv_fds(self._theirs, 1, 1,
                                        socket.MSG_DONTWAIT)
        os.set_inheritable(fd, False)
        return fd

    def sending(self, fd: int, entry_point: typing.Callable[[], typing.Any]
                ) -> typing.Any:
        """Pass on a descriptor to an entry point; return its result."""
        with self._lock:
            socket.send_fds(self._files, [b'.'], [fd])
            return entry_point()

    def receiving(self, entry_point: typing.Callable[..., typing.Any],
                  *arguments: typing.Any) -> tuple[typing.Any, int]:
        """Call an entry point that passes on a descriptor.

        It returns its result and the number of the descriptor. Others may be
        called meanwhile, since some wait for a program or a slow disk.

        :returns: the result, and the descriptor, which the caller closes
        """
        result, number = entry_point(*arguments)
        with self._lock:
            while number not in self._arrived:
                found, [fd], _, _ = socket.recv_fds(self._files, 8, 1,
                                                    socket.MSG_DONTWAIT)
                os.set_inheritable(fd, False)
                self._arrived[int.from_bytes(found)] = fd
            return result, self._arrived.pop(number)


def send_settings(connected: socket.socket,
                  settings: dict[str, typing.Any] | None) -> None:
    """Send a process what it is for; None if it is not needed."""
    message = json.dumps(settings).encode()
    connected.sendall(len(message).to_bytes(_LENGTH_BYTES) + message)


def receive_settings(connected: socket.socket) -> typing.Any:
    """Return what :func:`send_settings` sends; None if the agent ended."""
    with connected.makefile('rb', buffering=0) as stream:
        length = int.from_bytes(_read(stream, _LENGTH_BYTES))
        return json.loads(_read(stream, length) or b'null')


def _read(stream: typing.Any, length: int) -> bytes:
    """Return this many bytes, fewer at the end; read none beyond them."""
    found = b''
    while len(found) < length and (part := stream.read(length - len(found))):
        found += part
    return found


def text(value: object) -> str:
    """Return an argument that is a text of usual length.

    :raises InvalidInput: it is none
    """
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise exceptions.InvalidInput('An argument is no text.')
    return value


# To write images to directories of Nova, to roll disks of servers back, to
# keep files beside them, and to give each to its user.
FILES = Context('FILES', (capabilities.CAP_CHOWN,
                          capabilities.CAP_DAC_OVERRIDE))
# To read disks of servers, whichever user the hypervisor gave them to.
READER = Context('READER', (capabilities.CAP_DAC_READ_SEARCH,),
                 (capabilities.CAP_DAC_OVERRIDE,))
# To run QEMU's programs on them.
PROGRAMS = Context('PROGRAMS', (capabilities.CAP_DAC_OVERRIDE,))
