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
"""Images as local services see them: descriptions, and Glance's files."""

import contextlib
import logging
import pathlib
import typing

from diffcache_openstack.agent.images import borrowing as borrowings
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import recipes
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import new_images
from diffcache_openstack.agent.local import file_usage
from diffcache_openstack.agent.state import current_map
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

_DESCRIBED = ('id', 'name', 'content_id', 'size', 'data_size', 'disk_format',
              'file_size', 'os_hash_algo', 'os_hash_value', 'owner',
              'visibility', 'status', 'form_id', 'form_size', 'record')


class LocalImages:
    """The catalogue's images, with their costs, files and use on this host.

    :param site_map: names the images
    :param shared: raw content of images
    :param costs: what images cost here
    :param image_files: files as Glance has them
    :param usage: counts
    :param new_throttle: gives the throttle of a request
    :param new: images that the catalogue does not have yet
    :param borrowing: uses files of local services; None uses none
    """

    def __init__(self, site_map: current_map.SiteMap,
                 shared: contents.Contents,
                 costs: image_costs.ImageCosts,
                 image_files: recipes.ImageFiles,
                 usage: file_usage.FileUsage,
                 new_throttle: typing.Callable[[], throttles.Throttle],
                 new: new_images.NewImages,
                 borrowing: borrowings.Borrowing | None) -> None:
        self._new = new
        self._borrowing = borrowing
        self._site_map = site_map
        self._contents = shared
        self._costs = costs
        self._files = image_files
        self._usage = usage
        self._new_throttle = new_throttle

    def describe(self, image_id: str) -> dict:
        """Return the catalogue's entry of an image, and its cost here.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        return self._describe(self._site_map.find(image_id))

    def describe_new(self, image_id: str, size: int) -> dict:
        """Describe an image, waiting for a repository that is adding it.

        :param size: bytes of its file
        :raises NotFound: no repository will have it soon, or it was withdrawn
        """
        return self._describe(self._new.find(image_id, size))

    def list(self) -> list[dict]:
        """Describe all images that may be served, by id."""
        return [self._describe(image) for image in
                sorted(self._site_map.current().images,
                       key=lambda image: image.id)
                if image.status == views.ACTIVE]

    def status(self) -> dict[str, typing.Any]:
        """Return the files that are kept for Glance."""
        return {'files_used': self._files.store.used(),
                'files': [{'image_id': self._image_of(name), 'bytes': size}
                          for name, size in
                          self._files.store.oldest_first()]}

    @contextlib.contextmanager
    def file(self, image_id: str, site_only: bool
             ) -> typing.Iterator[codec_base.Reader]:
        """Open the file that Glance has.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises Conflict: ``site_only``, and that would take the WAN
        """
        image = self._site_map.find(image_id)
        with self._files.open(image, site_only) as reader:
            self._usage.hit(image_id)
            yield reader

    def prefetch(self, image_id: str) -> None:
        """Bring the file that Glance has here, which counts as no use of it.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        image = self._site_map.find(image_id)
        with self._files.open(image, False) as reader:
            # The last byte of the file takes all of it to be there.
            reader.read(max(0, reader.size - 1), min(1, reader.size))
        self._usage.admit(image_id)

    def expecting(self, image_id: str
                  ) -> contextlib.AbstractContextManager[None]:
        """Pause fills on the WAN while a service fetches an image's file.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        image = self._site_map.find(image_id)
        LOG.debug('Expecting the file of image %s', image_id)
        return self._contents.expecting(image)

    def lend(self, image_id: str, path: str) -> bool:
        """Use a service's file with an image's raw content, if that is on.

        :returns: whether it is used already; it may be verified first
        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises InvalidInput: the file must not be used
        """
        image = self._site_map.find(image_id)
        return self._borrowing is not None \
            and self._borrowing.offer(image, pathlib.Path(path))

    def give_file(self, image_id: str, source: typing.BinaryIO,
                  length: int) -> None:
        """Accept an image's file that a service fetched itself.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises IntegrityError: it is another file
        """
        image = self._site_map.find(image_id)
        raw = self._files.take(image, source, length)
        try:
            self._usage.admit(image_id)
            if raw is not None:
                self._contents.take(image, raw, self._new_throttle())
        except exceptions.RetryableError as error:
            LOG.warning('Could not offer the content of image %s to the site,'
                        ' only its file is kept: %s', image_id, error)
        finally:
            if raw is not None:
                files.discard(raw)

    def drop(self, image_id: str) -> None:
        """Delete an image's file, and its content unless the plan has it.

        Content that the plan places here serves Nova, and would be fetched
        again.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        image = self._site_map.find(image_id)
        self._files.drop(image)
        self._contents.release(image)
        self._usage.dismiss(image_id)

    def enqueue(self, image_id: str) -> bool:
        """Queue an image; return whether it was neither queued nor cached."""
        with contextlib.suppress(exceptions.NotFound):
            if self.describe(image_id)['cached']:
                return False
        return self._usage.enqueue(image_id)

    def forget_withdrawn(self) -> None:
        """Drop files of images that may not be served any more."""
        view = self._site_map.current()
        gone = [image for image in view.images
                if image.status != views.ACTIVE]
        served = {image.form_id or image.content_id
                  for image in view.images
                  if image.status == views.ACTIVE}
        for image in gone:
            if (image.form_id or image.content_id) not in served:
                self._files.drop(image)
        self._usage.forget({image.id for image in gone})

    def _describe(self, image: views.ImageRef) -> dict:
        content = self._costs.content(image)
        file = self._files.cost(image, content)
        use = self._usage.of(image.id)
        return {
            **{name: getattr(image, name) for name in _DESCRIBED},
            'way': content.way,
            'predicted_seconds': content.seconds,
            'wan_bytes': content.wan_bytes,
            'at_site': content.at_site,
            'arriving': content.arriving,
            'planned': self._costs.planned(image),
            'file_wan_bytes': file.wan_bytes,
            'file_at_site': file.at_site,
            'file_arriving': file.arriving,
            'hits': use.hits,
            'last_access': use.last_access,
            'cached': file.at_site and not use.dismissed,
        }

    def _image_of(self, name: str) -> str:
        """Return the image whose file is kept under a name."""
        return next((image.id for image
                     in self._site_map.current().images
                     if name in (image.form_id, image.content_id)),
                    name)
