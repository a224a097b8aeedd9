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
        request = json.dumps({'execute': name, 'arguments': arguments})
        try:
            answer = json.loads(self._qemu.qemuMonitorCommand(
                self._domain, request, 0))
        except self._library.libvirtError as error:
            raise exceptions.ServiceUnavailable(
                f'The monitor of server {self._domain.UUIDString()} did not'
                f' answer {name}: {error}') from error
        if 'error' in answer:
            raise exceptions.PermanentError(
                f'The monitor of server {self._domain.UUIDString()} refused'
                f' {name}: {answer["error"].get("desc")}')
        return answer['return']
