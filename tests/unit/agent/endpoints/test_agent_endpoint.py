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
import stat
import uuid

from diffcache_openstack.agent.endpoints import agent_endpoint
from diffcache_openstack.agent.repository import incoming
from diffcache_openstack.agent.repository import on_demand
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

CONTENT = b'content' * 100
CONTENT_ID = fakes.content_id(CONTENT)
WAIT_SECONDS = 60
BASES = (fakes.content_id(b'one'), fakes.content_id(b'two'))
WANTED = agent_api.PatchWanted(CONTENT_ID, BASES, 10.0, 20.0, 60.0)
PATCH_ID = fakes.content_id(b'patch')


class Filler:
    """Notes the plans that it is given."""

    def __init__(self):
        self.plans = []
        self.woken = 0

    def hold(self, plan):
        self.plans.append(plan)

    def wake(self):
        self.woken += 1


class Repository:
    """Registers any file."""

    def __init__(self):
        self.calls = []

    def register(self, path, image_id, name):
        self.calls.append((path.read_bytes(), image_id, name))
        return views.ImageRef(image_id, name, CONTENT_ID, 2, 1)


class Patches:
    """Creates any patch."""

    def __init__(self):
        self.calls = []

    def create(self, wanted):
        self.calls.append(wanted)
        return views.PatchRef(PATCH_ID, wanted.bases[0], wanted.target, 7, 0.5)


class Arriving:
    """Has one image."""

    def __init__(self):
        self.image = objects.Image(id='t', content_id=CONTENT_ID)
        self.calls = []

    def wait(self, *arguments):
        self.calls.append(arguments)
        return self.image


class Status:

    def report(self):
        return {'holdings': [['images', CONTENT_ID, 5]]}


class ManagerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('control_exchange', uuid.uuid4().hex)
        self.bus = messaging.Bus(conf, versioned.Serializer())
        self.addCleanup(self.bus.close)
        self.host = fakes.Host(self.directory, fakes.Network(), 'h1',
                               10 ** 10)
        self.key = self.host.put(CONTENT)
        self.host.view = fakes.site_view([self.host], {'t': CONTENT}, [])
        self.filler = Filler()
        self.outputs = self.directory / 'instances'
        self.outputs.mkdir()
        server = agent_endpoint.new_server(self.bus, 'h1', self.endpoint())
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.api = agent_api.AgentAPI(self.bus, conf)
        self.ctxt = contexts.RequestContext.for_service('test')
        self.output = self.outputs / 'out'

    def endpoint(self):
        return agent_endpoint.AgentManager(
            self.host.state, self.host.server, self.filler, Status(),
            self.repository_parts())

    def repository_parts(self):
        """Return what a repository has; None, as this is none."""
        return None


