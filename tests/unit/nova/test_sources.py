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
"""Which images the agent is asked for, and what is made of its answers."""

import hashlib
import pathlib
import types

from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.nova import sources
from diffcache_openstack.nova import tallies
from tests import base
from tests import host_key_files
from tests.unit.agent_client import test_restarts
from tests.unit.nova import fakes

IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'


class SourceTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client(IMAGE)
        self.source = self.new_source(signatures.Security())
        self.output = str(self.directory / 'base.diffcache')

    def new_source(self, security):
        return sources.Source(self.client, 'on_the_fly', 7.0,
                              image_records.Verifier(security),
                              restarts.Restarts(0.0))

    def wanted(self, **changes):
        return sources.Wanted(**{
            'id': IMAGE, 'status': 'active', 'disk_format': 'qcow2',
            'algorithm': 'sha512', 'digest': fakes.DIGEST, **changes})


class TestDescribe(SourceTest):

    def assertNotOffered(self, reason, wanted, **more):
        error = self.assertRaises(sources.NotOffered, self.source.describe,
                                  wanted, **more)
        self.assertEqual(reason, error.reason)

    def test_what_the_agent_knows(self):
        self.assertEqual(self.client.known,
                         self.source.describe(self.wanted()))

    def test_an_image_of_a_moment_ago(self):
        self.client.error = exceptions.NotFound('not yet')
        self.assertEqual(self.client.known,
                         self.source.describe(self.wanted(size=1000)))
        self.assertEqual(('new_image', IMAGE, 1000), self.client.asked[-1])
        self.client.new_error = exceptions.NotFound('nobody adds it')
        self.assertNotOffered('unknown', self.wanted(size=1000))

    def test_no_wait_for_an_image_whose_size_is_unknown(self):
        self.client.error = exceptions.NotFound('not yet')
        self.assertNotOffered('unknown', self.wanted())
        self.assertEqual([('image', IMAGE)], self.client.asked)

    def test_what_no_repository_vouches_for(self):
        keys = host_key_files.Keys(self.directory / 'keys')
        source = self.new_source(signatures.Security(
            authority=keys.authority(), required=True))
        known = self.client.known
        image = types.SimpleNamespace(**{
            name: known.get(name) for name in image_records.COVERED})
        for record in (None, image_records.sign(keys.key('compute', 'h'),
                                                image)):
            known['record'] = record
            self.assertRaises(exceptions.Forbidden, source.describe,
                              self.wanted())
        known['record'] = image_records.sign(keys.key('repository', 'hub'),
                                             image)
        self.assertEqual(known, source.describe(self.wanted()))
        known['content_id'] = 'b' * 64
        self.assertRaises(exceptions.Forbidden, source.describe,
                          self.wanted())

    def test_hash_of_raw_images(self):
        path = self.write_file('raw', b'content')
        wanted = self.wanted(disk_format='raw', algorithm='sha256',
                             digest=hashlib.sha256(b'content').hexdigest())
        sources.check_hash(wanted, str(path))
        path.write_bytes(b'Content')
        self.assertRaises(exceptions.IntegrityError, sources.check_hash,
                          wanted, str(path))
        sources.check_hash(self.wanted(), str(path))

    def test_images_that_glance_does_not_give_out(self):
        for status in ('deactivated', 'deleted', 'queued', ''):
            self.assertNotOffered('status', self.wanted(status=status))
        self.assertEqual([], self.client.asked)

    def test_images_that_were_withdrawn_from_the_catalogue(self):
        for status in ('deactivated', 'deleted', None):
            self.client.known['status'] = status
            self.assertNotOffered('status', self.wanted())

    def test_images_of_other_formats(self):
        for disk_format in ('vmdk', 'iso', 'aki', None):
            self.assertNotOffered('format',
                                  self.wanted(disk_format=disk_format))
        self.assertNotOffered('format', self.wanted(), formats=('raw',))
        self.assertEqual([], self.client.asked)

    def test_images_that_the_catalogue_does_not_have(self):
        self.client.error = exceptions.NotFound('no such image')
        self.assertNotOffered('unknown', self.wanted())

    def test_images_without_a_hash(self):
        self.assertNotOffered('no hash', self.wanted(digest=None))

    def test_another_file_under_the_same_id(self):
        for changes in ({'digest': 'f' * 128}, {'algorithm': 'sha256'}):
            error = self.assertRaises(
                exceptions.IntegrityError, self.source.describe,
                self.wanted(**changes))
            self.assertIn(IMAGE, str(error))
            self.assertIn(fakes.DIGEST, str(error))

    def test_an_agent_that_is_down(self):
        self.client.error = exceptions.ServiceUnavailable('nobody there')
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.source.describe, self.wanted())


