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
"""The key that the agents of a deployment share.

A key file holds one line of 64 hexadecimal digits, 256 random bits.
"""

import os
import re
import secrets

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import permissions

KEY_BYTES = 32
_LARGEST = 1 << 16
_PATTERN = re.compile(r'[0-9a-fA-F]{64}')


def read_key(path: str | os.PathLike) -> bytes:
    """Read a key of 32 bytes from a file.

    :raises InvalidInput: the file cannot be read, a user besides its owner
        may access it, or it holds no key; the message never quotes the content
    """
    try:
        text = read_secret(path).decode('ascii').strip()
    except UnicodeDecodeError as error:
        raise _no_key(path) from error
    if not _PATTERN.fullmatch(text):
        raise _no_key(path)
    return bytes.fromhex(text)


def read_secret(path: str | os.PathLike) -> bytes:
    """Return the content of a file that only its owner may access.

    :raises InvalidInput: the file cannot be read, or a user besides its owner
        may access it
    """
    try:
        with open(path, 'rb') as source:
            permissions.check_secret(source, path)
            content = source.read(_LARGEST)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'Key file {path}: {error.strerror}; make one with'
            f' "diffcache-manage key create" (the key that all hosts share,'
            f' which may be copied) or "diffcache-manage host-key create"'
            f' (that of one host).') from error
    return content


def create_key(path: str | os.PathLike) -> None:
    """Write a new random key to a file that does not exist yet.

    :raises Conflict: the file exists; nothing is changed
    :raises InvalidInput: the file cannot be written
    """
    write_secret(path, secrets.token_hex(KEY_BYTES).encode() + b'\n')


def write_secret(path: str | os.PathLike, content: bytes) -> None:
    """Write a file that only its owner may access, and that is new.

    :raises Conflict: the file exists; nothing is changed
    :raises InvalidInput: the file cannot be written
    """
    write_new(path, content, 0o600)


def write_new(path: str | os.PathLike, content: bytes, mode: int) -> None:
    """Write a file that does not exist yet.

    :raises Conflict: the file exists; nothing is changed
    :raises InvalidInput: the file cannot be written
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise exceptions.Conflict(
            f'Key file {path} exists; remove it first if its hosts are to get'
            f' a new key.') from error
    except OSError as error:
        raise exceptions.InvalidInput(
            f'Key file {path}: {error.strerror}; choose another path.'
        ) from error
    with open(fd, 'wb') as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())


def _no_key(path: str | os.PathLike) -> exceptions.InvalidInput:
    return exceptions.InvalidInput(
        f'Key file {path} does not hold 64 hexadecimal digits; make one with'
        f' "diffcache-manage key create".')
