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
"""The conductor's catalogue, where a repository registers its objects."""

import dataclasses
import logging

from diffcache_openstack.agent.repository import records
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import image_records
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints
from diffcache_openstack.rpc import conductor_api

LOG = logging.getLogger(__name__)


class ConductorCatalogue:
    """Registers images and patches; every call may be repeated.

    :param conductor: RPC client
    :param context: of the calls
    :param host: name of the repository
    :param key: signs the records of images; None to sign none
    """

    def __init__(self, conductor: conductor_api.ConductorAPI,
                 context: contexts.RequestContext, host: str,
                 key: host_keys.HostKey | None) -> None:
        self._conductor = conductor
        self._context = context
        self._host = host
        self._key = key

    def find_unregistered(
            self, images: list[records.ImageRecord],
            patches: list[records.PatchRecord]
    ) -> tuple[list[records.ImageRecord], list[records.PatchRecord]]:
        """Return the images and patches that the conductor lacks so.

        One that cannot be described is logged and left out.
        """
        prints = {}
        for image in images:
            try:
                prints[image.id] = fingerprints.of_image(self.signed(image))
            except exceptions.PermanentError as error:
                LOG.error('Cannot report image %s to the conductor: %s',
                          image.id, error)
        found, pairs = self._conductor.find_unregistered(
            self._context, self._host, prints,
            [_patch(patch) for patch in patches])
        names = {*found}, {*pairs}
        return ([image for image in images if image.id in names[0]],
                [patch for patch in patches if patch.id in names[1]])

    def register_image(self, record: records.ImageRecord) -> None:
        """Register an image, or its new state."""
        self._conductor.register_image(self._context, self.signed(record))

    def register_patch(self, record: records.PatchRecord) -> None:
        """Register a patch."""
        self._conductor.register_patch(self._context, _patch(record))

    def signed(self, record: records.ImageRecord) -> objects.Image:
        """Return an image with its signed record."""
        image = objects.Image(**dataclasses.asdict(record))
        if self._key is not None:
            image.record = image_records.sign(self._key, image)
        return image

    def patch_work(self, terms: str, creations: int) -> objects.PatchWork:
        """Return what this host is to do next for its patches."""
        return self._conductor.patch_work(self._context, self._host, terms,
                                          creations)

    def report_sketches(self, sketches: list[objects.ImageSketch]) -> None:
        """Report sketches."""
        self._conductor.report_sketches(self._context, self._host, sketches)

    def report_pairs(self, terms: str, pairs: list[objects.PairReport]
                     ) -> None:
        """Report what was found about pairs."""
        self._conductor.report_pairs(self._context, self._host, terms, pairs)


def _patch(record):
    return objects.Patch(
        id=record.id, base=record.base, target=record.target,
        size=record.size, create_seconds=record.create_seconds,
        apply_seconds=record.apply_seconds)
