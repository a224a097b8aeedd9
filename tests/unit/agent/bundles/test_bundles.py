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
"""Bundles, from the files of a repository to those of a host."""

import os
import pathlib
import random
import shutil
import time
from unittest import mock

from diffcache_openstack import _native
from diffcache_openstack.agent.bundles import packing
from diffcache_openstack.agent.bundles import sealing
from diffcache_openstack.agent.bundles import taking
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.state import directory
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import map_file
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.sites import views
from tests import host_key_files
from tests.unit.agent.data_plane import planes
from tests.unit.db import database

SITE = 'ship'


def nothing(done, total):
    """Show no progress."""


class BundleTest(planes.DataPlaneTestCase):
    """A repository with two builds of an image, and a host far away."""

    def setUp(self):
        super().setUp()
        self.patch(sealing, 'PIECE', 5 * planes.LEAF)
        self.keys = host_key_files.Keys(self.directory / 'keys')
        self.shared = self.directory / 'shared.key'
        keys.create_key(self.shared)
        first = random.Random(1).randbytes(20 * planes.LEAF)
        self.contents = [first, b'newer' + first[5:]]
        self.ids = [self.hold_image('hub/objects', content)
                    for content in self.contents]
        self.compress(self.ids[0])
        self.images = [self.image(number) for number in range(2)]
        self.bundle = self.directory / 'disk'

    def image(self, number, **values):
        size = len(self.contents[number])
        image = database.image(number, content_id=self.ids[number], size=size,
                               data_size=size, **values)
        image.record = image_records.sign(
            self.keys.key('repository', 'hub'), image)
        return image

    def compress(self, content_id):
        """Give an image a compressed form, which alone is carried then."""
        form = self.held('hub/objects', views.COMPRESSED, content_id)
        form.parent.mkdir()
        image = self.held('hub/objects', views.IMAGES, content_id)
        _native.compressed_create(
            str(image), str(self.manifest('hub/objects', content_id)),
            str(form), 3)
        image.unlink()

    def conf(self, host='h1', site=SITE):
        conf = opts.new_config([])
        for name, value in (('state_dir', str(self.directory / host)),
                            ('host', host), ('site', site)):
            conf.set_override(name, value, 'agent')
        conf.set_override('key_file', str(self.shared), 'data_plane')
        return conf

    def create(self, plan=None, hosts=(), revoked=None):
        """Create the bundle; return the states of what was wanted."""
        site_map = objects.SiteMap(
            site=SITE, generation=7, images=self.images, patches=[],
            hosts=list(hosts), hops=1,
            links=objects.Links(local=400.0, peer=200.0, repo=10.0))
        choice = packing.Choice(site_map, plan,
                                self.directory / 'hub' / 'objects')
        writer = sealing.Writer(self.bundle, SITE, keys.read_key(self.shared))
        found = [each.state for each in packing.pack(choice, writer, nothing)]
        writer.finish(packing.contents(site_map, plan, revoked),
                      self.keys.key('repository', 'hub'))
        return found

    def apply(self, conf=None):
        """Apply the bundle; return states by object."""
        with self.intake(conf or self.conf()).running(nothing) as entries:
            return {tuple(each.key): each.state for each in entries}

    def intake(self, conf):
        return taking.Intake(conf, self.bundle,
                             self.keys.security('compute', 'h1'))

    def served(self, number) -> pathlib.Path:
        return self.held('h1/objects', views.IMAGES, self.ids[number])

    @property
    def staging(self) -> pathlib.Path:
        return self.directory / 'h1' / 'objects' / holdings.STAGING

    def open_paths(self):
        """Return what others may use below the state, which they may cross."""
        return [path for path in (self.directory / 'h1').rglob('*')
                if path.stat().st_mode & 0o077]

    def pieces(self):
        return sorted((path for path in self.bundle.iterdir()
                       if path.name.isdigit()), key=lambda p: int(p.name))


