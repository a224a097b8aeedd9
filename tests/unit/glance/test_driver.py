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
"""The driver inside Glance; skipped where Glance is not installed."""

import contextlib
import importlib.util
import io
import pathlib
import threading
import unittest
from unittest import mock

from diffcache_openstack.common import config_hook
from diffcache_openstack.common import exceptions
from tests import base
from tests import waiting

IMAGE = 'c1b1a3f2-0000-4000-8000-000000000001'
DATA = bytes(range(256)) * 100
HAS_GLANCE = importlib.util.find_spec('glance') is not None


class Agent:
    """An agent as its client sees it."""

    def __init__(self):
        self.about = {'id': IMAGE, 'cached': True, 'file_arriving': False,
                      'planned': False,
                      'file_wan_bytes': 0, 'file_size': len(DATA), 'hits': 5,
                      'last_access': 7.0}
        self.down = False
        self.given = []
        self.dropped = []
        self.waiting = []
        self.expected = []
        self.opened = []
        self.prefetched = []

    @contextlib.contextmanager
    def expecting(self, image_id):
        self.image(image_id)
        self.expected.append(image_id)
        yield
        self.expected.remove(image_id)

    def image(self, image_id):
        if self.down:
            raise exceptions.ServiceUnavailable('no agent')
        if image_id != IMAGE:
            raise exceptions.NotFound(image_id)
        return self.about

    def images(self):
        return [self.image(IMAGE)]

    def status(self):
        self.image(IMAGE)
        return {'host': 'h1', 'files_used': 50,
                'files': [{'image_id': IMAGE, 'bytes': 50}]}

    @contextlib.contextmanager
    def file(self, image_id, first=0, last=None, site_only=False,
             stall_timeout=0):
        self.image(image_id)
        self.opened.append((first, last))
        end = len(DATA) if last is None else last + 1
        yield io.BytesIO(DATA[first:end])

    def prefetch(self, image_id, stall_timeout):
        self.image(image_id)
        self.prefetched.append(image_id)

    def give_file(self, image_id, source, length):
        self.given.append((image_id, source.read(length)))

    def drop(self, image_id):
        self.dropped.append(image_id)

    def queue(self):
        return list(self.waiting)

    def enqueue(self, image_id):
        self.waiting.append(image_id)
        return True

    def dequeue(self, image_id):
        self.waiting.remove(image_id)
        return True

    def fallback(self, service, reason, count):
        self.image(IMAGE)


@unittest.skipUnless(HAS_GLANCE, 'Glance is not installed here; the openstack'
                                 ' stage runs this in its environment')
