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
"""A saved version as what ``diffcache lazy serve`` serves."""

import argparse
import os
import pathlib
from typing import Any

from diffcache_openstack.cmd.toolbox import version as version_commands
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.indexes import base_images

# In the state folder.
_MANIFEST = 'version.manifest'


def configure(args: argparse.Namespace, config: dict[str, Any]) -> None:
    """Let diffcached's configuration name a version as the source.

    What it opens for that stays open: diffcached inherits it.

    :raises NotFound: there is no such version, or no manifest of it
    :raises InvalidInput: its store has no files on this host
    :raises BaseMismatch: ``--base`` is not its base image
    """
    store = version_commands.open_store(args)
    version = store.version(args.image)
    base_images.check(version, args.base)
    if config['manifest'] is None:
        config['manifest'] = _kept_manifest(store, version.id,
                                            config['state'])
    described = store.describe(version.id)
    place = {'version': version.id, 'description': str(described.path)}
    if args.base is not None:
        place['base'] = os.path.abspath(args.base)
    config['sources'] = [place]


def _kept_manifest(store: Any, version_id: str, state: str) -> str:
    """Write the manifest that a store keeps to the state folder.

    :raises NotFound: it keeps none
    """
    path = pathlib.Path(state) / _MANIFEST
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'Cannot create {path.parent}: {error.strerror}') from error
    store.load_manifest(version_id, path)
    return str(path)