class TestBundles(BundleTest):

    def test_images_arrive_compressed_or_not(self):
        self.assertEqual([packing.PACKED] * 2, self.create())
        self.assertEqual({taking.TAKEN}, set(self.apply().values()))
        for number, content in enumerate(self.contents):
            self.assertEqual(content, self.served(number).read_bytes())
        self.assertEqual({taking.HELD}, set(self.apply().values()))
        self.assertEqual([], self.open_paths())
        self.assertEqual([], list(self.staging.iterdir()))
        kept = map_file.MapFile(self.directory / 'h1' / 'site_map.json').load(
            lambda image: True)
        self.assertEqual(7, kept.generation)

    def test_nothing_is_readable_on_the_way(self):
        self.create()
        for path in self.bundle.iterdir():
            self.assertNotIn(b'Image 0', path.read_bytes())
            self.assertNotIn(self.contents[1][:16], path.read_bytes())

    def test_pieces_may_come_one_after_another(self):
        self.create()
        late = self.pieces()[-1]
        late.rename(self.directory / 'late')
        found = self.apply()
        self.assertEqual(taking.INCOMPLETE,
                         found[views.IMAGES, self.ids[1]])
        self.assertTrue(self.served(0).exists())
        (self.directory / 'late').rename(late)
        self.assertEqual(
            {taking.HELD, taking.TAKEN}, set(self.apply().values()))
        self.assertEqual(self.contents[1], self.served(1).read_bytes())

    def test_damaged_pieces_are_named_and_others_taken(self):
        self.create()
        last = self.pieces()[-1]
        last.write_bytes(last.read_bytes()[:-1] + b'x')
        found = self.apply()
        self.assertIn(str(last), found[views.IMAGES, self.ids[1]])
        self.assertFalse(self.served(1).exists())
        self.assertTrue(self.served(0).exists())

    def test_pieces_of_another_place_are_damaged(self):
        self.create()
        first, *_more, last = self.pieces()
        last.write_bytes(first.read_bytes())
        self.assertIn(taking.DAMAGED,
                      self.apply()[views.IMAGES, self.ids[1]])

    def test_what_the_site_holds_is_left_out(self):
        there = objects.Host(
            name='h2', site=SITE, role=objects.COMPUTE, holdings=[
                objects.Holding(kind=views.IMAGES, id=self.ids[0])])
        self.assertEqual([packing.HELD, packing.PACKED],
                         self.create(hosts=[there]))

    def test_of_a_plan_a_host_takes_its_part(self):
        plan = objects.Plan(site=SITE, generation=3, items=[
            objects.PlanItem(host=f'h{number + 1}', kind=views.IMAGES,
                             id=self.ids[number], priority=1, bytes=1,
                             saved_seconds=1.0) for number in range(2)])
        self.assertEqual([packing.PACKED] * 2, self.create(plan))
        self.assertNotIn((views.IMAGES, self.ids[1]), self.apply())
        self.assertTrue(self.served(0).exists())
        self.assertEqual(3, filling.FillPlan.load(
            self.directory / 'h1' / 'plan.json').generation)

    def test_what_the_repository_lacks_is_said(self):
        self.manifest('hub/objects', self.ids[1]).unlink()
        self.assertEqual([packing.PACKED, packing.ABSENT], self.create())

    def test_a_cache_that_is_full(self):
        self.create()
        conf = self.conf()
        conf.set_override('cache_capacity', str(25 * planes.LEAF), 'agent')
        self.assertEqual(
            1, list(self.apply(conf).values()).count(taking.NO_ROOM))


class TestRefusals(BundleTest):

    def setUp(self):
        super().setUp()
        self.create()

    def test_bundles_of_another_site(self):
        error = self.assertRaises(exceptions.Forbidden, self.apply,
                                  self.conf(site='shore'))
        self.assertIn('for site ship', str(error))

    def test_bundles_that_no_repository_signed(self):
        head = (self.bundle / 'bundle.json')
        head.write_text(head.read_text().replace('"index": "', '"index": "0'))
        self.assertRaises(exceptions.Forbidden, self.apply)

    def test_bundles_of_another_deployment(self):
        self.shared.unlink()
        keys.create_key(self.shared)
        self.assertRaises(exceptions.IntegrityError, self.apply)

    def test_directories_without_a_bundle(self):
        (self.bundle / 'bundle.json').unlink()
        self.assertRaises(exceptions.FormatError, self.apply)

    def test_directories_with_files_are_not_written_to(self):
        self.assertRaises(exceptions.Conflict, self.create)

    def test_objects_that_are_no_names_of_files(self):
        self.patch(views, 'KINDS', ('images',))
        self.assertRaises(exceptions.FormatError, self.apply)

    def test_another_user(self):
        (self.directory / 'h1').mkdir()
        self.patch(taking.os, 'geteuid', lambda: 12345)
        self.assertIn('sudo -u', str(self.assertRaises(
            exceptions.InvalidInput, self.apply)))

    def test_an_agent_that_runs(self):
        with directory.used_by_one(self.directory / 'h1'):
            self.assertRaises(exceptions.Conflict, self.apply)


