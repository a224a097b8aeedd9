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
"""Images that are requested while the repository is still adding them."""

import hashlib
import shutil
import subprocess
import threading
import types

from diffcache_openstack.agent.repository import image_service
from diffcache_openstack.agent import service
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views
from tests.functional.agent import family
from tests.functional.agent import test_embedded
from tests import waiting

HOST = 'host-1'
IMAGE = 'uploaded'
SECONDS = 180
# Half of it shrinks when it is compressed.
CONTENT = b'option = default' * (1 << 18) + family.contents()['other']


class ImageService:
    """An image service with one image, which reports no changes.

    :ivar file: the image's file; None until it is uploaded
    """

    def __init__(self):
        self.file = None

    def images(self):
        return [self.image(IMAGE)] if self.file else []

    def image(self, image_id):
        if self.file is None or image_id != IMAGE:
            return None
        data = self.file.read_bytes()
        return image_service.ServiceImage(
            id=IMAGE, name='Uploaded', status='active', disk_format='qcow2',
            container_format='bare', size=len(data), os_hash_algo='sha512',
            os_hash_value=hashlib.sha512(data).hexdigest(), owner='project',
            visibility='private')

    def download(self, image_id):
        yield self.file.read_bytes()

    def start(self, changed, deleted):
        """Do nothing: what a host needs is added without a report, too."""

    def stop(self):
        """Do nothing."""


class NewImagesTest(test_embedded.EmbeddedTestCase):

    def image_contents(self):
        return {'other': family.contents()['other']}

    def new_site(self, options=None):
        return super().new_site({
            ('repository', 'image_source'): 'test',
            ('repository', 'compression_level'): 3, **(options or {})})

    def setUp(self):
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        self.service = ImageService()
        self.patch(service, 'driver', types.SimpleNamespace(
            DriverManager=lambda *_arguments, **_options:
            types.SimpleNamespace(driver=self.service)))
        # Recipes are made when the test says so.
        self.go_on = threading.Event()
        make_recipe = image_tools.ImageTools.make_recipe

        def make_late(*arguments):
            self.assertTrue(self.go_on.wait(SECONDS))
            return make_recipe(*arguments)

        self.patch(image_tools.ImageTools, 'make_recipe', make_late)
        # However slow this machine is.
        self.patch(agent_api, 'LEAST_WAIT', SECONDS)
        self.patch(agent_api, 'MOST_IMAGE_WAIT', SECONDS)
        super().setUp()
        self.addCleanup(self.go_on.set)
        self.client = local_client.LocalClient(
            str(self.directory / 'agent.sock'), 2 * SECONDS)
        self.output = self.directory / 'outputs' / 'disk'

    def prepare(self):
        agent = self.site.hosts[HOST]
        agent.conf.set_override('socket', str(self.directory / 'agent.sock'),
                                'agent')
        agent.conf.set_override('output_directories',
                                [str(self.directory / 'outputs')], 'agent')
        (self.directory / 'outputs').mkdir()

    def upload(self):
        raw = self.write_file('uploaded.raw', CONTENT)
        packed = self.directory / 'uploaded.qcow2'
        subprocess.run(['qemu-img', 'convert', '-c', '-O', 'qcow2', raw,
                        packed], check=True)
        self.service.file = packed
        return packed.stat().st_size

    def asked(self):
        found = self.site.hosts[HOST].status.report()['new_images']
        return {name: found[name] for name in ('found', 'declined', 'failed')}

    def test_an_image_crosses_compressed_before_it_is_registered(self):
        size = self.upload()
        before = self.site.wan_bytes()
        found = self.client.new_image(IMAGE, size)
        self.assertEqual((IMAGE, size, 'private'), (
            found['id'], found['file_size'], found['visibility']))
        self.client.content(IMAGE, str(self.output))
        self.assertEqual(hashlib.sha256(CONTENT).hexdigest(),
                         family.sha256(self.output))
        held = self.site.repository.held
        form = views.Key(views.COMPRESSED, found['content_id'])
        least = held.path(form).stat().st_size
        self.assertLess(least, len(CONTENT) * 2 / 3)
        self.assertLess(self.site.wan_bytes() - before, 1.1 * least)
        # Nothing of this needed the conductor, which does not know it yet.
        self.assertIsNone(self.site.repository.repository.find(IMAGE))
        self.assertFalse(self.go_on.is_set())
        self.assertEqual({'found': 1, 'declined': 0, 'failed': 0},
                         self.asked())
        self.go_on.set()
        waiting.until(lambda: self.registered('host-3'),
                      'the image to be registered')
        agent = self.site.hosts[HOST]
        waiting.until(lambda: not len(agent.requests), 'the report')

    def registered(self, host):
        """Return whether a host's site map has the image with its recipe."""
        found = self.site.hosts[host].site_map.current()
        return found.has(IMAGE) and found.image(IMAGE).form_id

    def test_an_image_that_cannot_be_added_is_served_no_longer(self):
        def refuse(*_arguments):
            self.assertTrue(self.go_on.wait(SECONDS))
            raise exceptions.InvalidInput('no recipe')

        self.patch(image_tools.ImageTools, 'make_recipe', refuse)
        found = self.client.new_image(IMAGE, self.upload())
        self.go_on.set()
        repository = self.site.repository
        waiting.until(lambda: IMAGE in repository.ingest.refused,
                      'the image to be refused')
        self.assertNotIn(views.Key(views.IMAGES, found['content_id']),
                         repository.held)
        self.assertRaises(exceptions.DiffCacheError, self.client.content,
                          IMAGE, str(self.output))
        self.assertFalse(self.output.exists())

    def test_an_image_that_the_service_does_not_have(self):
        self.assertRaises(exceptions.NotFound, self.client.new_image,
                          'unknown', 1000)
        self.assertEqual({'found': 0, 'declined': 1, 'failed': 0},
                         self.asked())

    def test_a_crash_while_the_recipe_is_made_leaves_nothing(self):
        found = self.client.new_image(IMAGE, self.upload())
        repository = self.site.repository
        state = repository.held.root.parent
        left = [path for path in (state / 'unregistered').iterdir()]
        self.assertEqual([found['content_id']],
                         [path.name for path in left])
        # As after a crash: its content is there, and its mark.
        self.service.file = None
        objects = shutil.copytree(state, self.directory / 'crashed')
        self.go_on.set()
        waiting.until(lambda: repository.repository.find(IMAGE) is not None
                      or IMAGE in repository.ingest.refused,
                      'the image')
        self.site.stop()
        shutil.rmtree(state)
        objects.rename(state)
        self.site = self.new_site()
        self.site.start()
        self.addCleanup(self.site.stop)
        held = self.site.repository.held
        waiting.until(lambda: not list(
            (state / 'unregistered').iterdir()), 'the clean-up')
        self.assertNotIn(views.Key(views.IMAGES, found['content_id']), held)
        self.assertIn(self.image('other'), held)
