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
"""A filesystem that loses its power.

What was not made durable is gone then, in whole or in part: data that were
written, names that were given, files that were replaced. The ext4 driver
itself decides what that is: it is told to stop without writing anything
more, and the filesystem is mounted again.
"""

import fcntl
import functools
import gc
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time

_BYTES = 256 << 20
# Files that replace others are not written by themselves, and the journal
# only when it is asked to: as little as possible is durable by chance.
_OPTIONS = 'data=writeback,noauto_da_alloc,commit=300'
# FS_IOC_SHUTDOWN of Linux's fs.h, and not to write the journal before.
_SHUTDOWN = 0x8004587d
_AT_ONCE = struct.pack('I', 2)
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.01


def _run(*words: object) -> str:
    return subprocess.run([str(word) for word in words], check=True,
                          capture_output=True, text=True).stdout.strip()


class Filesystem:
    """An ext4 filesystem in a file, mounted until :meth:`close`."""

    def __init__(self, directory: pathlib.Path) -> None:
        image = directory / 'filesystem'
        self.root = directory / 'mounted'
        self.root.mkdir()
        with open(image, 'wb') as stream:
            stream.truncate(_BYTES)
        _run('mkfs.ext4', '-q', '-E', 'nodiscard', image)
        # One that mount takes is given back a moment after it is unmounted.
        self._device = _run('losetup', '--find', '--show', image)
        self._mount()

    def _mount(self) -> None:
        _run('mount', '-o', _OPTIONS, self._device, self.root)

    def make_durable(self) -> None:
        """Write all that was changed."""
        _run('sync', '-f', self.root)

    def cut(self) -> None:
        """Cut the power: whatever is still done fails."""
        directory = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, _AT_ONCE)
        finally:
            os.close(directory)

    def restore(self) -> None:
        """Have power again; nobody may use the filesystem meanwhile."""
        self._unmount()
        self._mount()

    def close(self) -> None:
        """Unmount it."""
        self._unmount()
        _run('losetup', '--detach', self._device)

    def _unmount(self) -> None:
        """Unmount it, once those that were killed have left it."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            # Readers close their files when they are collected.
            gc.collect()
            try:
                _run('umount', self.root)
                return
            except subprocess.CalledProcessError as exc:
                if ('busy' not in exc.stderr
                        or time.monotonic() > deadline):
                    raise
            time.sleep(_POLL_SECONDS)


@functools.cache
def is_possible() -> bool:
    """Whether filesystems can be mounted here."""
    if os.geteuid() != 0 or shutil.which('mkfs.ext4') is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        try:
            Filesystem(pathlib.Path(directory)).close()
        except subprocess.CalledProcessError:
            return False
    return True
