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

See :mod:`diffcache_openstack.common.stand_ins`.
"""

import typing

from diffcache_openstack.common import stand_ins

_GIB = 2 ** 30


def stand_in(images: typing.Any, version: typing.Any,
             properties: dict[str, str]) -> str:
    """Return the ID of an image that stands for a version.

    It belongs to the version's project. One that exists is used again.

    :param images: the SDK's proxy for Glance
    :param version: with one disk
    :param properties: of a new image, besides the one that names the version
    """
    name = f'version {version.id}'
    for image in images.images(name=name, status='active',
                               owner=version.project_id):
        # The SDK has other properties than its own in a dictionary.
        if stand_ins.version_of(image.properties or {}, image.hash_algo,
                                image.hash_value) == version.id:
            return image.id
    [disk] = version.disks
    created = images.create_image(
        name=name, data=stand_ins.content(version.id), disk_format='raw',
        container_format='bare', visibility='private',
        owner=version.project_id, min_disk=-(-disk['size'] // _GIB),
        allow_duplicates=True,
        **{stand_ins.PROPERTY: version.id, **properties})
    return created.id
