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
import time
from unittest import mock

from diffcache_openstack.agent.state import current_map
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import views
from tests import base
from tests import host_key_files

CONTENT = 'a' * 64


def a_map(generation=3):
    return objects.SiteMap(
        site='s', generation=generation,
        images=[objects.Image(id='t', name='n', content_id=CONTENT,
                              size=10, data_size=5)],
        patches=[objects.Patch(id='b' * 64, base=CONTENT, target='c' * 64,
                               size=2, apply_seconds=0.5)],
        hosts=[objects.Host(name='h1', site='s', role='compute',
                            url='http://h1', holdings=[
                                objects.Holding(kind='images',
                                                id=CONTENT, bytes=5)]),
               objects.Host(name='r', site='x', role='repository')],
        links=objects.Links(local=4.0, peer=2.0, repo=1.0))


class Conductor:
    """Has one map and maybe differences to it, or is down."""

    def __init__(self):
        self.down = False
        self.asked = []
        self.map = a_map()
        self.changes = {}

    def update_site_map(self, ctxt, site, generation):
        self.asked.append((site, generation))
        if self.down:
            raise exceptions.ServiceUnavailable('no answer')
        if generation == self.map.generation:
            return None
        return self.changes.get(generation, self.map)

    def change(self, digest=None):
        """Have another image in the next generation."""
        image = objects.Image(id='new', content_id='e' * 64, size=1,
                              data_size=1)
        change = objects.MapChange(
            site='s', previous=self.map.generation,
            generation=self.map.generation + 1, images=[image])
        self.map = a_map(change.generation)
        self.map.images = [*self.map.images, image]
        change.digest = digest or map_state.MapState(self.map).digest
        self.changes = {change.previous: change}
        return change


class SiteMapTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'map.json'
        self.conductor = Conductor()

    def new(self, security=signatures.Security()):
        return current_map.SiteMap(self.path, self.conductor, None, 's',
                                   image_records.Verifier(security))

    def test_images_that_no_repository_vouches_for_are_left_out(self):
        keys = host_key_files.Keys(self.directory / 'keys')
        security = keys.security('compute', 'h1')
        good, bad, moved = (
            objects.Image(id=name, content_id=CONTENT, size=1, data_size=1)
            for name in ('good', 'bad', 'moved'))
        gone = objects.Image(id='gone', content_id=CONTENT, size=1,
                                data_size=1, status=objects.DELETED)
        key = keys.key('repository', 'hub')
        good.record = image_records.sign(key, good)
        # A record of the same image, with other content.
        moved.content_id = 'd' * 64
        moved.record = image_records.sign(key, moved)
        moved.content_id = CONTENT
        found = a_map()
        found.images = [good, bad, moved, gone]
        self.new(security).update(found)
        self.assertEqual(['gone', 'good'], [
            image.id
            for image in self.new(security).current().images])
        # The file has what was sent, for an agent that believes it.
        self.assertEqual(4, len(self.new().current().images))

    def test_images_of_a_repository_that_was_revoked(self):
        keys = host_key_files.Keys(self.directory / 'keys')
        security = keys.security('compute', 'h1')
        revoked = revocations.Revocations(self.directory / 'revoked',
                                          security.authority)
        image = objects.Image(id='good', content_id=CONTENT, size=1,
                                 data_size=1)
        image.record = image_records.sign(keys.key('repository', 'hub'),
                                          image)
        found = a_map()
        found.images = [image]
        kept = self.new(security)
        kept.update(found)
        self.assertEqual(1, len(kept.current().images))
        revoked.update(revocations.sign(
            keys.key('controller', 'c'),
            revocations.RevokedKeys(1, {'hub': time.time()})))
        kept.review()
        self.assertEqual(0, len(kept.current().images))

    def test_map_that_cannot_be_stored_is_used(self):
        # Regression: withdrawn images were served as long as the filesystem
        # was full, and the whole map was fetched again every two seconds.
        kept = self.new()
        kept.refresh()
        self.conductor.map = a_map(7)
        with mock.patch.object(files, 'write_json',
                               side_effect=exceptions.NoSpace('full')):
            kept.refresh()
        self.assertEqual(7, kept.current().generation)
        kept.refresh()
        self.assertEqual(('s', 7), self.conductor.asked[-1])
        # The next process begins with what was stored.
        self.assertEqual(3, self.new().current().generation)

    def test_outlives_the_process(self):
        self.assertEqual(0, self.new().current().generation)
        self.new().update(a_map())
        found = self.new().current()
        self.assertEqual(3, found.generation)
        self.assertEqual(CONTENT, found.image('t').content_id)
        self.assertEqual(views.Links(4.0, 2.0, 1.0), found.links)
        self.assertEqual(0.5, found.patch('b' * 64).apply_seconds)
        self.assertIn(views.Key(views.IMAGES, CONTENT),
                      found.holdings('h1'))
        self.assertEqual({'r'}, found.repositories.keys())

    def test_a_useless_file_is_no_map(self):
        for document in ({'a': 1}, [], {'diffcache_object.name': 'SiteMap'}):
            files.write_json(self.path, document)
            self.assertEqual(0, self.new().current().generation)

    def test_listeners_hear_of_new_maps_only(self):
        followed, heard = self.new(), []
        followed.subscribe(
            lambda: heard.append(followed.current().generation))
        for _ in range(2):
            followed.refresh()
        self.assertEqual([3], heard)
        self.assertEqual([('s', None), ('s', 3)], self.conductor.asked)

    def test_a_difference_is_applied_and_kept(self):
        followed = self.new()
        followed.refresh()
        before = self.path.read_bytes()
        self.conductor.change()
        followed.refresh()
        self.assertEqual([('s', None), ('s', 3)], self.conductor.asked)
        whole = map_state.MapState(self.conductor.map).view()
        self.assertEqual(whole, followed.current())
        self.assertEqual(before, self.path.read_bytes())
        for _ in range(2):
            self.assertEqual(whole, self.new().current())

    def test_another_result_than_the_conductors_costs_a_whole_map(self):
        followed = self.new()
        followed.refresh()
        self.conductor.change('0' * 32)
        followed.refresh()
        self.assertEqual([('s', None), ('s', 3), ('s', None)],
                         self.conductor.asked)
        self.assertEqual(map_state.MapState(self.conductor.map).view(),
                         followed.current())
        self.assertEqual(followed.current(), self.new().current())

    def test_the_former_map_is_used_until_the_whole_one_arrives(self):
        followed = self.new()
        followed.refresh()
        before = followed.current()
        self.conductor.change('0' * 32)
        with mock.patch.object(
                self.conductor, 'update_site_map', side_effect=[
                    self.conductor.changes[3],
                    exceptions.ServiceUnavailable('gone')]):
            self.assertRaises(exceptions.ServiceUnavailable,
                              followed.refresh)
        self.assertIs(before, followed.current())
        followed.refresh()
        self.assertEqual(('s', None), self.conductor.asked[-1])
        self.assertEqual(4, followed.current().generation)

    def test_an_image_registered_a_moment_ago(self):
        followed = self.new()
        followed.reachable = True
        self.assertEqual(CONTENT, followed.find('t').content_id)

    def early(self, **changes):
        return objects.Image(**{
            'id': 'early', 'content_id': 'f' * 64, 'size': 1,
            'data_size': 1, **changes})

    def test_an_image_before_the_conductor_has_it(self):
        followed = self.new()
        followed.refresh()
        self.assertTrue(followed.add_early(self.early()))
        self.assertEqual('f' * 64, followed.find('early').content_id)
        self.assertTrue(followed.is_early('f' * 64))
        self.assertFalse(followed.is_early(CONTENT))
        # It stays with another map that does not have it.
        self.conductor.change()
        followed.refresh()
        self.assertEqual('f' * 64, followed.find('early').content_id)
        self.assertEqual(CONTENT, followed.find('t').content_id)
        # The file has the conductor's map alone.
        self.assertRaises(exceptions.NotFound, self.new().find, 'early')

    def test_the_conductors_map_counts_for_what_it_has(self):
        followed = self.new()
        followed.add_early(self.early(id='t'))
        followed.refresh()
        self.assertEqual(CONTENT, followed.find('t').content_id)
        self.assertFalse(followed.is_early('f' * 64))

    def test_what_the_conductor_has_withdrawn_meanwhile(self):
        followed = self.new()
        followed.add_early(self.early())
        self.conductor.map.images = [self.early(status=objects.DELETED)]
        followed.refresh()
        self.assertRaises(exceptions.NotFound, followed.find, 'early')

    def test_an_image_that_the_conductor_never_has_is_forgotten(self):
        self.patch(current_map, '_EARLY_SECONDS', 0.0)
        followed = self.new()
        followed.add_early(self.early())
        followed.refresh()
        self.assertRaises(exceptions.NotFound, followed.find, 'early')

    def test_an_early_image_that_is_not_served(self):
        followed = self.new()
        self.assertFalse(followed.add_early(
            self.early(status=objects.DEACTIVATED)))
        keys = host_key_files.Keys(self.directory / 'keys')
        strict = self.new(keys.security('compute', 'h1'))
        self.assertFalse(strict.add_early(self.early()))
        image = self.early()
        image.record = image_records.sign(keys.key('repository', 'hub'),
                                          image)
        self.assertTrue(strict.add_early(image))
        # Trust that is looked at again starts from the conductor's map.
        strict.review()
        self.assertRaises(exceptions.NotFound, strict.find, 'early')

    def test_no_lookup_at_a_conductor_that_is_down(self):
        self.assertRaises(exceptions.NotFound, self.new().find, 't')
        self.assertEqual([], self.conductor.asked)

    def test_a_conductor_that_fails_during_a_lookup(self):
        followed = self.new()
        followed.reachable = self.conductor.down = True
        self.assertRaises(exceptions.NotFound, followed.find, 't')
        self.assertEqual(1, len(self.conductor.asked))
