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
"""Hosts with data planes, for tests."""

import pathlib
import time
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.sites import views
from tests import base

LEAF = 65536
KEY = b'0123456789abcdef0123456789abcdef'


def wait_until(probe: Callable[[], bool]) -> None:
    """Wait for what another thread brings about."""
    for _ in range(20000):
        if probe():
            return
        time.sleep(0.005)
    raise AssertionError('waited in vain')


def sent_images(plane: native_plane.DataPlane, expected: int) -> int:
    """The bytes of images that a plane counted as sent.

    It counts bytes after they were sent, so a reader may have all of them
    before: the expected ones are waited for.
    """
    wait_until(lambda: plane.stats()['sent']['images'] >= expected)
    return plane.stats()['sent']['images']


class Silent:
    """Progress that only counts."""

    def __init__(self):
        self.seen = []

    def __call__(self, done, total, over_wan):
        if total:
            self.seen.append((done, total))


class DataPlaneTestCase(base.TestCase):
    """Hosts whose planes end with the test."""

    def open_plane(self, root: pathlib.Path, name: str, key: bytes | None,
                   **options) -> native_plane.DataPlane:
        """Open a data plane on a free port of the loopback."""
        return native_plane.DataPlane(root, name, '127.0.0.1:0', key,
                                      **options)

    def plane(self, name: str, key=KEY, **options) -> native_plane.DataPlane:
        plane = self.open_plane(self.directory / name, name, key, **options)
        self.addCleanup(plane.close)
        return plane

    def source(self, plane, url=None, link=orders.Link.LAN):
        return orders.HostSource(
            orders.Host(plane and plane.name, url or plane.url), link)

    def remote(self, plane, kind, object_id):
        return orders.RemotePart(orders.Host(plane.name, plane.url),
                                 views.Key(kind, object_id))

    def order(self, kind, object_id, *sources, manifest=None, **options):
        options.setdefault('dest', self.directory / 'output')
        options.setdefault('durable', False)
        return orders.Order(views.Key(kind, object_id), sources=sources,
                            manifest=manifest, **options)

    def deliver(self, plane, order, progress=None, handle=None):
        """Carry an order out; the last failure is raised."""
        delivery = plane.deliver(order, handle or plane.new_handle(),
                                 progress or Silent())
        if delivery.source is None:
            raise delivery.failures[-1].error
        return delivery

    def fetch(self, plane, source, kind, object_id, progress=None,
              handle=None, **options):
        """Read an object from one host; returns the bytes that moved."""
        if not isinstance(source, orders.HostSource):
            source = self.source(source)
        delivery = self.deliver(plane, self.order(
            kind, object_id, source, **options), progress, handle)
        return delivery.lan_bytes + delivery.wan_bytes

    def hold(self, host: str, kind: str, content: bytes) -> str:
        path = self.write_file(f'{host}/staging/new', content)
        object_id = _native.hash_file(str(path))
        self.held(host, kind, object_id).parent.mkdir(
            parents=True, exist_ok=True)
        path.rename(self.held(host, kind, object_id))
        return object_id

    def held(self, host: str, kind: str, object_id: str) -> pathlib.Path:
        return self.directory / host / kind / object_id

    def hold_image(self, host: str, content: bytes) -> str:
        object_id = self.hold(host, 'images', content)
        manifest = self.held(host, 'manifests', object_id)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        _native.manifest_create(
            str(self.held(host, 'images', object_id)), str(manifest))
        return object_id

    def manifest(self, host: str, object_id: str) -> pathlib.Path:
        return self.held(host, 'manifests', object_id)
