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
"""An image service and a native core, for tests of ingest."""

import dataclasses
import hashlib

from diffcache_openstack.agent.repository import image_service
from diffcache_openstack.common import exceptions
from tests.unit.agent import fakes
from tests.unit.agent.repository import repositories

SECONDS = 60
LEVEL = 6
RAW = b'raw content' * 100
OTHER = b'other content' * 90
# What the fake tools take for qcow2: a magic word and the content.
QCOW2 = b'QFI' + RAW


class Tools(repositories.Tools):
    """The native core's, but that nothing is packed.

    :ivar levels: of compression, in turn
    :ivar done: per cent of a form that are made when it is reported
    """

    def __init__(self):
        super().__init__()
        self.levels = []
        self.done = 50

    def compress(self, content, manifest, form, level, progress=None):
        assert manifest.exists()
        self.levels.append(level)
        if progress is not None:
            progress(self.done, 100)
        form.write_bytes(content.read_bytes()[:9])

    def is_qcow2(self, image):
        if image.read_bytes().startswith(b'EVIL'):
            raise exceptions.InvalidInput('it names a backing file')
        return image.read_bytes().startswith(b'QFI')

    def disk_size(self, image):
        return len(RAW)

    def data_size(self, image):
        return len(RAW)

    def to_raw(self, image, output, progress=None):
        progress(1, 1)
        output.write_bytes(image.read_bytes()[3:])
        return fakes.content_id(output.read_bytes())

    def make_recipe(self, content, image, recipe, progress=None):
        recipe.write_bytes(b'recipe')

    def check_recipe(self, content, recipe, progress=None):
        assert recipe.read_bytes() == b'recipe'


class Source:
    """An image service in memory."""

    def __init__(self):
        self.files = {}
        self.about = {}
        self.dead = False
        self.changed = self.deleted = None

    def put(self, name, data, **changes):
        self.files[name] = data
        self.about[name] = image_service.ServiceImage(**{
            'id': name, 'name': name.title(), 'status': 'active',
            'disk_format': 'raw', 'container_format': 'bare',
            'size': len(data), 'os_hash_algo': 'sha512',
            'os_hash_value': hashlib.sha512(data).hexdigest(),
            'owner': 'project', 'visibility': 'private', **changes})

    def change(self, image_id, **changes):
        self.about[image_id] = dataclasses.replace(self.about[image_id],
                                                   **changes)

    def _answer(self):
        if self.dead:
            raise exceptions.ServiceUnavailable('no Glance')

    def images(self):
        self._answer()
        return list(self.about.values())

    def image(self, image_id):
        self._answer()
        return self.about.get(image_id)

    def download(self, image_id):
        self._answer()
        data = self.files[image_id]
        yield data[:100]
        yield data[100:]

    def start(self, changed, deleted):
        self.changed, self.deleted = changed, deleted

    def stop(self):
        self.changed = self.deleted = None
