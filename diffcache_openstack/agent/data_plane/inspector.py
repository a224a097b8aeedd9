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
"""Checks of objects with the native core."""

import pathlib
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views


class NativeInspector:
    """Checks whether an object's file has the content that its name says."""

    def quick(self, key: views.Key, path: pathlib.Path,
              manifest: pathlib.Path) -> None:
        """Check sizes and headers only.

        :raises IntegrityError: the file cannot be this object
        :raises FormatError: the file cannot be this object
        :raises InvalidInput: the file cannot be this object
        :raises OSError: it cannot be read, which says nothing of it
        """
        with native_errors.translated():
            if key.kind == views.PATCHES:
                _native.patch_info(str(path))
            elif key.kind == views.RECIPES:
                _native.qcow2_patch_info(str(path))
            elif key.kind == views.MANIFESTS:
                self._right_manifest(key, path)
            else:
                self._need_manifest(key, manifest)
                if key.kind == views.COMPRESSED:
                    _native.compressed_check(str(path), str(manifest))
                else:
                    self._right_size(key, path, manifest)

    def deep(self, key: views.Key, path: pathlib.Path,
             manifest: pathlib.Path) -> None:
        """Read and hash all of it.

        :raises IntegrityError: the file is not this object
        :raises FormatError: the file is not this object
        :raises InvalidInput: the file is not this object
        :raises OSError: it cannot be read, which says nothing of it
        """
        self._read(key, path, manifest)

    def slowly(self, key: views.Key, path: pathlib.Path,
               manifest: pathlib.Path, pace: holdings.Pace) -> None:
        """Do as ``deep``, from the disk, beside the host's other work.

        :raises Exception: what the progress of the pace raised
        """
        self._read(key, path, manifest, rate=pace.rate,
                   progress=pace.progress)

    def _read(self, key: views.Key, path: pathlib.Path,
              manifest: pathlib.Path, **options: typing.Any) -> None:
        """Read and hash an object.

        :param options: of the native functions that do it
        """
        with native_errors.translated():
            if key.kind in (views.PATCHES, views.RECIPES):
                found = _native.hash_file(str(path), **options)
                if found != key.id:
                    raise exceptions.IntegrityError(
                        f'{key} has the hash {found}; it will be fetched '
                        f'again.')
            elif key.kind == views.MANIFESTS:
                self._right_manifest(key, path)
            else:
                self._need_manifest(key, manifest)
                if key.kind == views.COMPRESSED:
                    _native.compressed_verify(str(path), str(manifest),
                                              **options)
                else:
                    _native.manifest_verify(str(manifest), str(path),
                                            **options)

    @staticmethod
    def _need_manifest(key: views.Key, manifest: pathlib.Path) -> None:
        try:
            manifest.stat()
        except FileNotFoundError:
            raise exceptions.IntegrityError(
                f'{key} has no manifest to verify it with; it will be '
                f'fetched again.') from None

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
