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
"""Profiles of images in files: what diffcached, tools and users exchange."""

import collections.abc
import typing

from diffcache_openstack.common import exceptions

# Of profiles in files, and of diffcached's.
FORMAT = 1
# Bytes of a chunk, as diffcached counts reads.
CHUNK = 256 << 10


def document(chunk: int, rows: collections.abc.Sequence
             ) -> dict[str, typing.Any]:
    """Return a profile as it is in a file, in JSON.

    :param chunk: bytes of a chunk
    :param rows: [chunk, count, mean_us]
    """
    return {'format': FORMAT, 'chunk': chunk, 'profile': rows}


def check_format(path: str, found: typing.Any) -> None:
    """Check that a document of a file is a profile that can be read.

    :raises InvalidInput: it is none, or one of another format
    """
    if not isinstance(found, dict) or 'format' not in found:
        raise exceptions.InvalidInput(
            f'{path} is no profile: there is no "format"; name the output of'
            f' diffcache lazy replay or openstack image profile export')
    if found['format'] != FORMAT:
        raise exceptions.InvalidInput(
            f'{path} is a profile of format {found["format"]!r}, and this'
            f' program reads format {FORMAT} alone')
