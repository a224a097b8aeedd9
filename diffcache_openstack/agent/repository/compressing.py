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
"""Making the compressed forms of images, which cross the WAN.

Each content is compressed once, after it was added, by one thread that takes
small images first. Until then, and where there is no form, images cross the
WAN uncompressed.
"""

import logging
import pathlib
import time
import uuid

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import threads
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)


class Compressing(threads.Rounds):
    """Keeps a compressed form of each image that the repository serves.

    :param repository: the images
    :param held: has their content and the staging area
    :param tools: the native core
    :param level: of zstd; 0 makes no forms
    :param interval: seconds until what failed is tried again
    """

    def __init__(self, repository: catalogue.Repository,
                 held: holdings.Holdings, tools: image_tools.ImageTools,
                 level: int, interval: float) -> None:
        super().__init__('compress', self.make_missing, interval,
                         'Could not look for images to compress')
        self._repository = repository
        self._held = held
        self._tools = tools
        self._level = level

    def start(self) -> None:
        """Start the thread, unless no forms are to be made."""
        if self._level:
            super().start()

    def make_missing(self) -> int:
        """Make the forms that are missing; returns how many were made.

        What fails is logged, and left for the next time.
        """
        made = 0
        for image in self._repository.uncompressed():
            if self._stopped.is_set():
                break
            try:
                made += self._make(image)
            except (exceptions.DiffCacheError, OSError) as error:
                if self._stopped.is_set() or not self._serves(image):
                    continue
                LOG.warning('Could not compress image %s (%s), which crosses'
                            ' the WAN uncompressed until that succeeds: %s',
                            image.id, image.name, error)
        return made

    # -- inside

    def _serves(self, image: records.ImageRecord) -> bool:
        return views.Key(views.IMAGES, image.content_id) in self._held

    def _make(self, image: records.ImageRecord) -> bool:
        key = views.Key(views.IMAGES, image.content_id)
        form = self._held.staging(uuid.uuid4().hex)
        started = time.monotonic()
        try:
            with self._held.lease(key) as content:
                size = self._compress(content, image.content_id, form)
            kept = self._repository.keep_compressed(image.content_id, form)
        except exceptions.IntegrityError:
            self._held.verify(key)
            raise
        finally:
            files.discard(form)
        if kept:
            LOG.info('Compressed image %s (%s): %d bytes for %d of data, in'
                     ' %.1f s', image.id, image.name, size, image.data_size,
                     time.monotonic() - started)
        return kept

    def _compress(self, content: pathlib.Path, content_id: str,
                  form: pathlib.Path) -> int:
        def go_on(_done: int, _total: int) -> None:
            if self._stopped.is_set():
                raise exceptions.Cancelled(
                    f'The agent stops; {content_id} is compressed later.')

        return self._tools.compress(content, self._held.manifest(content_id),
                                    form, self._level, go_on)
