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
"""Output files that appear whole or not at all.

Every command that writes a file writes it under a temporary name in the
same directory and renames it. A crash leaves at worst a hidden
``.NAME.XXXXXXXX.tmp`` beside the output; an error leaves nothing.
"""

import contextlib
import errno
import os
import secrets
from typing import Iterator

from diffcache_openstack.common import exceptions

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def check_readable(path: str, role: str) -> int:
    """Return the size in bytes of the file an operator named.

    :param role: what the file is to the operation: "base", "patch", ...
    :raises NotFound: it does not exist or cannot be read
    :raises InvalidInput: it is not a regular file or block device
    """
    try:
        with open(path, 'rb') as stream:
            return stream.seek(0, os.SEEK_END)
    except FileNotFoundError as exc:
        raise exceptions.NotFound(
            f'The {role} {path} does not exist; check the path.') from exc
    except IsADirectoryError as exc:
        raise exceptions.InvalidInput(
            f'The {role} {path} is a directory; name a file.') from exc
    except OSError as exc:
        raise exceptions.NotFound(
            f'The {role} {path} cannot be read: {exc.strerror}.') from exc


@contextlib.contextmanager
def translate_os_errors(path: str) -> Iterator[None]:
    """Turn operating system errors about ``path`` into this suite's.

    :raises NoSpace: the filesystem, quota or file size limit is exhausted
    :raises NotFound: the directory of ``path`` does not exist
    :raises InvalidInput: ``path`` cannot be written
    """
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL:
            raise exceptions.NoSpace(
                f'No space to write {path} ({exc.strerror}); free some and '
                'try again.') from exc
        if isinstance(exc, FileNotFoundError):
            raise exceptions.NotFound(
                f'The directory of {path} does not exist; create it '
                'first.') from exc
        raise exceptions.InvalidInput(
            f'Cannot write {path}: {exc.strerror}.') from exc


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[str]:
    """Give a temporary path that becomes ``path`` if the block succeeds.

    The temporary file is created empty, with the permissions a new file
    gets from the umask. When the block raises, it is removed and ``path``
    keeps whatever it held before.
    """
    directory, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(
        directory, f'.{name[:200]}.{secrets.token_hex(4)}.tmp')
    with translate_os_errors(path):
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                         0o666))
    try:
        yield temporary
        with translate_os_errors(path):
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
