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
"""A repository whose conductor and native core are doubles."""

import dataclasses

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import patch_making
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import patch_work
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

BASE, TARGET = b'base' * 100, b'target' * 100
ID = 'c1b1a3f2-0000-4000-8000-000000000001'


REPORT = objects.PairReport(base='0' * 64, target='0' * 64,
                            verdict=patch_work.FAILED)


class Sketch(bytes):
    """A sketch of the fake site."""

    data_size = property(len)
    signature = ''


class Tools:
    """Patches of the fake site."""

    methods = 'patch 1'

    def sign(self, image, manifest, progress=None):
        content = image.read_bytes()
        manifest.write_bytes(b'manifest')
        return {'content_id': fakes.content_id(content),
                'size': len(content), 'data_size': len(content)}

    def hash_file(self, path):
        return fakes.content_id(path.read_bytes())

    def make_patch(self, base_path, target, patch, level, progress=None):
        contents = [path.read_bytes() for path in (base_path, target)]
        patch.write_bytes(fakes.make_patch(*contents))
        return tuple(fakes.content_id(content) for content in contents)

    def apply_patch(self, base_path, patch, output, progress=None):
        fakes.apply_patch_files(base_path, patch, output)

    def sketch(self, image, output, progress=None):
        output.write_bytes(b'sketch' + image.read_bytes())

    def load_sketch(self, path):
        if not path.read_bytes().startswith(b'sketch'):
            raise exceptions.FormatError(f'{path} is no sketch')
        return Sketch(path.read_bytes()[6:])

    def estimate(self, base_sketch, target_sketch):
        return abs(len(target_sketch) - len(base_sketch))


class Catalogue:

    def __init__(self):
        self.images = {}
        self.patches = {}
        self.sketches = {}
        self.reports = {}
        self.terms = []
        self.compared = []
        self.registered = []
        self.dead = False

    def _answer(self):
        if self.dead:
            raise exceptions.ServiceUnavailable('no answer')

    def find_unregistered(self, images, patches):
        self._answer()
        self.compared.append((len(images), len(patches)))
        return ([image for image in images
                 if image.id not in self.images],
                [patch for patch in patches
                 if (patch.base, patch.target) not in self.patches])

    def register_image(self, record):
        self._answer()
        self.registered.append(record.id)
        # What is compressed is no part of the image's own record.
        self.images[record.id] = dataclasses.replace(
            record, compressed_size=None)

    def signed(self, record):
        return objects.Image(**dataclasses.asdict(record))

    def register_patch(self, record):
        self._answer()
        self.patches[record.base, record.target] = record

    def patch_work(self, terms, creations):
        """All pairs of all images: the real catalogue has better ideas."""
        self._answer()
        contents = [t.content_id for t in self.images.values()
                    if t.status == views.ACTIVE]
        pairs = [(a, b) for a in contents for b in contents if a != b]
        found = objects.PatchWork(
            sketch=[c for c in contents if c not in self.sketches],
            compare=[objects.PatchPair(base=a, target=b) for a, b in pairs
                     if (a, b) not in self.reports])
        wanted = [pair for pair in pairs if pair not in self.patches
                  and self.reports.get(pair, REPORT).verdict == 'estimated']
        found.create = [objects.PatchPair(base=a, target=b)
                        for a, b in wanted[:creations]]
        found.pending = bool(found.sketch or found.compare or found.create)
        self.terms.append(terms)
        return found

    def report_sketches(self, sketches):
        self._answer()
        self.sketches |= {sketch.content_id: sketch for sketch in sketches}

    def report_pairs(self, terms, pairs):
        self._answer()
        self.reports |= {(pair.base, pair.target): pair for pair in pairs}


class RepositoryCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.catalogue = Catalogue()
        self.ratio = 2.0
        self.may_run = True
        self.repository = self.new()
        self.base_file = self.write_file('base.raw', BASE)
        self.target_file = self.write_file('target.raw', TARGET)

    def new(self):
        self.held = holdings.Holdings(
            self.directory / 'objects', None, fakes.Inspector(),
            lambda kind, object_id: 0)
        self.held.scan()
        self.host = host_state.HostState('repo', self.held, None)
        repository = catalogue.Repository(
            self.host, self.directory / 'state', Tools(), self.catalogue)
        self.maker = patch_making.PatchMaker(
            repository, self.held, Tools(), self.catalogue,
            patch_making.PatchOptions(3, self.ratio, lambda: self.may_run,
                                      60))
        repository.subscribe(self.maker.wake)
        return repository

    def register_both(self):
        return [self.repository.register(path, name, name).content_id
                for path, name in ((self.base_file, 'base'),
                                   (self.target_file, 'target'))]
