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
"""Exchanging what a disk of a running server is, below its format.

QEMU has two block nodes for a raw layer of a disk: one of the storage, such as
a file, and above it one of the format. Newer libvirt leaves the second one out
where it has nothing to do; what is above the layer uses the storage then.
libvirt's view of the server stays as it is: the names of the nodes, and what
is known of them.
"""

import collections.abc
import dataclasses
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor

Options = collections.abc.Mapping[str, typing.Any]


class Above(typing.NamedTuple):
    """The layer whose base a raw layer without a node of a format is.

    :ivar number: in the names that libvirt gives to QEMU's block nodes
    :ivar form: options of the node of its format, besides its name, caching,
        storage and base
    :ivar base: options of the base's storage, besides its name and caching
    """

    number: str
    form: Options
    base: Options


@dataclasses.dataclass(frozen=True)
class Layer:
    """A raw layer of a disk.

    :ivar what: it is, for messages
    :ivar number: in the names that libvirt gives to QEMU's block nodes
    :ivar storage: options of the node of the storage, besides its name and
        caching
    :ivar form: options of the node of the format, besides its name, caching
        and storage
    :ivar above: what uses the storage if there is no node of the format; None
        for the guest's device
    """

    what: str
    number: str
    storage: Options
    form: Options
    above: Above | None = None


def open_anew(monitor: qemu_monitor.Monitor, layer: Layer) -> None:
    """Have QEMU open the storage of a layer anew.

    The node of the storage is replaced by an interim one, deleted, and added
    again under its name. After each step the guest has one of them, and a call
    that was cut off is completed by the next.

    :raises PermanentError: QEMU refused a step, or cannot do it
    :raises ServiceUnavailable: the server has ended, or does not answer
    """
    _Exchange(monitor, layer).run()


def format_name(number: str) -> str:
    """Return the name of the node of a layer's format, as libvirt names it."""
    return f'libvirt-{number}-format'


def storage_name(number: str) -> str:
    """Return the name of the node of a layer's storage."""
    return f'libvirt-{number}-storage'


class _User(typing.NamedTuple):
    """The node that uses the storage.

    :ivar options: all of its options, besides the storage
    :ivar child: the option that names the storage
    :ivar storage: options of the storage, besides its name
    """

    options: Options
    child: str
    storage: Options


class _Exchange:
    """The steps, for one layer of a server's disk."""

    def __init__(self, monitor: qemu_monitor.Monitor, layer: Layer) -> None:
        self._monitor = monitor
        self._layer = layer
        self._storage = storage_name(layer.number)
        self._interim = f'diffcache-{layer.number}-storage'
        self._user: _User

    def run(self) -> None:
        """Do all steps."""
        found = {node['node-name']: node for node in self._monitor.command(
            'query-named-block-nodes', flat=True)}
        self._user = self._find_user(found)
        if self._interim not in found or self._delete_unused():
            self._add(self._interim)
        self._use(self._interim)
        if self._storage in found:
            self._delete(self._storage)
        self._add(self._storage)
        self._use(self._storage)
        self._delete(self._interim)

    def _find_user(self, found):
        layer, name = self._layer, format_name(self._layer.number)
        if name in found:
            options = {**layer.form, 'driver': 'raw'}
            child, storage = 'file', layer.storage
        elif layer.above is not None:
            name = format_name(layer.above.number)
            options = {**layer.above.form,
                       'file': storage_name(layer.above.number)}
            child, storage = 'backing', layer.above.base
        else:
            options = {}
        node = found.get(name)
        if node is None or node.get('drv') != options.get('driver'):
            raise exceptions.PermanentError(
                f'QEMU has no node {name} of the expected format above'
                f' {layer.what}, so it keeps what it has open until the'
                f' server is stopped or rebooted hard.')
        cache = {'cache': {key: node['cache'][key]
                           for key in ('direct', 'no-flush')}}
        return _User({**options, **cache, 'node-name': name}, child,
                     {**storage, **cache})

    def _delete_unused(self) -> bool:
        """Delete the interim node of a call that was cut off.

        :returns: False if the guest uses it
        """
        try:
            self._delete(self._interim)
        except exceptions.PermanentError:
            return False
        return True

    def _add(self, name: str) -> None:
        # As libvirt adds it.
        self._monitor.command('blockdev-add', **{
            **self._user.storage, 'node-name': name})

    def _use(self, name: str) -> None:
        self._monitor.command('blockdev-reopen', options=[{
            **self._user.options, self._user.child: name}])

    def _delete(self, name: str) -> None:
        self._monitor.command('blockdev-del', **{'node-name': name})
