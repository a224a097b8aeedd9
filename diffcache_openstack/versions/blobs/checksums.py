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
"""Small blobs that end with the SHA-256 of what is before it."""

import hashlib
import os
import pathlib

from diffcache_openstack.common import exceptions

_BYTES = 32


def append(body: bytes) -> bytes:
    """Return a body followed by its checksum."""
    return body + hashlib.sha256(body).digest()


def of_file(path: pathlib.Path) -> str:
    """Return the checksum that an index or a map ends with, in hex."""
    with open(path, 'rb') as stream:
        stream.seek(-_BYTES, os.SEEK_END)
        return stream.read().hex()


def strip(data: bytes, name: str) -> bytes:
    """Return the body of a blob that ends with its checksum.

    :param name: of the blob, for messages
    :raises IntegrityError: the checksum does not match
    """
    body, checksum = data[:-_BYTES], data[-_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise exceptions.IntegrityError(
            f'{name} is damaged: its bytes do not match its checksum.')
    return body
