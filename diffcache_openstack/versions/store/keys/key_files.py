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
"""Files of administrators that have the key of a version store."""

import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import permissions

KEY_BYTES = 32
# More than any file with a key has.
_KEY_FILE_BYTES = 1024


def read_key(path: pathlib.Path) -> bytes:
    """Read a key from a file: 32 bytes, or 64 hex digits.

    :raises InvalidInput: the file cannot be read, has no key, or other users
        may read it
    """
    try:
        with open(path, 'rb') as stream:
            permissions.check_secret(stream, path, group=True)
            data = stream.read(_KEY_FILE_BYTES)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'Cannot read the key file {path}: {error.strerror}; check the '
            f'path.') from error
    if len(data) == KEY_BYTES:
        return data
    try:
        key = bytes.fromhex(data.decode())
    except ValueError:
        key = b''
    if len(key) != KEY_BYTES:
        raise exceptions.InvalidInput(
            f'{path} has no valid key: write 64 hex digits into it')
    return key
