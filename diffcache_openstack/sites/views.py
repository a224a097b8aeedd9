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
"""The view of a site that an agent has: the last site map, in plain form.

The conductor sends the map; the agent keeps it on disk and serves from it,
so that a dead conductor costs freshness and nothing else.
"""

import bisect
import dataclasses
import functools
import math
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.placement import ways

IMAGES = 'images'
PATCHES = 'patches'
MANIFESTS = 'manifests'
RECIPES = 'recipes'
# Images as they cross a WAN; the repository alone has them.
COMPRESSED = 'compressed'
KINDS = (MANIFESTS, IMAGES, PATCHES, RECIPES, COMPRESSED)
# Useful only beside something that the plan is about.
UNPLANNED = (MANIFESTS, RECIPES, COMPRESSED)
_SINGULAR = {IMAGES: 'image', PATCHES: 'patch', MANIFESTS: 'manifest',
             RECIPES: 'recipe', COMPRESSED: 'compressed form',
             'files': 'file'}
ACTIVE = 'active'
DEACTIVATED = 'deactivated'
DELETED = 'deleted'

REPOSITORY_ROLE = 'repository'

MEGABYTE = 1e6

_LEAF = 65536
# Bytes of a manifest: of its header at most, and for each leaf.
_MANIFEST_HEAD = 4096
_MANIFEST_LEAF = 33


