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
import argparse
import contextlib
import io

from diffcache_openstack.cmd.toolbox import testbed
from diffcache_openstack.common import exceptions
from tests import base


class CommandTest(base.TestCase):

    def images(self, *sizes):
        return [testbed.Run._image(str(self.write_file(
            f'{number}.raw', b'x' * size)))
            for number, size in enumerate(sizes)]

    def hosts(self, capacity, *sizes):
        return testbed.Run._hosts(argparse.Namespace(capacity=capacity),
                                  self.images(*sizes))

    def test_capacities_by_default_are_the_papers(self):
        hosts = self.hosts(None, 700 * 4096, 700 * 4096)
        self.assertEqual([500 * 4096, 800 * 4096, 800 * 4096],
                         [host.capacity for host in hosts])

    def test_capacities_given(self):
        hosts = self.hosts([10 ** 6, 2 << 20], 4096)
        self.assertEqual([('host-1', 10 ** 6), ('host-2', 2 << 20)],
                         [(host.name, host.capacity) for host in hosts])

    def test_useless_capacity(self):
        parser = testbed.Run(None, None).get_parser('run')
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self.assertRaises(SystemExit, parser.parse_args,
                              ['a.raw', 'b.raw', '--capacity', 'much'])
        self.assertIn('"much"', printed.getvalue())

    def test_image_that_does_not_exist(self):
        error = self.assertRaises(exceptions.NotFound, testbed.Run._image,
                                  '/no/image.raw')
        self.assertIn('/no/image.raw', str(error))

    def test_images_are_called_after_their_files(self):
        self.assertEqual('0', self.images(512)[0].name)
