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
"""Volumes that a server's next host reaches in another way than this one.

One may be in this host's SSD cache, which is reached over NBD, and be used
without the cache there, or the other way round.
"""

import typing

from nova.virt.libvirt import migration

_update = migration._update_volume_xml


def _update_with_types(xml_doc: typing.Any, migrate_data: typing.Any,
                       instance: typing.Any, get_volume_config: typing.Any
                       ) -> typing.Any:
    """Return a server's document with its volumes as its next host has them.

    Nova replaces what a disk's element contains, and leaves its type, with
    which libvirt refuses what is in it then.
    """
    types = {}

    def get_config(*arguments: typing.Any) -> typing.Any:
        config = get_volume_config(*arguments)
        types[config.serial] = config.source_type
        return config

    document = _update(xml_doc, migrate_data, instance, get_config)
    for disk in document.findall('./devices/disk'):
        kind = types.get(disk.findtext('serial'))
        if kind is not None:
            disk.set('type', kind)
    return document


def install() -> None:
    """Have Nova change the types of disks, too, when it migrates a server."""
    migration._update_volume_xml = _update_with_types
