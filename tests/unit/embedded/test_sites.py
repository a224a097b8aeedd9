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
import pathlib
import random
import shutil
import threading
import typing

import fixtures

from diffcache_openstack.agent import link
from diffcache_openstack.embedded import sites
from tests import base

SIZE = 2 << 20
FAST = sites.LinkSpec(1e5, 1e5, 1e5)


class LateReportsTest(base.TestCase):
    """A repository whose holdings reach the conductor late."""

    def test_patches_wait_for_the_report_of_images(self):
        """The conductor knew of no images, and so there were no patches."""
        chance = random.Random(11)
        common = chance.randbytes(SIZE // 2)
        images = [self.write_file(f'image-{n}', common + chance.randbytes(
            SIZE // 8)) for n in (0, 1)]
        waiting = threading.Event()
        report = link.ConductorLink._report_holdings

        def report_late(sender: link.ConductorLink) -> None:
            if waiting.wait(0.01):
                report(sender)
            else:
                sender._host.report_due.set()

        class Observed(sites.Site):
            def wait(self, ready: typing.Callable[[], bool], timeout: float,
                     what: str) -> None:
                waiting.set()
                super().wait(ready, timeout, what)

        with Observed(self.directory / 'site',
                      [sites.HostSpec('host-1', 4 * SIZE)], FAST,
                      self.directory / 'repository') as embedded:
            waiting.clear()
            self.useFixture(fixtures.MockPatchObject(
                link.ConductorLink, '_report_holdings', report_late))
            for image in images:
                embedded.register(image, image.name, image.name)
            self.assertEqual(2, len(embedded.make_patches()))


class RebuiltImagesTest(base.TestCase):
    """A repository that outlives the images it once had patches for."""

    def setUp(self):
        super().setUp()
        self.chance = random.Random(7)
        self.repository = self.directory / 'repository'

    def image(self, name: str, *parts: bytes) -> pathlib.Path:
        path = self.write_file(name, b''.join(parts))
        with path.open('r+b') as output:
            output.truncate(SIZE)
        return path

    def patches_between(self, directory: str, *images: pathlib.Path) -> int:
        """Register images, make the patches, have a host know them all."""
        with sites.Site(self.directory / directory,
                        [sites.HostSpec('host-1', 4 * SIZE)], FAST,
                        self.repository) as embedded:
            for image in images:
                embedded.register(image, image.name, image.name)
            patches = embedded.make_patches()
            embedded.wait_catalogue(len(patches))
            return len(patches)

    def test_patches_of_images_that_are_gone_are_not_counted(self):
        """Hosts were waited for to learn of patches nobody announced."""
        common = self.chance.randbytes(SIZE // 2)
        edits = [self.chance.randbytes(SIZE // 8) for _ in range(4)]
        old = [self.image(f'old-{n}', common, edits[n]) for n in (0, 1)]
        self.assertEqual(2, self.patches_between('first', *old))
        shutil.rmtree(self.repository / 'images')
        new = [self.image(f'new-{n}', common, edits[n]) for n in (2, 3)]
        self.assertEqual(2, self.patches_between('second', *new))
        kept = list((self.repository / 'patches').glob('*.json'))
        self.assertEqual(4, len(kept))
