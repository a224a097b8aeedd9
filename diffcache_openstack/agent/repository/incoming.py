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
"""Image files that an administrator has the repository register by path."""

import collections.abc
import contextlib
import os
import pathlib
import stat

from diffcache_openstack.common import exceptions


class Incoming:
    """Directories whose files may be registered.

    A request names a path of this host, and what is registered can be read at
    every site. So only files of these directories are taken.

    :param directories: allowed, with their subdirectories
    """

    def __init__(self, directories: collections.abc.Iterable[str]) -> None:
        self._directories = [pathlib.Path(name) for name in directories]

    @contextlib.contextmanager
    def open(self, path: str) -> collections.abc.Iterator[pathlib.Path]:
        """Open a file; yield a path that stays that file's.

        :raises InvalidInput: it is no regular file, or in none of the
            directories
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                         | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise exceptions.InvalidInput(
                f'The image {path} cannot be read: {error}; give the path of'
                f' a raw image on the repository\'s host.') from error
        try:
            opened = pathlib.Path(f'/proc/self/fd/{fd}')
            # Of the open file, however links are exchanged meanwhile.
            self._check(path, pathlib.Path(os.readlink(opened)))
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise exceptions.InvalidInput(
                    f'The image {path} is no regular file.')
            yield opened
        finally:
            os.close(fd)

    def _check(self, path: str, real: pathlib.Path) -> None:
        if not any(real.is_relative_to(os.path.realpath(directory))
                   for directory in self._directories):
            raise exceptions.InvalidInput(
                f'The image {path} is below none of [repository]'
                f' image_directories; move it there, or add its directory.')
