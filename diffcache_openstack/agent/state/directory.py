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
"""The directory with the agent's state: who may use it."""

import contextlib
import fcntl
import logging
import os
import pathlib
import stat
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import permissions

LOG = logging.getLogger(__name__)

# What the agent stores. Other services may have files of their own beside.
_DIRECTORIES = ('damaged', 'deliveries', 'files', 'objects', 'outputs',
                'requests', 'versions')
_REPOSITORY = ('images', 'patches', 'sketches')
_FILES = ('borrowed.json', 'lock', 'plan.json', 'revoked_keys.json',
          'seals.json', 'site_map.json', 'site_map.json.changes', 'usage.json')
# Nova and Glance reach the socket, which is in the directory by default.
_TRAVERSED = 0o711


@contextlib.contextmanager
def used_by_one(state: pathlib.Path) -> typing.Iterator[None]:
    """Create the state directory if it is missing, and hold its lock.

    No other user may read what the agent stores in it, whatever the umask.

    :raises InvalidInput: this user may not write to it
    :raises Conflict: another agent uses it
    """
    try:
        _create(state)
        fd = os.open(state / 'lock', os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                     0o600)
    except OSError as error:
        raise _unusable(state, error) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise exceptions.Conflict(
                f'Another agent uses {state}; stop it, or give this one '
                f'another [agent] state_dir.') from error
        try:
            _protect(state)
        except OSError as error:
            raise _unusable(state, error) from error
        yield
    finally:
        os.close(fd)


def _create(state: pathlib.Path) -> None:
    missing = [path for path in (state, *state.parents)
               if not files.is_there(path)]
    state.mkdir(parents=True, exist_ok=True)
    for path in missing:
        # Whatever the umask, the socket has to be reached through it.
        path.chmod(_TRAVERSED)


def _unusable(state: pathlib.Path, error: OSError) -> exceptions.InvalidInput:
    return exceptions.InvalidInput(
        f'[agent] state_dir {state} cannot be used: {error.strerror}; '
        f'name a directory this user may write to.')


def _protect(state: pathlib.Path) -> None:
    mode = stat.S_IMODE(state.stat().st_mode)
    if mode & ~_TRAVERSED:
        try:
            state.chmod(mode & _TRAVERSED)
        except PermissionError:
            LOG.warning('Other users may list %s, which belongs to another '
                        'user: run "chmod go-rw %s"', state, state)
    for name in _DIRECTORIES:
        (state / name).mkdir(mode=permissions.PRIVATE.directory, exist_ok=True)
    for name in (*_DIRECTORIES, *_REPOSITORY):
        permissions.correct_tree(state / name)
    for name in _FILES:
        permissions.correct_file(state / name)
