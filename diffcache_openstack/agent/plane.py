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
"""The native data plane, in this suite's types and errors."""

import pathlib
import typing

from diffcache_openstack import _native
from diffcache_openstack.blocks import native
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view as views

Progress = typing.Callable[[int, int], None]
# A local file, or an object at a peer.
Source = pathlib.Path | tuple[str, views.Key]


class Plane:
    """One host's data plane: its server and its transfers.

    :param data_plane: the native object, already listening
    :param name: this host, as it appears in claims
    """

    def __init__(self, data_plane: '_native.DataPlane', name: str) -> None:
        self._native = data_plane
        self.name = name

    @property
    def url(self) -> str:
        """Where peers reach this host."""
        return self._native.url

    def fetch(self, url: str, key: views.Key, dest: pathlib.Path,
              **options) -> dict:
        """Bring an object from a peer to dest, verified and atomic.

        :param options: manifest (path), rate (bytes/s), progress, cancel,
            durable (on the disk before it counts as there)
        :returns: ``bytes`` over the link, ``seconds``
        :raises DiffCacheError: by what happened; dest is untouched
        """
        options = {name: str(value) if isinstance(value, pathlib.Path)
                   else value for name, value in options.items()
                   if value is not None}
        with native.translated():
            return self._native.fetch(url, key.kind, key.id, str(dest),
                                      **options)

    def build(self, base: Source, patch: Source, manifest: pathlib.Path,
              dest: pathlib.Path, **options) -> dict:
        """Make a template from base and patch where they lie.

        :param options: rate (bytes/s), progress, cancel, durable
        :returns: ``bytes`` over the link, ``seconds``
        :raises DiffCacheError: by what happened; dest is untouched
        """
        options = {name: value for name, value in options.items()
                   if value is not None}
        with native.translated():
            return self._native.build(
                self._source(base), self._source(patch), str(manifest),
                str(dest), **options)

    def lend(self, key: views.Key, path: pathlib.Path,
             seconds: float) -> None:
        """Let peers read a file for a while, or until it changes."""
        with native.translated():
            self._native.lend(key.kind, key.id, str(path), float(seconds))

    def end_lending(self, key: views.Key) -> None:
        """Peers may no longer read what a fetch has lent to them."""
        with native.translated():
            self._native.lend(key.kind, key.id, '', 0.0)

    def claim(self, url: str, key: views.Key,
              suspect: str | None) -> tuple[str, str]:
        """Ask a coordinator who brings an object to the site.

        :param suspect: a holder found unable to deliver
        :returns: name and URL of the holder, which may be this host
        """
        with native.translated():
            return self._native.claim(url, key.kind, key.id, suspect)

    def release(self, url: str, key: views.Key) -> None:
        """Give a claim back."""
        with native.translated():
            self._native.release(url, key.kind, key.id)

    def readers(self, kind: str, object_id: str) -> int:
        """Open transfers of an object to peers."""
        return self._native.readers(kind, object_id)

    def stats(self) -> dict:
        """Counters since the start."""
        return self._native.stats()

    def reload_tls(self) -> None:
        """Read certificates and key again.

        :raises InvalidInput: they cannot be used; the old ones still are
        """
        with native.translated():
            self._native.reload_tls()

    def take_complaints(self) -> list[tuple[str, str, int]]:
        """What was wrong with connections to this host since the last call.

        :returns: the address, the reason, how often
        """
        return self._native.take_complaints()

    def set_rate(self, rate: float | None) -> None:
        """Change the limit of what this host sends, bytes/s."""
        self._native.set_rate(rate)

    def new_cancel(self) -> '_native.Cancel':
        """A token that ends one transfer."""
        return _native.Cancel()

    def close(self) -> None:
        """Stop serving."""
        self._native.close()

    @staticmethod
    def _source(source: Source) -> typing.Any:
        if isinstance(source, pathlib.Path):
            return str(source)
        url, key = source
        return (url, key.kind, key.id)


class NativeInspector:
    """Checks objects with the native core."""

    def quick(self, key: views.Key, path: pathlib.Path,
              manifest: pathlib.Path) -> None:
        """See :class:`diffcache_openstack.agent.state.holdings.Inspector`."""
        with native.translated():
            if key.kind == views.PATCHES:
                _native.patch_info(str(path))
            elif key.kind == views.RECIPES:
                _native.qcow2_patch_info(str(path))
            elif key.kind == views.MANIFESTS:
                self._right_manifest(key, path)
            elif not manifest.exists():
                raise exceptions.IntegrityError(
                    f'{key} has no manifest to verify it with; it will be '
                    f'fetched again.')
            else:
                self._right_size(key, path, manifest)

    def deep(self, key: views.Key, path: pathlib.Path,
             manifest: pathlib.Path) -> None:
        """See :class:`diffcache_openstack.agent.state.holdings.Inspector`."""
        with native.translated():
            if key.kind in (views.PATCHES, views.RECIPES):
                found = _native.hash_file(str(path))
                if found != key.id:
                    raise exceptions.IntegrityError(
                        f'{key} has the hash {found}; it will be fetched '
                        f'again.')
            elif key.kind == views.MANIFESTS:
                self._right_manifest(key, path)
            else:
                _native.manifest_verify(str(manifest), str(path))

    @staticmethod
    def _right_manifest(key: views.Key, path: pathlib.Path) -> None:
        found = _native.manifest_info(str(path))['content_id']
        if found != key.id:
            raise exceptions.IntegrityError(
                f'{key} describes {found}; it will be fetched again.')

    @staticmethod
    def _right_size(key: views.Key, path: pathlib.Path,
                    manifest: pathlib.Path) -> None:
        expected = _native.manifest_info(str(manifest))['size']
        found = path.stat().st_size
        if found != expected:
            raise exceptions.IntegrityError(
                f'{key} has {found} bytes instead of {expected}; it will be '
                f'fetched again.')
