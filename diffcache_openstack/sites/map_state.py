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
"""A site map that differences are applied to.

Agents and conductors keep one each. Its *digest* is a sum of hashes of all
that the map shows, so that it changes with each difference in the time that
this takes, and a host notices if it missed one.
"""

import collections.abc
import dataclasses
import hashlib
import typing

from diffcache_openstack import objects
from diffcache_openstack.sites import site_map as maps
from diffcache_openstack.sites import views

_MODULUS = 1 << 128

Trust = collections.abc.Callable[[objects.Image], bool]


def _trust_all(_image: objects.Image) -> bool:
    return True


class MapState:
    """The map of a site at a generation.

    Not for several threads at once; the views that it returns are.

    :param site_map: the map
    :param trusted: whether look-ups may use an active image
    """

    def __init__(self, site_map: objects.SiteMap, trusted: Trust = _trust_all
                 ) -> None:
        self._trusted = trusted
        self._site = site_map.site
        self._sum = 0
        self._images: dict[str, views.ImageRef] = {}
        self._distrusted: set[str] = set()
        self._patches: dict[str, views.PatchRef] = {}
        self._hosts: dict[str, views.HostRef] = {}
        self._held: dict[str, set[views.Key]] = {}
        # Parts of the last view that are still right.
        self._shown: dict[str, typing.Any] = {}
        self._view: views.SiteView | None = None
        self.generation = site_map.generation
        self._set_options(site_map.links, site_map.hops)
        for image in site_map.images:
            self._put_image(image)
        for patch in site_map.patches:
            self._put_patch(patch)
        for host in site_map.hosts:
            self._put_host(host)
            self._put_holdings(objects.HostHoldings(
                host=host.name, held=host.holdings))

    @property
    def digest(self) -> str:
        """The digest of what the map shows, but for times and rates."""
        return f'{self._sum:032x}'

    def apply(self, change: objects.MapChange) -> bool:
        """Apply a difference to the generation that it is of.

        :returns: whether the result is the map that the sender has; if not,
            this map is of no more use
        """
        if change.previous != self.generation or change.site != self._site:
            return False
        for image_id in change.gone_images:
            self._drop_image(image_id)
        for patch_id in change.gone_patches:
            self._drop_patch(patch_id)
        for name in change.gone_hosts:
            self._drop_host(name)
        for image in change.images:
            self._put_image(image)
        for patch in change.patches:
            self._put_patch(patch)
        for host in change.hosts:
            self._put_host(host)
        for holdings in change.holdings:
            self._put_holdings(holdings)
        if change.links is not None:
            self._set_options(change.links, change.hops)
        self.generation = change.generation
        self._view = None
        return change.digest in (None, self.digest)

    def view(self) -> views.SiteView:
        """Return the map in the form that look-ups work on."""
        if self._view is None:
            self._view = views.SiteView(
                self.generation, self._part('images', self._show_images),
                self._part('patches', self._show_patches),
                self._part('hosts', self._show_hosts), self._links,
                self._hops)
        return self._view

    def to_map(self) -> objects.SiteMap:
        """Return the map as it is kept in a file.

        It has what look-ups need; the rest of the conductor's map is lost.
        """
        return objects.SiteMap(
            site=self._site, generation=self.generation,
            images=[objects.Image(**dataclasses.asdict(ref))
                    for ref in self._images.values()],
            patches=[objects.Patch(**dataclasses.asdict(ref))
                     for ref in self._patches.values()],
            hosts=[self._to_host(name, ref)
                   for name, ref in self._hosts.items()],
            links=maps.of_links(self._links),
            hops=self._hops)

    def _to_host(self, name, ref):
        return objects.Host(
            name=name, site=self._site, role=ref.role, url=ref.url or None,
            alive=ref.alive, holdings=[
                objects.Holding(kind=key.kind, id=key.id)
                for key in sorted(self._held[name])])

    def _part(self, name, show):
        if name not in self._shown:
            self._shown[name] = show()
        return self._shown[name]

    def _show_images(self):
        return tuple(ref for image_id, ref
                     in sorted(self._images.items())
                     if image_id not in self._distrusted)

    def _show_patches(self):
        return tuple(sorted(self._patches.values(),
                            key=lambda ref: (ref.base, ref.target)))

    def _show_hosts(self):
        for name, ref in self._hosts.items():
            if len(ref.holdings) != len(self._held[name]) \
                    or ref.holdings != self._held[name]:
                self._hosts[name] = dataclasses.replace(
                    ref, holdings=frozenset(self._held[name]))
        return tuple(ref for _name, ref in sorted(self._hosts.items()))

    def _set_options(self, links, hops):
        self._links = maps.to_links(links)
        self._hops = hops

    def _put_image(self, image):
        self._drop_image(image.id)
        ref = self._images[image.id] = maps.to_image(image)
        self._count(1, 'image', *dataclasses.astuple(ref))
        if image.status == views.ACTIVE and not self._trusted(image):
            self._distrusted.add(image.id)

    def _drop_image(self, image_id):
        self._shown.pop('images', None)
        self._distrusted.discard(image_id)
        ref = self._images.pop(image_id, None)
        if ref is not None:
            self._count(-1, 'image', *dataclasses.astuple(ref))

    def _put_patch(self, patch):
        self._drop_patch(patch.id)
        ref = self._patches[patch.id] = maps.to_patch(patch)
        self._count(1, 'patch', ref.id, ref.base, ref.target, ref.size)

    def _drop_patch(self, patch_id):
        self._shown.pop('patches', None)
        ref = self._patches.pop(patch_id, None)
        if ref is not None:
            self._count(-1, 'patch', ref.id, ref.base, ref.target, ref.size)

    def _put_host(self, host):
        self._shown.pop('hosts', None)
        former = self._hosts.get(host.name)
        if former is not None:
            self._count_host(-1, former)
        ref = self._hosts[host.name] = views.HostRef(
            host.name, host.role, host.url or '', host.alive, frozenset())
        self._held.setdefault(host.name, set())
        self._count_host(1, ref)

    def _drop_host(self, name):
        self._shown.pop('hosts', None)
        former = self._hosts.pop(name, None)
        if former is not None:
            self._count_host(-1, former)
            for key in self._held.pop(name):
                self._count(-1, 'holding', name, *key)

    def _put_holdings(self, holdings):
        self._shown.pop('hosts', None)
        held = self._held.get(holdings.host)
        if held is None:
            return
        after = {maps.to_key(each.kind, each.id) for each in holdings.held}
        gone = held - after if holdings.whole else {
            maps.to_key(each.kind, each.id) for each in holdings.gone} & held
        for key in gone:
            self._count(-1, 'holding', holdings.host, *key)
        for key in after - held:
            self._count(1, 'holding', holdings.host, *key)
        held -= gone
        held |= after

    def _count_host(self, sign, ref):
        self._count(sign, 'host', ref.name, ref.role, ref.url, ref.alive)

    def _count(self, sign, *values):
        """Add the hash of something to the digest, or remove it."""
        found = hashlib.blake2b(repr(values).encode(), digest_size=16)
        self._sum = (self._sum + sign * int.from_bytes(found.digest())
                     ) % _MODULUS