class ComputeTest(ManagerTest):

    def test_get_image(self):
        request = self.api.get_image(self.ctxt, 'h1', 't', str(self.output),
                                     mode='on_the_fly')
        self.assertEqual(('h1', 't', 'local', 'on_the_fly'),
                         (request.host, request.image_id, request.way,
                          request.mode))
        self.assertEqual(CONTENT, self.output.read_bytes())
        # The caller is another user than this agent, and reads it.
        self.assertEqual(0o644, stat.S_IMODE(self.output.stat().st_mode))

    def test_get_an_unknown_image(self):
        error = self.assertRaises(exceptions.NotFound, self.api.get_image,
                                  self.ctxt, 'h1', 'u', str(self.output))
        self.assertIn('u', str(error))

    def test_outputs_elsewhere_are_left_alone(self):
        foreign = self.write_file('etc/passwd', b'root')
        (self.outputs / 'link').symlink_to(foreign.parent)
        for path in (foreign, self.outputs / '..' / 'etc' / 'passwd',
                     self.outputs / 'link' / 'passwd'):
            error = self.assertRaises(
                exceptions.InvalidInput, self.api.get_image, self.ctxt, 'h1',
                't', str(path))
            self.assertIn('output_directories', str(error))
        self.assertEqual(b'root', foreign.read_bytes())

    def test_unknown_mode(self):
        for image in ('t', 'u'):
            self.assertRaises(exceptions.InvalidInput, self.api.get_image,
                              self.ctxt, 'h1', image, str(self.output), 'fast')

    def test_only_a_repository_registers(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.api.register_image, self.ctxt, 'h1',
            '/img', 't', 'Name')
        self.assertIn('repository', str(error))

    def test_only_a_repository_adds_images(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.api.await_image, self.ctxt, 'h1',
            't', 1000, 20.0)
        self.assertIn('repository', str(error))

    def test_only_a_repository_creates_patches(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.api.create_patch, self.ctxt, 'h1',
            WANTED)
        self.assertIn('repository', str(error))

    def test_status(self):
        self.assertEqual(Status().report(), self.api.status(self.ctxt, 'h1'))

    def call(self, name, *arguments):
        """Call a method as RPC does, and wait for it."""
        return getattr(self.endpoint(), name)(self.ctxt, *arguments)

    def test_a_plan_in_its_order(self):
        self.call('hold', 3, [('images', 'b', 2.0), ('patches', 'a', 1.0)])
        [plan] = self.filler.plans
        self.assertEqual(3, plan.generation)
        self.assertEqual(
            (holdings.PlacedObject(views.Key('patches', 'a'), 1.0),
             holdings.PlacedObject(views.Key('images', 'b'), 2.0)),
            plan.items)
        self.assertTrue(self.host.state.report_due.is_set())

    def test_another_map(self):
        self.call('site_map_changed', self.host.view.generation)
        self.assertFalse(self.host.state.report_due.is_set())
        self.call('site_map_changed', 99)
        self.assertTrue(self.host.state.report_due.is_set())

    def test_a_damaged_object_is_dropped_and_fetched_again(self):
        self.host.held.path(self.key).write_bytes(b'damaged')
        self.call('verify_object', *self.key)
        self.assertTrue(self.host.state.report_due.wait(WAIT_SECONDS))
        self.assertNotIn(self.key, self.host.held)


class RepositoryTest(ManagerTest):

    def setUp(self):
        self.images, self.patches = Repository(), Patches()
        super().setUp()

    def repository_parts(self):
        return agent_endpoint.RepositoryParts(
            self.images, incoming.Incoming(
                [str(self.directory / 'incoming')]), self.patches)

    def register(self, path):
        return self.api.register_image(self.ctxt, 'h1', str(path), 't',
                                       'Name')

    def test_register_image(self):
        image = self.register(
            self.write_file('incoming/images/img', CONTENT))
        self.assertEqual(('t', CONTENT_ID), (image.id,
                                             image.content_id))
        self.assertEqual([(CONTENT, 't', 'Name')], self.images.calls)

    def test_create_a_patch(self):
        patch = self.api.create_patch(self.ctxt, 'h1', WANTED)
        self.assertEqual((PATCH_ID, BASES[0], CONTENT_ID, 7), (
            patch.id, patch.base, patch.target, patch.size))
        self.assertEqual([on_demand.PatchRequest(CONTENT_ID, BASES, 10.0,
                                                 20.0)],
                         self.patches.calls)

    def test_an_image_that_is_being_added(self):
        arriving = Arriving()
        manager = agent_endpoint.AgentManager(
            self.host.state, None, self.filler, Status(),
            self.repository_parts()._replace(arriving=arriving))
        self.assertIs(arriving.image, manager.await_image(
            self.ctxt, 't', 1000, 20.0))
        self.assertEqual([('t', 1000, 20.0)], arriving.calls)

    def test_no_image_is_being_added_without_an_image_service(self):
        self.assertIsNone(self.api.await_image(self.ctxt, 'h1', 't', 1000,
                                               20.0))

    def test_files_elsewhere_are_not_registered(self):
        secret = self.write_file('etc/shadow', b'secret')
        folder = self.directory / 'incoming'
        folder.mkdir()
        (folder / 'link').symlink_to(secret)
        (folder / 'etc').symlink_to(secret.parent)
        for path in (secret, folder / '..' / 'etc' / 'shadow',
                     folder / 'link', folder / 'etc' / 'shadow', folder,
                     folder / 'nothing'):
            self.assertRaises(exceptions.InvalidInput, self.register, path)
        self.assertEqual([], self.images.calls)
