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
"""A small site, as the conductor is told of it."""

import uuid

from diffcache_openstack import objects
from diffcache_openstack.objects import versioned

GB = 10 ** 9
SITE = 'edge'


def content(number: int) -> str:
    """A content id."""
    return f'{number:064x}'


def patch_id(source: int, target: int) -> str:
    """The id of the patch between two contents."""
    return f'{1000 + 100 * source + target:064x}'


def host(name: str, capacity: int = 5 * GB) -> objects.Host:
    """A compute host of the site."""
    return objects.Host(name=name, site=SITE, role=objects.COMPUTE,
                        url=f'http://{name}:9192', capacity=capacity)


def repository(name: str = 'hub') -> objects.Host:
    """The repository, at another site."""
    return objects.Host(name=name, site='centre', role=objects.REPOSITORY,
                        url=f'http://{name}:9192')


def image(number: int) -> objects.Image:
    """An image of 4 GB, half of it data."""
    return objects.Image(
        id=f'image-{number}', name=f'Image {number}',
        content_id=content(number), size=4 * GB, data_size=2 * GB)


def patch(source: int, target: int) -> objects.Patch:
    """A patch of a twentieth of its target."""
    return objects.Patch(
        id=patch_id(source, target), base=content(source),
        target=content(target), size=GB // 10, apply_seconds=2.0)


def request(host_name: str, number: int, **values) -> objects.Request:
    """A request that was served just now."""
    return objects.Request(
        id=str(uuid.uuid4()), image_id=f'image-{number}', host=host_name,
        started_at=versioned.now(), **values)


def register_all(api, ctxt, images: int = 4) -> None:
    """Tell a conductor of two hosts, the repository, images and patches."""
    for known in (host('c1'), host('c2', GB), repository()):
        api.register_host(ctxt, known)
    for number in range(images):
        api.register_image(ctxt, image(number))
    for source in range(images):
        for target in range(images):
            if source != target:
                api.register_patch(ctxt, patch(source, target))
