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
"""The store that a URI names."""

import pathlib
from typing import TYPE_CHECKING
import urllib.parse

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import upload_ledger

if TYPE_CHECKING:
    from oslo_config import cfg


def open_store(uri: str, config_files: list[str] | None = None,
               part: str = '',
               ledger: upload_ledger.UploadLedger | None = None
               ) -> base.BlobStore:
    """Open the store that ``uri`` names, or a part of it.

    ``file:///directory`` is a directory of this host. ``glance:DRIVER`` is a
    store of glance_store, whose options are those of the group
    ``glance_store`` in ``config_files``; ``PREFIX`` in
    ``glance:DRIVER:PREFIX`` is how that driver's locations begin, where the
    options do not tell.

    :param part: the name of one of several stores in the same place
    :param ledger: notes what this host puts where blobs cannot be listed
    :raises InvalidInput: the URI names no store
    """
    if directory := directory_of(uri):
        return file.FileStore(directory / part)
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme == 'glance' and parts.path:
        return _open_glance(parts.path, config_files or [], part, ledger)
    raise exceptions.InvalidInput(
        f'{uri!r} names no store: write file:///directory or glance:DRIVER')


def open_to_read(uri: str, config_files: list[str] | None = None,
                 part: str = '',
                 ledger: upload_ledger.UploadLedger | None = None
                 ) -> base.BlobStore:
    """Open a store that this process only reads, and may not be able to write.

    :raises InvalidInput: the URI names no store
    """
    if directory := directory_of(uri):
        return file.FileStore.existing(directory / part)
    return open_store(uri, config_files, part, ledger)


def directory_of(uri: str) -> pathlib.Path | None:
    """Return the directory that ``file:///directory`` names."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme == 'file' and not parts.netloc and parts.path:
        return pathlib.Path(urllib.parse.unquote(parts.path))
    return None


def _open_glance(path: str, config_files: list[str], part: str,
                 ledger: upload_ledger.UploadLedger | None
                 ) -> base.BlobStore:
    # Takes a third of a second, and most stores are directories.
    from oslo_config import cfg

    from diffcache_openstack.versions.blobs import glance
    driver, _, prefix = path.partition(':')
    conf = cfg.ConfigOpts()
    conf([], project='diffcache', default_config_files=config_files)
    store = glance.load_driver(conf, driver)
    return glance.GlanceStore(store, driver, prefix or _prefix(conf, driver),
                              part=part, ledger=ledger)


def _prefix(conf: 'cfg.ConfigOpts', driver: str) -> str:
    options = conf.glance_store
    if driver == 'file':
        return f'file://{options.filesystem_store_datadir}'
    if driver == 's3':
        scheme, _, host = options.s3_store_host.partition('://')
        user = (f'{options.s3_store_access_key}:'
                f'{options.s3_store_secret_key}')
        kind = 's3+https' if scheme == 'https' else 's3'
        return f'{kind}://{user}@{host}/{options.s3_store_bucket}'
    raise exceptions.InvalidInput(
        f'How locations of the store {driver} begin is not known: write '
        f'glance:{driver}:PREFIX')
