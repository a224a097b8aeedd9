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
"""The local socket of an agent, on an embedded site with real images."""

import dataclasses
import hashlib
import shutil
import stat
import subprocess
import threading

import fixtures

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.functional.agent import family
from tests.functional.agent import test_embedded
from tests import waiting

HOST = 'host-1'


class LocalTest(test_embedded.EmbeddedTestCase):

    def setUp(self):
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        super().setUp()
        self.client = local_client.LocalClient(
            str(self.directory / 'agent.sock'), timeout=180)
        self.data = {name: path.read_bytes()
                     for name, path in self.images.items()}

    def prepare(self):
        """One host has a socket, and may write where the test looks."""
        agent = self.site.hosts[HOST]
        agent.conf.set_override('socket', str(self.directory / 'agent.sock'),
                                'agent')
        agent.conf.set_override('output_directories',
                                [str(self.directory / 'outputs')], 'agent')
        (self.directory / 'outputs').mkdir()

    def packed(self, name):
        """Register an image as the compressed qcow2 file it may also be."""
        path = self.directory / f'{name}.qcow2'
        subprocess.run(['qemu-img', 'convert', '-c', '-O', 'qcow2',
                        self.images[name], path], check=True)
        native = image_tools.ImageTools()
        staging = self.directory / 'unpacked'
        recipe = self.directory / 'recipe'
        native.to_raw(path, staging)
        native.make_recipe(staging, path, recipe)
        sha512 = hashlib.sha512(path.read_bytes()).hexdigest()
        keeper = self.site.repository.repository
        held = self.site.repository.held
        for source, target in ((staging, held.staging('content')),
                               (recipe, held.staging('recipe'))):
            shutil.move(source, target)
        keeper.admit(held.staging('content'), {
            'id': f'{name}-packed', 'name': name, 'disk_format': 'qcow2',
            'file_size': path.stat().st_size, 'os_hash_algo': 'sha512',
            'os_hash_value': sha512}, held.staging('recipe'))
        held.staging('content').unlink(missing_ok=True)
        waiting.until(lambda: self.known(f'{name}-packed'), name)
        return path.read_bytes()

    def known(self, image_id):
        try:
            return self.client.image(image_id)
        except exceptions.NotFound:
            return None

    def read(self, image_id, *args, **options):
        with self.client.file(image_id, *args, **options) as file:
            return b''.join(file)

    def files(self):
        return [file['image_id'] for file in self.client.status()['files']]

    def test_raw_through_base_and_patch_writes_nothing(self):
        self.hold(host_1=[self.image('system'),
                          self.patch_key('system', 'java')])
        before = self.site.wan_bytes()
        self.assertEqual(self.data['java'], self.read('java',
                                                      site_only=True))
        self.assertEqual(self.data['java'][7_000_001:9_000_000],
                         self.read('java', 7_000_001, 8_999_999))
        self.assertEqual(([], before), (self.files(),
                                        self.site.wan_bytes()))
        self.assertTrue(self.known('java')['file_at_site'])

    def test_a_qcow2_file_is_made_again_bit_for_bit(self):
        data = self.packed('java')
        self.assertRaises(exceptions.Conflict, self.read, 'java-packed',
                          site_only=True)
        self.hold(host_2=[self.image('system')],
                  host_3=[self.patch_key('system', 'java')])
        waiting.until(lambda: self.known('java-packed')['file_at_site'],
                      'the recipe, which comes with the patch')
        before = self.site.wan_bytes()
        self.assertEqual(data, self.read('java-packed', site_only=True))
        self.assertEqual(data[1000:2000], self.read('java-packed', 1000,
                                                    1999))
        self.assertEqual(before, self.site.wan_bytes())
        self.assertEqual(['java-packed'], self.files())

    def test_a_qcow2_file_is_sent_while_it_is_made(self):
        data = self.packed('java')
        self.hold(host_1=[self.image('java')])
        reads = []
        open_recipe = image_tools.ImageTools.open_recipe

        def paused(tools, *sources):
            source = open_recipe(tools, *sources)
            source.read = pausing(source.read)
            return source

        def pausing(read):
            def wait(offset, length):
                if offset:
                    # The rest is made when its beginning has been received.
                    first_received.wait(60)
                reads.append(offset)
                return read(offset, length)
            return wait

        first_received = threading.Event()
        self.useFixture(fixtures.MockPatchObject(
            image_tools.ImageTools, 'open_recipe', paused))
        received = b''
        with self.client.file('java-packed') as file:
            for piece in file:
                received += piece
                first_received.set()
        self.assertEqual(data, received)
        self.assertGreater(len(reads), 1)
        self.assertEqual(['java-packed'], self.files())
        self.assertEqual([], list(
            (self.site.hosts[HOST].held.root / 'staging').iterdir()))

    def test_a_file_that_is_prefetched_counts_no_hit(self):
        data = self.packed('java')
        self.read('java-packed')
        self.client.drop('java-packed')
        self.client.enqueue('java-packed')
        self.client.prefetch('java-packed', 60.0)
        self.assertEqual((['java-packed'], []), (self.files(),
                                                 self.client.queue()))
        found = self.known('java-packed')
        self.assertEqual((True, 0), (found['cached'], found['hits']))
        before = self.site.wan_bytes()
        self.assertEqual(data, self.read('java-packed', site_only=True))
        self.assertEqual(before, self.site.wan_bytes())
        self.assertEqual(1, self.known('java-packed')['hits'])

    def test_a_file_that_turns_out_wrong_is_broken_off(self):
        data = self.packed('java')
        key = self.image('java')
        self.hold(host_1=[key])
        path = self.site.hosts[HOST].held.path(key)
        with open(path, 'r+b') as content:
            content.seek(len(self.data['java'].rstrip(b'\0')) - 9)
            content.write(b'x' * 9)
        received = b''
        with self.assertRaises(exceptions.DiffCacheError):
            with self.client.file('java-packed') as file:
                for piece in file:
                    received += piece
        self.assertLess(len(received), len(data))
        self.assertEqual(data[:len(received)], received)
        # The content is out of service, and had from the repository.
        waiting.until(lambda: key not in self.site.hosts[HOST].held,
                      'the damaged content to be noticed')
        self.assertEqual(data, self.read('java-packed'))

    def test_a_file_given_serves_the_site(self):
        data = self.packed('other')
        path = self.directory / 'given'
        path.write_bytes(data)
        with open(path, 'rb') as source:
            self.client.give_file('other-packed', source, len(data))
        before = self.site.wan_bytes()
        self.assertEqual(data, self.read('other-packed', site_only=True))
        self.assertLess(self.site.wan_bytes() - before, family.MIB)
        path.write_bytes(data[:-1] + b'x')
        with open(path, 'rb') as source:
            self.assertRaises(exceptions.IntegrityError,
                              self.client.give_file, 'other-packed', source,
                              len(data))

    def test_content(self):
        output = self.directory / 'outputs' / 'disk'
        request = self.client.content('java', str(output))
        self.assertEqual('repository', request['way'])
        self.assertEqual(self.data['java'], output.read_bytes())
        self.assertEqual(0o644, stat.S_IMODE(output.stat().st_mode))

    def test_content_is_written_nowhere_else(self):
        link = self.directory / 'outputs' / 'link'
        link.symlink_to(self.directory)
        for output in (self.directory / 'disk', link / 'disk',
                       self.directory / 'outputs' / '..' / 'disk', link):
            error = self.assertRaises(exceptions.InvalidInput,
                                      self.client.content, 'java',
                                      str(output))
            self.assertIn(str(output), str(error))
        self.assertFalse((self.directory / 'disk').exists())

    def test_withdrawn_from_every_host(self):
        self.packed('java')
        self.hold(host_1=[self.image('system'),
                          self.patch_key('system', 'java')],
                  host_2=[self.image('java')])
        self.read('java-packed')
        keeper = self.site.repository.repository
        for name in ('java', 'java-packed'):
            keeper.put(dataclasses.replace(keeper.find(name),
                                           status=views.DELETED))
        keys = [self.image('java'), self.patch_key('system', 'java')]
        waiting.until(lambda: not any(
            key in agent.held for agent in self.site.agents()
            for key in keys), 'the hosts to obey')
        for name in ('java', 'java-packed'):
            self.assertRaises(exceptions.NotFound, self.read, name)
            self.assertRaises(exceptions.NotFound, self.get, 'host-2', 'java')
        self.assertEqual([], self.files())
        for agent in self.site.agents():
            self.assertEqual([], list(agent.held.root.glob(
                f'*/*{self.contents["java"]}*')))
        # What it was made from stays.
        self.assertIn(self.image('system'), self.site.hosts[HOST].held)

    def test_deactivated_and_back(self):
        keeper = self.site.repository.repository
        self.hold(host_1=[self.image('java')])
        record = keeper.find('java')
        keeper.put(dataclasses.replace(record, status=views.DEACTIVATED))
        waiting.until(lambda: self.image('java') not in
                      self.site.hosts[HOST].held, 'the host to obey')
        self.assertRaises(exceptions.NotFound, self.read, 'java')
        keeper.put(record)
        waiting.until(lambda: self.known('java'), 'its return')
        self.assertEqual(self.data['java'], self.read('java'))
