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
"""The QEMU monitor of a server, through libvirt."""

import json
import types
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import native_threads

# A command may wait for reads of a disk, and these for the WAN.
_ANSWER_SECONDS = 120.0


class Monitor:
    """The QEMU monitor of a domain.

    libvirt marks a domain as tainted (``custom-monitor``) with the first
    command.

    :param library: the module ``libvirt``, which only compute hosts have
    :param qemu: the module ``libvirt_qemu``
    """

    def __init__(self, library: types.ModuleType, qemu: types.ModuleType,
                 domain: typing.Any) -> None:
        self._library = library
        self._qemu = qemu
        self._domain = domain

    def command(self, name: str, /, **arguments: typing.Any) -> typing.Any:
        """Run a command and return its result.

        :raises PermanentError: the command was refused
        :raises ServiceUnavailable: no answer came
        """
        return self._run(name, arguments, self._qemu.qemuMonitorCommand)

    def command_with(self, descriptor: int, name: str, /,
                     **arguments: typing.Any) -> typing.Any:
        """Run a command that gets a descriptor, as :meth:`command`."""
        def send(domain: typing.Any, request: str, flags: int) -> str:
            answer, _ = self._qemu.qemuMonitorCommandWithFiles(
                domain, request, [descriptor], flags)
            return answer
        return self._run(name, arguments, send)

    def _run(self, name: str, arguments: dict[str, typing.Any],
             send: typing.Callable[[typing.Any, str, int], str]
             ) -> typing.Any:
        request = json.dumps({'execute': name, 'arguments': arguments})
        try:
            answer = json.loads(native_threads.call(
                _ANSWER_SECONDS, send, self._domain, request, 0))
        except self._library.libvirtError as error:
            raise exceptions.ServiceUnavailable(
                f'The monitor of server {self._domain.UUIDString()} did not'
                f' answer {name}: {error}') from error
        if 'error' in answer:
            raise exceptions.PermanentError(
                f'The monitor of server {self._domain.UUIDString()} refused'
                f' {name}: {answer["error"].get("desc")}')
        return answer['return']
