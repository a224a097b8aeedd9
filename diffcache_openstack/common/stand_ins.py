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
"""Images that stand for versions of servers in Glance.

Nova requires an image with a file. That of a stand-in only says what it is:
Nova's driver has the bytes of the disk come from the version store.
"""

import collections.abc
import hashlib
import typing

# The property of a stand-in that has the ID of its version.
PROPERTY = 'diffcache_lazy_version'


def content(version_id: str) -> bytes:
    """Return the file of the image that stands for a version."""
    return (f'This image stands for version {version_id} of a server. It has'
            f' no disk: hosts with the Nova driver of DiffCache bring that'
            f' from the version store.\n').encode()


def version_of(properties: collections.abc.Mapping[str, typing.Any],
               algorithm: str | None, digest: str | None) -> str | None:
    """Return the version that an image stands for.

    Nova copies properties to the snapshots of a server: the hash of its file
    distinguishes a stand-in from them.

    :param algorithm: of the hash of the image's file
    :param digest: that hash, in hex
    :returns: None if the image is what its file is
    """
    version_id = properties.get(PROPERTY)
    if not version_id or algorithm not in hashlib.algorithms_available:
        return None
    expected = hashlib.new(str(algorithm), content(str(version_id)))
    return str(version_id) if expected.hexdigest() == digest else None