class Key(typing.NamedTuple):
    """An object of the data plane: its kind and its content's hash."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f'{_SINGULAR[self.kind]} {self.id}'


@dataclasses.dataclass(frozen=True)
class ImageRef:
    """An image of the catalogue.

    :param id: what requests name, an image's UUID
    :param content_id: hash of its raw content
    :param size: bytes a guest sees
    :param data_size: bytes that are not zero
    :param disk_format: raw or qcow2, of the file that Glance has
    :param file_size: bytes of that file
    :param os_hash_value: its hash, which Glance vouches for, made with
        os_hash_algo
    :param status: only what is active may be served
    :param form_id: of the recipe that makes the file of the raw content;
        None where the file is the raw content
    :param form_size: bytes of the recipe
    :param record: the repository's signed statement that the file has this
        content
    :param compressed_size: bytes of the form that the repository sends; none
        if it has none, or does not say
    """

    id: str
    name: str
    content_id: str
    size: int
    data_size: int
    disk_format: str = 'raw'
    file_size: int = 0
    os_hash_algo: str | None = None
    os_hash_value: str | None = None
    owner: str | None = None
    visibility: str = 'public'
    status: str = ACTIVE
    form_id: str | None = None
    form_size: int = 0
    family: str | None = None
    record: str | None = None
    compressed_size: int | None = None

    @property
    def wire_size(self) -> int:
        """Bytes that cross the WAN if the content is read there."""
        return min(self.compressed_size or self.data_size, self.data_size)


@dataclasses.dataclass(frozen=True)
class PatchRef:
    """A patch: base and target are content ids, size is in bytes."""

    id: str
    base: str
    target: str
    size: int
    apply_seconds: float

    @functools.cached_property
    def key(self) -> Key:
        """The patch as an object of the data plane."""
        return Key(PATCHES, self.id)


@dataclasses.dataclass(frozen=True)
class HostRef:
    """A host of the site, or the repository, and what it reported to hold."""

    name: str
    role: str
    url: str
    alive: bool
    holdings: frozenset[Key]


class HostLinks(typing.NamedTuple):
    """Mbit/s that a host receives at from a peer and over the WAN."""

    host: str
    peer: float
    repo: float


@dataclasses.dataclass(frozen=True)
class Links:
    """Mbit/s that a host receives at from its disk, a peer, the WAN.

    :param hosts: those that differ from the others
    :param repositories: names of repositories with other rates than ``repo``,
        and their rates
    """

    local: float = 400.0
    peer: float = 200.0
    repo: float = 10.0
    hosts: tuple[HostLinks, ...] = ()
    repositories: tuple[tuple[str, float], ...] = ()

    def of(self, host: str) -> 'Links':
        """Return the links of one host.

        One with a thinner WAN than its site has it to all repositories.
        """
        for own in self.hosts:
            if own.host == host:
                most = own.repo if own.repo < self.repo else math.inf
                return Links(self.local, own.peer, own.repo, (), tuple(
                    (name, min(mbps, most))
                    for name, mbps in self.repositories))
        return dataclasses.replace(self, hosts=()) if self.hosts else self

    def from_repository(self, name: str) -> float:
        """Return the Mbit/s from a repository."""
        return dict(self.repositories).get(name, self.repo)

    def fastest_repository(self, names: typing.Iterable[str]) -> float:
        """Return the Mbit/s from the fastest of some repositories."""
        return max(map(self.from_repository, names), default=self.repo)


class PatchIndex:
    """Patches by target, of each pair of images the smallest.

    :param holders: by object the hosts that hold it
    :param links: rates that hosts receive at
    """

    def __init__(self, patches: typing.Iterable[PatchRef],
                 holders: typing.Container[Key], links: Links) -> None:
        self._holders = holders
        self._links = links
        self._smallest: dict[str, dict[str, PatchRef]] = {}
        for patch in patches:
            by_base = self._smallest.setdefault(patch.target, {})
            best = by_base.get(patch.base)
            if patch.base != patch.target \
                    and (best is None or patch.size < best.size):
                by_base[patch.base] = patch
        self._from_peers: dict[str, list[ways.Step]] = {}
        self._from_repository: dict[tuple[str, float], list[ways.Step]] = {}

    def __contains__(self, patch: PatchRef) -> bool:
        return self._smallest[patch.target].get(patch.base) is patch

    def from_peers(self, target: str) -> list[ways.Step]:
        """List the patches to an image that some host of the site holds.

        :returns: with the seconds to fetch them from a peer and to apply
            them, cheapest first
        """
        steps = self._from_peers.get(target)
        if steps is None:
            steps = self._from_peers[target] = self._steps((
                patch for patch in self._smallest.get(target, {}).values()
                if patch.key in self._holders), self._links.peer)
        return steps

    def from_repository(self, target: str, mbps: float) -> list[ways.Step]:
        """List the patches to an image.

        :param mbps: the rate of the link to a repository
        :returns: with the seconds to fetch them at that rate and to apply
            them, cheapest first
        """
        steps = self._from_repository.get((target, mbps))
        if steps is None:
            steps = self._from_repository[target, mbps] = self._steps(
                self._smallest.get(target, {}).values(), mbps)
        return steps

    def _steps(self, patches, mbps) -> list[ways.Step]:
        return sorted((patch_step(patch, mbps) for patch in patches),
                      key=_step_seconds)


def steps_within(steps: list[ways.Step], seconds: float) -> list[ways.Step]:
    """Return the steps that take less than some seconds.

    :param steps: cheapest first
    """
    return steps[:bisect.bisect_left(steps, seconds, key=_step_seconds)]


def _step_seconds(step: ways.Step) -> float:
    return step.seconds


def patch_step(patch: PatchRef, mbps: float) -> ways.Step:
    """Return what a patch adds to a chain if it is fetched at some rate."""
    seconds = ways.fetch_seconds(patch.size / MEGABYTE, mbps)
    return ways.Step(seconds + patch.apply_seconds, patch.base, patch)


@dataclasses.dataclass(frozen=True)
class SiteView:
    """One generation of the site map.

    :param hops: patches that may be applied one after another; 0 if the map
        does not say
    """

    generation: int = 0
    images: tuple[ImageRef, ...] = ()
    patches: tuple[PatchRef, ...] = ()
    hosts: tuple[HostRef, ...] = ()
    links: Links = Links()
    hops: int = 0

    def image(self, image_id: str) -> ImageRef:
        """Return the image that a request names.

        :raises NotFound: the map has no such image, or it was withdrawn
        """
        image = self._by_id.get(image_id)
        if image is not None and image.status == ACTIVE:
            return image
        if image is not None:
            raise exceptions.NotFound(
                f'Image {image_id} is {image.status} in Glance, so it '
                f'is not served; use another image, or have it reactivated '
                f'there if it still exists.')
        raise exceptions.NotFound(
            f'Image {image_id} is not in the catalogue (site map '
            f'generation {self.generation}); check the id, or register the '
            f'image at the repository.')

    def has(self, image_id: str) -> bool:
        """Return whether the map has an image, withdrawn ones too."""
        return image_id in self._by_id

    def content(self, content_id: str) -> ImageRef | None:
        """Return an image with this content, if the catalogue has one."""
        return self._by_content.get(content_id)

    def patch(self, patch_id: str) -> PatchRef | None:
        """Return the patch with this id, if the catalogue has it."""
        return self._by_patch_id.get(patch_id)

    def patches_into(self, links: Links) -> 'PatchIndex':
        """Return the patches by target, for a host with some links."""
        found = self._patch_indexes.get(links)
        if found is None:
            found = self._patch_indexes[links] = PatchIndex(
                self.patches, self.holders, links)
        return found

    @functools.cached_property
    def _patch_indexes(self) -> dict[Links, 'PatchIndex']:
        return {}

    @functools.cached_property
    def _by_id(self) -> dict[str, ImageRef]:
        return {t.id: t for t in self.images}

    @functools.cached_property
    def _by_content(self) -> dict[str, ImageRef]:
        # Of several images with one content the first counts.
        return {t.content_id: t for t in reversed(self.images)
                if t.status == ACTIVE}

    @functools.cached_property
    def withdrawn_contents(self) -> frozenset[str]:
        """Contents that no active image has, and a withdrawn one does."""
        return frozenset(t.content_id for t in self.images
                         if t.content_id not in self._by_content)

    @functools.cached_property
    def images_with_recipe(self) -> dict[str, tuple[ImageRef, ...]]:
        """By content, the active images whose file is built with a recipe."""
        found: dict[str, tuple[ImageRef, ...]] = {}
        for image in self.images:
            if image.form_id and image.status == ACTIVE:
                found[image.content_id] = (
                    *found.get(image.content_id, ()), image)
        return found

    @functools.cached_property
    def _recipe_sizes(self) -> dict[str, int]:
        return {t.form_id: t.form_size for t in self.images
                if t.form_id and t.status == ACTIVE}

    @functools.cached_property
    def _by_patch_id(self) -> dict[str, PatchRef]:
        return {patch.id: patch for patch in self.patches}

    @functools.cached_property
    def holders(self) -> dict[Key, tuple[str, ...]]:
        """By object the compute hosts that are alive and hold it."""
        found: dict[Key, list[str]] = {}
        for host in self.compute_hosts():
            for key in host.holdings if host.alive else ():
                found.setdefault(key, []).append(host.name)
        return {key: tuple(names) for key, names in found.items()}

    def host(self, name: str) -> HostRef | None:
        """Return the host of this name."""
        for host in self.hosts:
            if host.name == name:
                return host
        return None

    def holdings(self, name: str) -> frozenset[Key]:
        """Return what a host holds; nothing for an unknown host."""
        host = self.host(name)
        return host.holdings if host else frozenset()

    @functools.cached_property
    def repositories(self) -> dict[str, HostRef]:
        """The hosts with the role of a repository, by name."""
        return {host.name: host for host in self.hosts
                if host.role == REPOSITORY_ROLE}

    def repositories_with(self, key: Key) -> tuple[str, ...]:
        """Return the names of the repositories that hold an object.

        A single one holds all objects. If none of several reported to hold
        this one, any may have it.
        """
        holders = self._repository_holders.get(key)
        return holders or tuple(self.repositories)

    @functools.cached_property
    def _repository_holders(self) -> dict[Key, tuple[str, ...]]:
        if len(self.repositories) < 2:
            return {}
        found: dict[Key, list[str]] = {}
        for host in self.repositories.values():
            for key in host.holdings:
                found.setdefault(key, []).append(host.name)
        return {key: tuple(names) for key, names in found.items()}

    def compute_hosts(self) -> list[HostRef]:
        """List the hosts of the site without the repository."""
        return [h for h in self.hosts if h.role != REPOSITORY_ROLE]

    def max_size_of(self, key: Key) -> int | None:
        """Return the most bytes that an object's file can have.

        Of images the bytes a guest sees, of which zeros take no space.

        :returns: None if the catalogue does not say
        """
        if key.kind in (PATCHES, RECIPES):
            return self.size_of(key)
        image = self.content(key.id)
        if image is None or key.kind != MANIFESTS:
            return image.size if image else None
        leaves = -(-image.size // _LEAF)
        return _MANIFEST_HEAD + leaves * _MANIFEST_LEAF

    def size_of(self, key: Key) -> int | None:
        """Return the bytes that an object takes on disk; None if unknown."""
        if key.kind == PATCHES:
            patch = self.patch(key.id)
            return patch.size if patch else None
        if key.kind == RECIPES:
            return self._recipe_sizes.get(key.id)
        image = self.content(key.id)
        return image.data_size if image else None

    def wire_size_of(self, key: Key) -> int | None:
        """Return the bytes that cross the WAN with an object.

        :returns: None if unknown
        """
        image = self.content(key.id) if key.kind == IMAGES else None
        return image.wire_size if image else self.size_of(key)
