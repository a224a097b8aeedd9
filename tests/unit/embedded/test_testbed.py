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
import hashlib
import pathlib

from diffcache_openstack.embedded import report
from diffcache_openstack.embedded import sites
from diffcache_openstack.embedded import testbed
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests import base

IMAGES = [testbed.Image(name, pathlib.Path(f'/{name}.raw'))
          for name in ('a', 'b', 'c')]
HOSTS = tuple(sites.HostSpec(f'host-{n}', 100) for n in (1, 2, 3))
SETUP = testbed.Setup(HOSTS, sites.LinkSpec(20.0, 1000.0, 4000.0))


class TestbedTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.testbed = testbed.Testbed(IMAGES, SETUP, self.directory,
                                       lambda text: None)
        for image in IMAGES:
            self.testbed._sha256[image.name] = image.name * 64
            self.testbed._published_sizes[image.name] = 4
            self.testbed._records[image.name] = objects.Image(
                id=image.name, name=image.name, content_id='0' * 64,
                size=10, data_size=5)

    def outcome(self, number, seconds, way='repository', identical=True):
        request = objects.Request(
            id='5f0c5a1e-9a5e-4c7e-8a60-0d1ffcac4e00', image_id='a',
            host='host-1', way=way, detail='somewhere', seconds=seconds,
            predicted_seconds=1.0, started_at=versioned.now())
        return testbed.Outcome(
            number, 'host-1', IMAGES[0], number > 3, request, 'a' * 64,
            identical, self.write_file(f'out/{number}', b'image'))

    def result(self, seconds, **options):
        return testbed.ModeResult(
            tuple(self.outcome(n, seconds, **options)
                  for n in range(1, 6)), 7.0, 1000,
            {host.name: 50 for host in HOSTS}, 4)

    def test_streams(self):
        stream = self.testbed._stream(1, 300)
        self.assertEqual(stream, self.testbed._stream(1, 300))
        self.assertNotEqual(stream, self.testbed._stream(2, 300))
        self.assertEqual(['host-1', 'host-2', 'host-3', 'host-1'],
                         [host for host, _ in stream[:4]])
        names = [image.name for _, image in stream]
        for image in IMAGES:
            self.assertGreater(names.count(image.name), 70)

    def test_document_is_what_the_report_reads(self):
        results = {mode: self.result(seconds) for mode, seconds
                   in zip(testbed.MODES, (8.0, 4.0, 0.5, 0.25))}
        document = self.testbed._document(results)
        self.assertTrue(document['identical'])
        self.assertEqual(0.0625, document['modes']['on_the_fly'][
            'ratio_to_templates'])
        document['boot'] = {'image': 'a', 'marker_seen': True,
                            'wan_bytes': 0, 'seconds': 3.0}
        text = report.table(document)
        self.assertIn('0.250', text)
        self.assertIn('host-3', text)

    def test_one_wrong_image_is_enough(self):
        results = {mode: self.result(1.0) for mode in testbed.MODES}
        results['images'] = self.result(1.0, identical=False)
        self.assertFalse(self.testbed._document(results)['identical'])

    def built(self, outcomes):
        return self.testbed._built(outcomes)

    def test_boots_only_what_was_built_without_the_wan(self):
        self.assertIsNone(self.built(self.result(1.0).outcomes))
        built = self.built(self.result(1.0, way='build').outcomes)
        self.assertEqual(5, built.number)

    def test_boots_nothing_that_once_crossed_the_wan_whole(self):
        outcomes = self.result(1.0, way='build').outcomes
        mixed = (self.outcome(1, 1.0), *outcomes[1:])
        self.assertIsNone(self.built(mixed))

    def test_keeps_only_the_output_to_boot(self):
        outcomes = self.result(1.0, way='build').outcomes
        self.testbed._keep_one(outcomes)
        left = [o.number for o in outcomes if o.output.exists()]
        self.assertEqual([self.built(outcomes).number], left)
        mixed = (self.outcome(1, 1.0), *outcomes[1:])
        self.testbed._keep_one(mixed)
        self.assertFalse(any(o.output.exists() for o in mixed))

    def test_sha256(self):
        path = self.write_file('x', b'content')
        self.assertEqual(hashlib.sha256(b'content').hexdigest(),
                         testbed.sha256(path))


class LinkSpecTest(base.TestCase):

    def test_megabits(self):
        self.assertEqual(2500000, sites.LinkSpec.bytes_per_second(20))
