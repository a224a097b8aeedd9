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
"""Cinder's own backup driver for files, without Cinder's services.

Usage: cinder_driver.py DIRECTORY COMPRESSION backup|restore NUMBER DISK

Run by the Python of an environment that has the package cinder. The driver is
Cinder's (chunked, posix) with objects of 32 MiB and its other options as they
are. What it asks the database for, rows of backups and the volume's size, it
gets from JSON files in DIRECTORY; notifications go nowhere. Each backup after
the first is incremental to the one before.
"""

import contextlib
import json
import pathlib
import sys
import types
from unittest import mock

from cinder.backup.drivers import posix
from cinder import context
from cinder import objects
from oslo_config import cfg

VOLUME = 'volume'
GIB = 1 << 30


class Backup:
    """A row of the table of backups, kept in a file."""

    def __init__(self, directory, number, fields):
        self._path = directory / f'row-{number}.json'
        self._fields = fields

    @classmethod
    def load(cls, directory, number):
        """Return the row that was kept."""
        path = directory / f'row-{number}.json'
        return cls(directory, number, json.loads(path.read_text()))

    def __getattr__(self, name):
        try:
            return self._fields[name]
        except KeyError as exc:
            raise AttributeError(name) from exc

    def __setattr__(self, name, value):
        if name.startswith('_'):
            super().__setattr__(name, value)
        else:
            self._fields[name] = value

    def __getitem__(self, name):
        return self._fields[name]

    def __setitem__(self, name, value):
        self._fields[name] = value

    def save(self):
        """Keep the row."""
        self._path.write_text(json.dumps(self._fields))

    def refresh(self):
        """Do nothing: no other process changes it."""

    def as_read_deleted(self):
        """Do nothing: no other process deletes it."""
        return contextlib.nullcontext()


def driver(directory):
    """Return Cinder's driver, with the calls of the database that it makes."""
    compression = sys.argv[2]
    cfg.CONF([], project='cinder', default_config_files=[])
    cfg.CONF.set_override('backup_file_size', 32 << 20)
    cfg.CONF.set_override('backup_compression_algorithm', compression)
    cfg.CONF.set_override('backup_enable_progress_timer', False)
    size = json.loads((directory / 'size.json').read_text())
    with mock.patch('cinder.db.api.dispose_engine'):
        made = posix.PosixBackupDriver(context.get_admin_context(),
                                       str(directory / 'repo'))
    made.db = types.SimpleNamespace(
        volume_get=lambda *_: {'size': size // GIB, 'id': VOLUME})
    return made


def backup(directory, number, disk):
    """Back a disk up: in full the first time, then what changed."""
    (directory / 'size.json').write_text(str(disk.stat().st_size))
    row = Backup(directory, number, {
        'id': str(number), 'volume_id': VOLUME, 'container': None,
        'parent_id': str(number - 1) if number else None,
        'size': disk.stat().st_size // GIB, 'status': 'creating',
        'service_metadata': None, 'display_name': None,
        'display_description': None, 'created_at': None, 'object_count': 0})
    with open(disk, 'rb') as stream:
        driver(directory).backup(row, stream, backup_metadata=False)


def restore(directory, number, disk):
    """Write a backup to a new disk."""
    row = Backup.load(directory, number)
    row.status = 'restoring'
    with open(disk, 'wb') as stream:
        stream.truncate(json.loads((directory / 'size.json').read_text()))
        driver(directory).restore(row, VOLUME, stream, True)


def main():
    """Run the command line."""
    directory, _compression, what, number, disk = sys.argv[1:]
    place = pathlib.Path(directory)
    (place / 'repo').mkdir(exist_ok=True)
    objects.register_all()
    rows = mock.patch.object(
        objects.Backup, 'get_by_id',
        lambda _context, name: Backup.load(place, int(name)))
    quiet = mock.patch('cinder.volume.volume_utils.notify_about_backup_usage')
    with rows, quiet:
        {'backup': backup, 'restore': restore}[what](
            place, int(number), pathlib.Path(disk))


if __name__ == '__main__':
    main()
