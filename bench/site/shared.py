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
"""The case of images that share leaves with another one that a host holds.

A peer has an image, and the base of it; the host has the patch, and in one of
two ways an image of which some leaves differ from the base.
"""

import collections.abc
import contextlib
import os
import pathlib
import random

from bench.harness import processes
from bench.harness import runs
from bench.site import built
from bench.site import data_plane
from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.sites import views

_LEAF = 65536


def shared(run: runs.Run) -> None:
    """Compare what crosses the link, and what it takes."""
    images = built.Images(run.work, run.options.size, 1.0, _LEAF)
    base, wanted = images.paths
    patch = run.work / 'patch'
    _native.patch_create(str(base), str(wanted), str(patch))
    root = run.work / 'server'
    ids = {path: _hold(root, path) for path in images.paths}
    manifest = root / views.MANIFESTS / ids[wanted]
    rows = []
    with contextlib.ExitStack() as stack:
        url, pid = stack.enter_context(data_plane.serving(
            data_plane.serve_plane, root, {}))
        host = orders.Host('server', url)
        sources = {
            'fetched': orders.HostSource(host, orders.Link.LAN),
            'built': orders.BuildSource(orders.RemotePart(
                host, views.Key(views.IMAGES, ids[base]), None), patch)}
        for apart in (None, *run.options.apart):
            folder = run.work / f'host-{apart}'
            label = 'nothing' if apart is None else f'{apart:g} % apart'
            if apart is not None:
                sibling = _sibling(base, run.work / 'sibling', apart)
                _hold(folder / 'client', sibling)
                sibling.unlink()
            plane = stack.enter_context(data_plane.client(folder))
            order = (views.Key(views.IMAGES, ids[wanted]), run.work / 'output')
            ways = {f'{label}, {way}': _delivery(
                plane, (*order, source, manifest), pid)
                for way, source in sources.items()}
            os.sync()
            for name, each in run.rounds(ways, run.options.rounds).items():
                rows.append((*name.split(', '), f'{each["bytes"] / 1e6:.1f}',
                             f'{1e3 * each["seconds"]:.0f}',
                             f'{1e3 * each["cpu_reader"]:.0f}',
                             f'{1e3 * each["cpu_sender"]:.0f}'))
    run.table(f'{run.options.size} MB, of which 1 % is not in the base', (
        'Held', 'Image', 'MB over the link', 'ms', 'CPU, ms',
        'of the peer, ms'), rows)


def _delivery(plane: native_plane.DataPlane, order: tuple, pid: int
              ) -> collections.abc.Callable[[], dict[str, float]]:
    """Return what delivers an image, and says what that takes."""
    key, dest, source, manifest = order

    def deliver() -> dict[str, float]:
        dest.unlink(missing_ok=True)
        moved = 0

        def run() -> None:
            nonlocal moved
            delivery = plane.deliver(orders.Order(
                key, dest, (source,), manifest, durable=False),
                plane.new_handle())
            if delivery.source is None:
                raise delivery.failures[-1].error
            moved = delivery.lan_bytes

        return {**data_plane.costs(run, pid), 'bytes': moved}

    return deliver


def _hold(root: pathlib.Path, image: pathlib.Path) -> str:
    """Have a root directory hold an image; return the content ID."""
    for kind in views.KINDS:
        (root / kind).mkdir(parents=True, exist_ok=True)
    manifest = root / 'manifest'
    content_id = _native.manifest_create(str(image),
                                         str(manifest))['content_id']
    manifest.rename(root / views.MANIFESTS / content_id)
    processes.run('cp', '--reflink=auto', image,
                  root / views.IMAGES / content_id)
    return content_id


def _sibling(image: pathlib.Path, path: pathlib.Path, percent: float
             ) -> pathlib.Path:
    """Copy an image; some of its leaves differ."""
    processes.run('cp', '--reflink=auto', image, path)
    chance, leaves = random.Random(2), image.stat().st_size // _LEAF
    with path.open('r+b') as file:
        for leaf in chance.sample(range(leaves), round(
                leaves * percent / 100)):
            file.seek(leaf * _LEAF)
            file.write(chance.randbytes(_LEAF))
    return path
