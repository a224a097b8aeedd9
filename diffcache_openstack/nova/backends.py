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
"""Nova's image backends, with base images that the agent delivers."""

import os
import typing

from diffcache_openstack.nova import fetching
from diffcache_openstack.nova import lazy_disks
from diffcache_openstack.nova import options
from diffcache_openstack.nova import snapshots as server_snapshots
import nova.conf
from nova.virt.libvirt import imagebackend


CONF = nova.conf.CONF


class Delivering:
    """What is put before one of Nova's backends.

    Nova's own ``cache`` decides whether a base image is needed, holds the
    lock on its name while it is fetched, and does all that follows: checks,
    overlays, resizing. Where the bytes come from is ours, and what happens
    when they do not.
    """

    path: str
    fetcher: fetching.Fetcher
    snapshots: server_snapshots.Snapshots | None

    def __init__(self, instance: typing.Any = None, *args: typing.Any,
                 **kwargs: typing.Any) -> None:
        """See Nova's imagebackend.Image; the server is remembered."""
        super().__init__(instance, *args, **kwargs)  # type: ignore[call-arg]
        self._server = instance

    def cache(self, fetch_func: fetching.Fetch, filename: str,
              *args: typing.Any, **kwargs: typing.Any) -> None:
        """Make the disk from an image; see Nova's imagebackend.Image.cache.

        Disks that are made of nothing, such as swap, name no image.

        :raises ServiceUnavailable: the base image is a link, and diffcached
            does not answer
        """
        image_id = kwargs.get('image_id')
        # Other backends copy the base whole.
        overlay = isinstance(self, imagebackend.Qcow2)
        reader = fetching.Reader(self._server, overlay)
        if image_id:
            fetching.warm(self.fetcher.path(filename))
            fetch_func = self.fetcher.around(fetch_func, reader)
        super().cache(fetch_func, filename, *args,  # type: ignore[misc]
                      **kwargs)
        if image_id:
            self.fetcher.note_reader(reader, image_id, filename)

    def snapshot_extract(self, target: str, out_format: str) -> None:
        """Write a disk that is not in use to a file, as an image has it."""
        if self.snapshots is None or not self.snapshots.write(
                self._server, self.path, target, out_format):
            super().snapshot_extract(target, out_format)  # type: ignore[misc]

    def libvirt_info(self, *args: typing.Any, **kwargs: typing.Any
                     ) -> typing.Any:
        """Return the disk for libvirt; see Nova's imagebackend.Image.

        A guest whose base image is not whole is stopped by errors.
        """
        disk = super().libvirt_info(  # type: ignore[misc]
            *args, **kwargs)
        if (CONF.diffcache.read_error_policy == options.STOP
                and isinstance(self, imagebackend.Qcow2)
                and disk.source_device == 'disk'
                and os.path.exists(self.path)
                and lazy_disks.is_lazy(self.path)):
            return lazy_disks.LazyDisk(disk)
        return disk


def install(backend: imagebackend.Backend, names: typing.Iterable[str],
            fetcher: fetching.Fetcher,
            snapshots: server_snapshots.Snapshots | None) -> None:
    """Put :class:`Delivering` before some of Nova's backends.

    :param names: values of ``[libvirt] images_type``
    :param snapshots: makes images of servers; None leaves that to Nova
    """
    for name in names:
        plain = backend.BACKEND[name]
        backend.BACKEND[name] = type(
            plain.__name__, (Delivering, plain), {
                'fetcher': fetcher, 'snapshots': snapshots})
