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

import json
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

from diffcache_openstack.embedded import boot
from tests import base
from tests.unit.embedded import guests

CHECKOUT = pathlib.Path(__file__).parents[3]
DRIVER = CHECKOUT / 'tools/lib/quickstart.py'
MEGABYTE = 1 << 20
DISK = 16 * MEGABYTE
MODES = ['repository', 'templates', 'fetch_and_patch', 'on_the_fly']


def disk(name, *parts):
    """A disk that boots and says its name, with data in it and holes."""
    head = guests.boot_sector(f'DIFFCACHE-GUEST-READY {name}\r\n')
    return head + b''.join(parts)


@unittest.skipUnless(
    shutil.which(boot.QEMU), 'needs QEMU (package qemu-system-x86)'
)
class TestQuickstart(base.TestCase):
    """The quickstart from images of a few megabytes, to the boot."""

    def setUp(self):
        super().setUp()
        chance = random.Random(1)
        system, database, java = (
            chance.randbytes(size * MEGABYTE) for size in (4, 1, 2))
        self.images = self.directory / 'images'
        self.images.mkdir()
        for name, parts in (
                ('system', [system]),
                ('database', [system, database]),
                ('java', [system, java]),
                ('both', [system, database, java]),
                ('rebuild', [database, system[::-1]])):
            with (self.images / f'{name}.raw').open('wb') as output:
                output.write(disk(name, *parts))
                output.truncate(DISK)

    def quickstart(self):
        return subprocess.run(
            [sys.executable, DRIVER, '--images', self.images,
             '--site', self.directory / 'site', '--output', self.directory,
             '--wan', '80', '--lan', '4000'],
            capture_output=True, text=True, timeout=400)

    def test_leaves_what_the_formats_promise(self):
        result = self.quickstart()
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        document = json.loads(
            (self.directory / 'quickstart.json').read_text())
        self.assertIs(True, document['identical'])
        self.assertEqual(MODES, list(document['modes']))
        for mode in document['modes'].values():
            self.assertEqual(15, len(mode['requests']))
            self.assertTrue(all(r['identical'] for r in mode['requests']))
            self.assertGreater(mode['mean_s'], 0)
            self.assertGreater(mode['mean_filled_s'], 0)
        self.assertIs(True, document['boot']['marker_seen'])
        self.assertEqual(0, document['boot']['wan_bytes'])
        self.assertEqual(3, len(document['hosts']))
        picture = (self.directory / 'quickstart.png').read_bytes()
        self.assertEqual(b'\x89PNG', picture[:4])
        self._check_sense(document)
        self.assertIn('Every image served is byte-identical', result.stdout)

    def _check_sense(self, document):
        """Numbers that any honest run has, whatever its speed."""
        wan = {name: mode['wan_bytes']
               for name, mode in document['modes'].items()}
        published = {image['name']: image['published_size']
                     for image in document['images']}
        asked = sum(published[request['image']] for request
                    in document['modes']['repository']['requests'])
        # The first three may share what they fetch at the same time.
        self.assertGreater(wan['repository'], asked * 12 / 15 * 0.9)
        self.assertGreater(wan['repository'], wan['templates'])
        self.assertGreater(wan['templates'], wan['fetch_and_patch'])
        booted = document['boot']['image']
        self.assertEqual(
            {'build'},
            {request['way'] for request
             in document['modes']['on_the_fly']['requests']
             if request['image'] == booted})
        for host in document['hosts']:
            for used in host['used'].values():
                self.assertLessEqual(used, host['capacity'])

    def test_too_few_images(self):
        for path in self.images.glob('*a*.raw'):
            path.unlink()
        for name in ('both', 'rebuild'):
            (self.images / f'{name}.raw').unlink()
        result = self.quickstart()
        self.assertEqual(1, result.returncode)
        self.assertIn('1 raw images', result.stderr)
        self.assertFalse((self.directory / 'quickstart.json').exists())
