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
import errno
import os

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host as hosts
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view
from tests import base
from tests.unit.agent import fakes

BASE, TARGET = b'base' * 100, b'target' * 100
ID = 'c1b1a3f2-0000-4000-8000-000000000001'


class Tools:
    """Patches of the fake site."""

    def sign(self, image, manifest):
        content = image.read_bytes()
        manifest.write_bytes(b'manifest')
        return {'content_id': fakes.content_id(content),
                'size': len(content), 'data_size': len(content)}

    def hash_file(self, path):
        return fakes.content_id(path.read_bytes())

    def make_patch(self, base_path, target, patch, level):
        contents = [path.read_bytes() for path in (base_path, target)]
        patch.write_bytes(fakes.make_patch(*contents))
        return tuple(fakes.content_id(content) for content in contents)

    def apply_patch(self, base_path, patch, output):
        fakes.apply_patch_files(base_path, patch, output)

    def sketch(self, image, output):
        output.write_bytes(b'sketch' + image.read_bytes())

    def load_sketch(self, path):
        if not path.read_bytes().startswith(b'sketch'):
            raise exceptions.FormatError(f'{path} is no sketch')
        return path.read_bytes()[6:]

    def estimate(self, base_sketch, target_sketch):
        return abs(len(target_sketch) - len(base_sketch))


class Catalogue:

    def __init__(self):
        self.templates = {}
        self.patches = {}
        self.dead = False

    def _answer(self):
        if self.dead:
            raise exceptions.ServiceUnavailable('no answer')

    def register_template(self, record):
        self._answer()
        self.templates[record.id] = record

    def register_patch(self, record):
        self._answer()
        self.patches[record.base, record.target] = record

    def missing_patches(self):
        self._answer()
        contents = [t.content_id for t in self.templates.values()]
        return [(a, b) for a in contents for b in contents
                if a != b and (a, b) not in self.patches]


class RepositoryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.catalogue = Catalogue()
        self.ratio = 2.0
        self.nearest = 8
        self.repository = self.new()
        self.base_file = self.write_file('base.raw', BASE)
        self.target_file = self.write_file('target.raw', TARGET)

    def new(self):
        self.held = holdings.Holdings(
            self.directory / 'objects', None, fakes.Inspector(),
            lambda kind, object_id: 0)
        self.held.scan()
        self.host = hosts.HostState('repo', self.held, None)
        return catalogue.Repository(
            self.host, self.directory / 'state', Tools(), self.catalogue,
            catalogue.Options(3, pair_choice.Limits(self.ratio, self.nearest),
                              lambda: True, 60))

    def register_both(self):
        return [self.repository.register(path, name, name).content_id
                for path, name in ((self.base_file, 'base'),
                                   (self.target_file, 'target'))]

    def test_register_keeps_a_copy_of_its_own(self):
        record = self.repository.register(self.base_file, ID, 'base')
        self.base_file.write_bytes(b'changed')
        key = view.Key(view.TEMPLATES, record.content_id)
        self.assertEqual(BASE, self.held.path(key).read_bytes())
        self.assertEqual(record, self.catalogue.templates[ID])
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_register_twice_is_once(self):
        first = self.repository.register(self.base_file, ID, 'base')
        self.assertEqual(first, self.repository.register(
            self.base_file, ID, 'base'))
        self.assertEqual([first], self.repository.images())

    def test_an_id_keeps_its_content(self):
        self.repository.register(self.base_file, ID, 'base')
        error = self.assertRaises(
            exceptions.Conflict, self.repository.register, self.target_file,
            ID, 'base')
        self.assertIn(ID, str(error))
        self.assertNotIn(fakes.key_of(TARGET), self.held)

    def test_missing_file(self):
        path = self.directory / 'none.raw'
        error = self.assertRaises(
            exceptions.InvalidInput, self.repository.register, path, ID, '')
        self.assertIn(str(path), str(error))

    def test_makes_what_is_missing_and_knows_it_after_a_restart(self):
        one, two = self.register_both()
        self.assertEqual(2, self.repository.make_missing())
        record = self.catalogue.patches[one, two]
        patch = self.held.path(view.Key(view.PATCHES, record.id))
        self.assertEqual(fakes.make_patch(BASE, TARGET), patch.read_bytes())
        self.assertEqual(patch.stat().st_size, record.size)
        self.assertEqual(0, self.repository.make_missing())
        self.catalogue.templates, self.catalogue.patches = {}, {}
        again = self.new()
        self.assertTrue(again.announce())
        self.assertEqual(record, self.catalogue.patches[one, two])
        self.assertEqual(2, len(self.catalogue.templates))
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_too_large_a_patch_is_declined_for_good(self):
        self.ratio = 0.5
        self.repository = self.new()
        self.register_both()
        self.assertEqual(0, self.repository.make_missing())
        self.assertEqual([], self.repository.patches())
        tools = self.repository._tools
        tools.make_patch = None
        self.assertEqual(0, self.repository.make_missing())

    def test_patches_come_from_the_nearest_bases_only(self):
        self.nearest = 1
        self.repository = self.new()
        one, two = self.register_both()
        three = self.repository.register(
            self.write_file('near.raw', TARGET + b'!'), 'near',
            'near').content_id
        self.repository.make_missing()
        self.assertEqual({(two, one), (three, two), (two, three)},
                         set(self.catalogue.patches))

    def test_a_damaged_sketch_is_made_again(self):
        one, two = self.register_both()
        sketches = self.directory / 'state' / 'sketches'
        (sketches / one).write_bytes(b'damaged')
        self.assertEqual(2, self.repository.make_missing())
        self.assertEqual(b'sketch' + BASE, (sketches / one).read_bytes())

    def test_an_image_that_cannot_be_read_costs_its_own_patches_only(self):
        self.register_both()
        bad = self.repository.register(
            self.write_file('bad.raw', b'bad' * 100), 'bad', 'bad').content_id
        sketch = Tools.sketch

        def fail(tools, image, output):
            if image.name == bad:
                raise OSError(errno.EIO, 'Input/output error')
            sketch(tools, image, output)

        self.patch(Tools, 'sketch', fail)
        self.assertEqual(2, self.repository.make_missing())
        self.assertNotIn(bad, {end for pair in self.catalogue.patches
                               for end in pair})

    def test_a_changed_base_is_a_clear_error(self):
        one, two = self.register_both()
        self.held.path(view.Key(view.TEMPLATES, one)).write_bytes(b'changed')
        error = self.assertRaises(exceptions.IntegrityError,
                                  self.repository.make_patch, one, two)
        self.assertIn(one, str(error))
        self.assertNotIn(view.Key(view.TEMPLATES, one), self.held)
        self.assertEqual([], self.repository.patches())
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_a_dead_conductor_is_told_later(self):
        self.catalogue.dead = True
        self.register_both()
        self.assertFalse(self.repository.announce())
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.repository.make_missing)
        self.catalogue.dead = False
        self.assertTrue(self.repository.announce())
        self.assertEqual({'base', 'target'}, set(self.catalogue.templates))

    def test_runs_in_the_background_when_something_is_registered(self):
        done = []
        self.patch(self.host.report_due, 'set', lambda: done.append(
            len(self.repository.patches())))
        self.repository.start()
        self.addCleanup(self.repository.stop)
        self.register_both()
        with self.repository._wake:
            while 2 not in done:
                self.repository._wake.wait(0.01)
        self.assertEqual(2, len(self.repository.patches()))
