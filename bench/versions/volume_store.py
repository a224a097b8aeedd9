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
"""What an agent does for cinder-backup, as a process that can be measured.

Usage: volume_store.py STORE backup|restore VOLUME [VERSION]

A backup prints what it came to, as JSON.
"""

import json
import os
import pathlib
import sys

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store


def main() -> None:
    """Run the command line."""
    place, what, volume, *version = sys.argv[1:]
    store = version_store.VersionStore.open(
        file.FileStore(pathlib.Path(place)))
    flags = os.O_RDONLY if what == 'backup' else os.O_RDWR | os.O_CREAT
    descriptor = os.open(volume, flags, 0o600)
    if what == 'backup':
        saved = store.save_volume(descriptor, 'volume')
        json.dump({'id': saved.id, 'blocks_changed': saved.blocks_changed,
                   'bytes_read': saved.bytes_read,
                   'bytes_stored': saved.bytes_stored}, sys.stdout)
    else:
        store.write_volume(version[0], descriptor)


if __name__ == '__main__':
    main()
