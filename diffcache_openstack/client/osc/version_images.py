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
"""Images that stand for versions: servers boot from these without an export.

Nova wants an image with a file. That of such an image only says what it is:
Nova's driver has the disk's bytes come from the version store.
"""

import typing

# Read by Nova's driver.
VERSION_PROPERTY = 'diffcache_lazy_version'
BOOT_MODE_PROPERTY = 'diffcache_boot_mode'
_GIB = 2 ** 30


def stand_in(images: typing.Any, version: typing.Any) -> str:
    """Return the ID of an image that stands for a version.

    One that exists is used again.

    :param images: the SDK's proxy for Glance
    :param version: with one disk
    """
    name = f'version {version.id}'
    for image in images.images(name=name, status='active'):
        # The SDK has other properties than its own in a dictionary.
        if (image.properties or {}).get(VERSION_PROPERTY) == version.id:
            return image.id
    [disk] = version.disks
    created = images.create_image(
        name=name, data=_text(version).encode(),
        disk_format='raw', container_format='bare', visibility='private',
        min_disk=-(-disk['size'] // _GIB), allow_duplicates=True,
        **{VERSION_PROPERTY: version.id, BOOT_MODE_PROPERTY: 'lazy'})
    return created.id


def _text(version: typing.Any) -> str:
    return (f'This image stands for version {version.id} of server'
            f' {version.server_id}. It has no disk: hosts with the Nova'
            f' driver of DiffCache bring that from the version store.\n')