class TestAbandoned(BundleTest):
    """What a killed process leaves, whatever the umask."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0o022))
        self.create()
        self.unpacked = []
        unpack = sealing.Bundle.unpack

        def noted(bundle, packed, path):
            unpack(bundle, packed, path)
            self.unpacked.append((path, self.open_paths()))

        self.patch(sealing.Bundle, 'unpack', noted)

    def leave(self):
        """Leave the spool as a process that is killed does."""
        with mock.patch.object(taking.shutil, 'rmtree'), \
                mock.patch.object(pathlib.Path, 'unlink'):
            self.apply()

    def test_others_read_nothing_of_it(self):
        self.apply()
        self.assertEqual(4, len(self.unpacked))
        for _path, found in self.unpacked:
            self.assertEqual([], found)
        self.assertEqual(0o022, os.umask(0o022))

    def test_the_next_start_of_the_agent_removes_it(self):
        self.leave()
        [path, *_others] = (path for path, _found in self.unpacked)
        self.assertTrue(path.exists())
        holdings.Holdings(
            self.directory / 'h1' / 'objects', 1 << 30, mock.Mock(),
            mock.Mock()).scan()
        self.assertFalse(path.exists())


class TestTrust(BundleTest):

    def test_images_that_nobody_vouches_for_are_not_taken(self):
        self.images[1].record = self.images[0].record
        self.create()
        found = self.apply()
        self.assertIn('vouches', found[views.IMAGES, self.ids[1]])
        self.assertFalse(self.served(1).exists())
        self.assertTrue(self.served(0).exists())


class TestRevokedKeys(BundleTest):
    """Lists of revoked keys, at a host that hears of them by bundles alone."""

    def carry(self, number, *hosts, key=None):
        """Apply another bundle, with a list that revokes keys of hosts."""
        shutil.rmtree(self.bundle, ignore_errors=True)
        self.create(revoked=revocations.sign(
            key or self.keys.key('controller', 'c'), revocations.RevokedKeys(
                number, dict.fromkeys(hosts, time.time()))))
        return self.apply()

    def number(self):
        return revocations.Revocations(
            self.directory / 'h1' / 'revoked_keys.json',
            self.keys.authority()).number

    def test_a_bundle_that_revokes_the_key_of_its_creator_is_refused(self):
        self.carry(1, 'h2')
        error = self.assertRaises(exceptions.Forbidden, self.carry, 2, 'hub')
        self.assertIn('The key of repository hub was revoked', str(error))
        # So are later ones, which say nothing of it.
        shutil.rmtree(self.bundle)
        self.create()
        self.assertRaises(exceptions.Forbidden, self.apply)

    def test_images_that_a_revoked_key_vouches_for_are_not_taken(self):
        for image in self.images[1:]:
            image.record = image_records.sign(
                self.keys.key('repository', 'old'), image)
        found = self.carry(1, 'old')
        self.assertIn('vouches', found[views.IMAGES, self.ids[1]])
        self.assertTrue(self.served(0).exists())
        self.assertFalse(self.served(1).exists())

    def test_older_lists_and_others_change_nothing(self):
        self.carry(2, 'h2')
        for number, key in ((1, None),
                            (3, self.keys.key('repository', 'hub'))):
            with self.assertLogs('diffcache_openstack', 'WARNING') as logs:
                found = self.carry(number, 'hub', key=key)
            self.assertIn('still using number 2', logs.output[0])
            self.assertEqual({taking.HELD}, set(found.values()))
            self.assertEqual(2, self.number())
