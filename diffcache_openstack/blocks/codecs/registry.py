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
"""The codecs that are installed, by name and by a patch's first bytes.

Codecs are entry points of the stevedore namespace
``diffcache.patch.codecs``, so a distribution can add its own.
"""

import functools

import stevedore

from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions

NAMESPACE = 'diffcache.patch.codecs'


@functools.cache
def _codecs() -> dict[str, codec_base.PatchCodec]:
    manager = stevedore.ExtensionManager(NAMESPACE)
    return {extension.name: extension.plugin() for extension in manager}


def names() -> list[str]:
    """Return the names of the installed codecs, sorted."""
    return sorted(_codecs())


def random_access_names() -> list[str]:
    """Return the names of those whose targets are readable in part."""
    return [name for name in names() if get(name).random_access]


def get(name: str) -> codec_base.PatchCodec:
    """Return the codec called ``name``.

    :raises InvalidInput: no such codec is installed
    """
    try:
        return _codecs()[name]
    except KeyError as exc:
        raise exceptions.InvalidInput(
            f'There is no patch codec {name!r}; installed are '
            f'{", ".join(names())}.') from exc


def detect(patch: str) -> codec_base.PatchCodec:
    """Return the codec of ``patch``, detected from its first bytes.

    :raises NotFound: the patch does not exist or cannot be read
    :raises FormatError: no installed codec knows the format
    """
    operands.check_readable(patch, 'patch')
    with open(patch, 'rb') as stream:
        head = stream.read(codec_base.HEAD_SIZE)
    for codec in _codecs().values():
        if codec.recognises(head):
            return codec
    raise exceptions.FormatError(
        f'{patch} is not a patch of any installed codec '
        f'({", ".join(names())}); it may be truncated or another file.')