class TestRestartedAgent(SourceTest):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.source = sources.Source(
            self.client, None, 7.0,
            image_records.Verifier(signatures.Security()),
            restarts.Restarts(20.0, lambda: self.now, self.sleep))

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= 5:
            self.client.error = self.client.content_error = None

    def test_it_is_asked_again_what_it_knows(self):
        self.client.error = test_restarts.gone()
        self.assertEqual(self.client.known,
                         self.source.describe(self.wanted()))

    def test_a_delivery_that_it_cut_off_is_repeated(self):
        self.client.content_error = test_restarts.gone()
        pathlib.Path(self.output).write_bytes(b'left behind')
        delivery = self.source.deliver(self.wanted(), self.output)
        self.assertEqual('build', delivery.way)
        self.assertEqual(fakes.CONTENT,
                         pathlib.Path(self.output).read_bytes())


class TestDeliver(SourceTest):

    def test_a_file_appears(self):
        delivery = self.source.deliver(self.wanted(), self.output)
        self.assertEqual(sources.Delivery('build', 'base and patch', 0.5, 77),
                         delivery)
        self.assertEqual(fakes.CONTENT,
                         pathlib.Path(self.output).read_bytes())
        self.assertEqual([('content', IMAGE, self.output, 'on_the_fly', 7.0)],
                         self.client.asked)

    def test_an_agent_that_only_says_so(self):
        self.client.content_bytes = None
        error = self.assertRaises(exceptions.IntegrityError,
                                  self.source.deliver, self.wanted(),
                                  self.output)
        self.assertIn(self.output, str(error))

    def test_an_answer_with_little_in_it(self):
        self.client.request = {'wan_bytes': None}
        delivery = self.source.deliver(self.wanted(), self.output)
        self.assertEqual(sources.Delivery('unknown', '', 0.0, 0), delivery)


class TestReport(SourceTest):

    def test_the_agent_hears_of_fallbacks_once(self):
        tally = tallies.Tally(self.directory / 'images.json')
        for _ in range(2):
            tally.fell_back(IMAGE, 'ServiceUnavailable', 'nobody there')
        tally.fell_back(IMAGE, 'NoSpace', 'full')
        self.client.error = exceptions.ServiceUnavailable('still nobody')
        self.source.report(tally)
        self.client.error = None
        self.client.asked.clear()
        self.source.report(tally)
        self.source.report(tally)
        self.assertEqual(
            [('fallback', 'nova-compute', 'ServiceUnavailable', 2),
             ('fallback', 'nova-compute', 'NoSpace', 1)], self.client.asked)


class TestWanted(base.TestCase):

    def test_from_metadata(self):
        meta = {'id': IMAGE, 'status': 'active', 'disk_format': 'raw'}
        hashes = {'os_hash_algo': 'sha512', 'os_hash_value': fakes.DIGEST}
        expected = sources.Wanted(IMAGE, 'active', 'raw', 'sha512',
                                  fakes.DIGEST)
        self.assertEqual(expected, sources.Wanted.of(
            {**meta, **hashes, 'properties': {}}))
        self.assertEqual(expected, sources.Wanted.of(
            {**meta, 'properties': hashes}))
        self.assertEqual(sources.Wanted(IMAGE, '', None, None, None),
                         sources.Wanted.of({'id': IMAGE}))