class DriverTest(base.TestCase):

    def setUp(self):
        super().setUp()
        config_hook.extend_glance()
        from diffcache_openstack.glance import driver  # noqa: H301
        self.module = driver
        self.agent = Agent()
        self.conf = driver.CONF
        self.conf([], project='glance')
        self.conf.set_override('image_cache_dir', str(self.directory))
        driver.options.register_opts(self.conf)
        self.conf.set_override('socket', '/run/agent.sock', 'diffcache')
        self.addCleanup(self.conf.reset)
        self.addCleanup(self.conf.clear_override, 'image_cache_dir')
        self.addCleanup(self.conf.clear_override, 'socket', 'diffcache')
        self.patch(driver.local_client, 'LocalClient',
                   lambda *args: self.agent)
        self.stored = mock.Mock(side_effect=lambda image_id, offset: iter(
            [DATA[offset:]]))
        self.patch(driver.store, 'read_from', self.stored)
        self.patch(driver.store, 'prefetch_with', lambda agent: None)
        self.driver = driver.Driver()
        self.driver.configure()

    def read(self):
        with self.driver.open_for_read(IMAGE) as file:
            pieces = []
            while data := file.read(1000):
                pieces.append(data)
        return b''.join(pieces)

    def write(self, data):
        with self.driver.open_for_write(IMAGE) as file:
            file.write(data)
        self.until_handed_over()

    def until_handed_over(self):
        for thread in threading.enumerate():
            if thread.name == 'hand-over':
                thread.join()

    def test_a_client_that_has_all_of_an_image_is_not_kept(self):
        # Regression: its connection waited until the agent had the file.
        self.agent.about.update(cached=False, file_wan_bytes=len(DATA) * 2)
        may_end, given = threading.Event(), self.agent.give_file

        def give(*arguments):
            may_end.wait(waiting.SECONDS)
            given(*arguments)

        self.addCleanup(may_end.set)
        self.agent.give_file = give
        with self.driver.open_for_write(IMAGE) as file:
            file.write(DATA)
        self.assertTrue(self.driver.is_cached(IMAGE))
        self.assertEqual([], self.agent.given)
        may_end.set()
        self.until_handed_over()
        self.assertEqual([(IMAGE, DATA)], self.agent.given)
        self.assertEqual(([], []), (self.agent.expected, self.incomplete()))

    def incomplete(self):
        return [path.name for path in
                pathlib.Path(self.directory, 'incomplete').iterdir()]

    def test_glance_loads_it_by_its_name(self):
        from glance import image_cache  # noqa: H301
        self.conf.set_override('image_cache_driver', 'diffcache')
        self.addCleanup(self.conf.clear_override, 'image_cache_driver')
        self.assertIsInstance(image_cache.ImageCache().driver,
                              self.module.Driver)

    def test_misconfigured_it_does_not_start(self):
        for option, group, value in (
                ('socket', 'diffcache', None), ('socket', 'diffcache', 'x'),
                ('image_cache_dir', None, None),
                ('image_cache_dir', None, '/proc/nothing')):
            with self.subTest(option=option, value=value):
                before = self.conf[group][option] if group \
                    else self.conf[option]
                self.conf.set_override(option, value, group)
                error = self.assertRaises(self.module.Misconfigured,
                                          self.module.Driver().configure)
                self.assertIn(option, str(error))
                self.conf.set_override(option, before, group)

    def test_a_misspelt_option_stops_glance(self):
        path = self.directory / 'glance-api.conf'
        path.write_text('[diffcache]\nsoket = /x\n')
        self.conf(['--config-file', str(path)])
        error = self.assertRaises(self.module.Misconfigured,
                                  self.module.Driver().configure)
        self.assertIn(f"{path}: group [diffcache] has no option 'soket'",
                      str(error))

    def test_what_the_site_can_make_is_cached(self):
        self.assertTrue(self.driver.is_cached(IMAGE))
        self.assertFalse(self.driver.is_cacheable(IMAGE))
        self.assertEqual(DATA, self.read())
        self.stored.assert_not_called()

    def test_what_is_cheaper_by_the_agent_is_its_to_bring(self):
        self.agent.about.update(cached=False, file_wan_bytes=len(DATA))
        self.assertTrue(self.driver.is_cached(IMAGE))
        self.assertEqual([], self.driver.get_cached_images())
        self.agent.about.update(file_wan_bytes=len(DATA) + 1)
        self.assertFalse(self.driver.is_cached(IMAGE))
        for reason in ('file_arriving', 'planned'):
            self.agent.about[reason] = True
            self.assertTrue(self.driver.is_cached(IMAGE))
            self.agent.about[reason] = False

    def test_unknown_and_absurd_names(self):
        for name in ('c1b1a3f2-0000-4000-8000-00000000000f', '../../etc',
                     'detail', ''):
            self.assertFalse(self.driver.is_cached(name))
            self.assertFalse(self.driver.is_cacheable(name))
            self.assertEqual(0, self.driver.get_hit_count(name))

    def test_read_from_the_store_it_becomes_the_agents(self):
        self.agent.about.update(cached=False, file_wan_bytes=len(DATA) * 2)
        self.assertFalse(self.driver.is_cached(IMAGE))
        self.assertTrue(self.driver.is_cacheable(IMAGE))
        with self.driver.open_for_write(IMAGE) as file:
            file.write(DATA)
            file.flush()
            # The plan does not bring it meanwhile.
            self.assertEqual([IMAGE], self.agent.expected)
            # Who asks meanwhile reads along.
            self.assertTrue(self.driver.is_cached(IMAGE))
            self.assertEqual(DATA, self.read())
            with self.driver.open_for_write(IMAGE) as second:
                second.write(b'nowhere')
        self.until_handed_over()
        self.assertEqual([(IMAGE, DATA)], self.agent.given)
        self.assertEqual([], self.agent.expected)
        self.assertEqual([], self.incomplete())
        self.stored.assert_not_called()

    def test_a_download_without_an_agent_is_no_error(self):
        self.agent.about.update(cached=False, file_wan_bytes=len(DATA) * 2)
        self.agent.down = True
        self.agent.give_file = lambda *_file: self.agent.image(IMAGE)
        self.write(DATA)
        self.assertEqual([], self.incomplete())

    def test_a_download_that_ends_early_is_nobodys(self):
        def cut_off():
            with self.driver.open_for_write(IMAGE) as file:
                file.write(DATA[:10])
                raise GeneratorExit

        self.assertRaises(GeneratorExit, cut_off)
        self.assertEqual(([], []), (self.agent.given, self.incomplete()))

    def test_without_an_agent(self):
        self.agent.down = True
        self.assertFalse(self.driver.is_cached(IMAGE))
        self.assertEqual(DATA, self.read())
        self.assertEqual([], self.driver.get_cached_images())
        self.assertEqual(0, self.driver.get_cache_size())
        self.assertIsNone(self.driver.get_least_recently_accessed())
        self.driver.delete_cached_image(IMAGE)
        self.assertFalse(self.driver.prefetch(IMAGE))

    def test_what_operators_see(self):
        self.assertEqual([{
            'image_id': IMAGE, 'hits': 5, 'size': len(DATA),
            'last_accessed': 7.0, 'last_modified': 7.0}],
            self.driver.get_cached_images())
        self.assertEqual((50, 5, len(DATA), (IMAGE, 50)), (
            self.driver.get_cache_size(), self.driver.get_hit_count(IMAGE),
            self.driver.get_image_size(IMAGE),
            self.driver.get_least_recently_accessed()))
        self.assertEqual(1, self.driver.delete_all_cached_images())
        self.assertEqual([IMAGE], self.agent.dropped)

    def test_queue(self):
        self.assertTrue(self.driver.queue_image(IMAGE))
        self.assertTrue(self.driver.is_queued(IMAGE))
        self.assertEqual([IMAGE], self.driver.get_queued_images())
        self.assertTrue(self.driver.prefetch(IMAGE))
        # To open it would count as a hit.
        self.assertEqual(([], [IMAGE], []), (
            self.agent.waiting, self.agent.prefetched, self.agent.opened))
        self.driver.queue_image(IMAGE)
        self.assertEqual(1, self.driver.delete_all_queued_images())

    def test_clean(self):
        self.write_file('incomplete/left', b'x')
        self.write_file('invalid/left', b'x')
        self.driver.clean(stall_time=-60)
        self.assertEqual([], self.incomplete())
        self.assertEqual([], list((self.directory / 'invalid').iterdir()))
