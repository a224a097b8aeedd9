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
"""Boot sets on a host whose cache is too small for the image."""

import os
import random
import signal
import uuid

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent import service as agents
from diffcache_openstack.common import contexts
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.planning import precache
from diffcache_openstack.embedded import sites
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.planning import model
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_lazy_api
from tests.functional.lazy import services
from tests import waiting

_CHUNK = profiles.CHUNK
_CHUNKS = 48
# Of three groups of four chunks; a repository sends all of a group.
_BOOT = (2, 3, 20, 21, 45)
_SET = 12 * _CHUNK
_PROJECT = '4cbe8c81a3b54c6fb3b2d3cdd44f2e0c'


class Site(sites.Site):
    """An embedded site whose options change while it runs."""

    def __init__(self, *args):
        self.confs = []
        super().__init__(*args)

    def _conf(self, values):
        conf = super()._conf(values)
        self.confs.append(conf)
        return conf


class BootSetsTest(services.LazyServicesTest):
    """A host with its agent and diffcached, and less room than the image."""

    def setUp(self):
        super().setUp()
        self.image = self.folder / 'image.raw'
        self.image.write_bytes(random.Random(7).randbytes(_CHUNKS * _CHUNK))
        self.lazy_folder = self.folder / 'h1'
        self.service = self.start_service(self.lazy_folder)
        self.daemon = diffcached.Diffcached(f'{self.lazy_folder}/socket')
        self.site = Site(
            self.folder / 'site',
            [sites.HostSpec('h1', (_CHUNKS - 8) * _CHUNK)],
            sites.LinkSpec(1e4, 1e4, 1e5), self.folder / 'repository', {
                ('data_plane', 'key_file'): f'{self.folder}/key',
                ('agent', 'heartbeat_interval'): 1,
                ('agent', 'sync_outputs'): False,
                ('conductor', 'rpc_timeout'): 10,
                ('conductor', 'check_interval'): 1,
                ('planner', 'interval'): 0,
                ('lazy', 'boot_set_share'): 0.5,
                ('lazy', 'hydrate'): 'none',
                ('lazy', 'worth_seconds'): 0.0})
        self.agent = self.site.hosts['h1']
        self.agent.conf.set_override(
            'socket', f'{self.lazy_folder}/socket', 'lazy')
        self.site.start()
        self.addCleanup(self.site.stop)
        self.content = self.site.register(
            self.image, 'image', 'An image').content_id
        self.site.wait_catalogue(0)
        conf = self.site._conf(
            self.site._keys.of(host_keys.CONTROLLER, 'api'))
        bus = buses.open_bus(conf, host_keys.CONTROLLER)
        self.addCleanup(bus.close)
        self.lazy = conductor_lazy_api.LazyAPI(bus, conf)
        self.control = conductor_control_api.ControlAPI(bus, conf)
        self.database = engine.Database(conf)
        self.ctxt = contexts.RequestContext.for_service('test')
        waiting.until(
            lambda: self.database.read(
                boot_sets.serving, versioned.now()) == {'h1'},
            'the host to report')

    def learn(self):
        """Import what boots read."""
        self.lazy.import_profile(
            self.ctxt, str(uuid.uuid4()), 'image', None, '',
            [[chunk, 4, 100] for chunk in _BOOT])

    def known(self):
        """What the conductor knows of the set."""
        return self.database.read(boot_sets.by_object).get(
            ('h1', self.content))

    def wait_set(self, state='ready'):
        def is_there():
            found = self.known()
            return found is not None and found.state == state

        waiting.until(is_there, f'the set to be {state}')
        return self.known()

    def status(self):
        return self.answered(self.daemon)

    def check_boot(self):
        """Boot lazily: what the profile has is read with no byte of a WAN."""
        before = self.site.wan_bytes()
        path = self.agent._lazy.open('image')['path']
        self.agent._lazy.add_server(lazy_servers.LazyServer(
            's1', _PROJECT, 'image', ''))
        # Past the page cache, which reads ahead.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        content = self.image.read_bytes()
        for chunk in _BOOT:
            self.assertEqual(
                content[chunk * _CHUNK:chunk * _CHUNK + 4096],
                os.pread(descriptor, 4096, chunk * _CHUNK))
        self.assertEqual(0, self.status()['misses'])
        self.assertEqual(before, self.site.wan_bytes())
        # Something else is fetched.
        os.pread(descriptor, 4096, 16 * _CHUNK)
        self.assertEqual(1, self.status()['misses'])
        self.assertLess(before, self.site.wan_bytes())
        return descriptor

    def plan(self):
        return self.site.plan()

    def set_option(self, group, name, value):
        for conf in self.site.confs:
            conf.set_override(name, value, group)

    def room(self):
        return self.agent.held.spare()


class TestPlanned(BootSetsTest):

    def test_a_planned_set_is_there_before_the_first_boot(self):
        free = self.room()
        self.learn()
        self.plan()
        found = self.wait_set()
        self.assertEqual((_SET, False), (found.bytes, found.pinned))
        self.check_present()
        self.assertEqual(free - _SET, self.room())
        self.check_kills()
        self.check_drop(self.check_boot())

    def check_kills(self):
        """diffcached and the agent are killed and started again."""
        served = self.status()
        self.service.kill()
        self.service.wait()
        os.kill(served['worker_pid'], signal.SIGKILL)
        self.service = self.start_service(self.lazy_folder)
        self.agent.stop()
        self.agent = self.site.hosts['h1'] = agents.Agent(
            self.agent.conf)
        self.agent.start()
        waiting.until(lambda: self.room() == self.agent.held.capacity - _SET,
                      'the set to be accounted for')
        self.assertEqual(self.content, self.status()['content_id'])
        # Nobody boots from it: Nova's driver releases what has no link.
        self.agent._lazy.release(self.content)
        self.agent._lazy.look()
        self.check_present()

    def check_present(self):
        """All of the set is there, and no more than came with it."""
        self.assertEqual({'chunks': len(_BOOT), 'present': len(_BOOT)},
                         self.status()['profile'])
        self.assertLessEqual(self.status()['present'], _SET // _CHUNK)

    def check_drop(self, descriptor):
        """The plan changes, but a server uses the image."""
        self.wait_set('used')
        # All of the image is accounted for, as far as there is room.
        self.set_option('lazy', 'boot_set_share', 0.0)
        self.plan()
        waiting.until(lambda: not self.agent._boot_sets.wanted(),
                      'the host to know that it is not wanted')
        self.agent._lazy.look()
        self.assertEqual(self.content, self.status()['content_id'])
        self.agent._lazy.release(self.content)
        self.agent._lazy.look()
        self.assertEqual(self.content, self.status()['content_id'])
        os.close(descriptor)
        waiting.until(lambda: not self.daemon.images(),
                      'the image to be removed')
        waiting.until(lambda: self.known() is None,
                      'the conductor to know')

    def test_a_set_is_dropped_when_the_plan_changes(self):
        free = self.room()
        self.learn()
        self.plan()
        self.wait_set()
        self.set_option('lazy', 'boot_set_share', 0.0)
        self.plan()
        waiting.until(lambda: not self.daemon.images(),
                      'the set to be dropped')
        waiting.until(lambda: self.room() == free, 'its room')
        waiting.until(lambda: self.known() is None,
                      'the conductor to know')
        self.assertEqual({}, self.agent._boot_sets.alone())
        self.assertFalse(self.agent._boot_sets.profile(self.content).exists())


class TestJobs(BootSetsTest):

    def test_a_job_brings_a_set_when_boots_are_known(self):
        self.patch(model, 'PRIOR', 0.0)
        job = objects.PrecacheJob(id=str(uuid.uuid4()), images=['image'],
                                  hosts=['h1'])
        self.control.create_precache_job(self.ctxt, job, boot_set=True)
        self.wait_target(job.id, 'waiting', 'Nothing is known of boots')
        self.learn()
        self.wait_target(job.id, 'ready')
        [target] = self.database.read(precache.targets, job.id)
        self.assertEqual(('boot_set', _SET, _SET), (
            target.way, target.bytes_total, target.bytes_done))
        self.assertTrue(self.known().pinned)
        os.close(self.check_boot())
        self.wait_set('used')
        # Without servers it is fetched anew: the rest is not kept.
        self.agent._lazy.release(self.content)
        self.wait_set('ready')
        self.control.cancel_precache_job(self.ctxt, job.id, None)
        waiting.until(lambda: not self.daemon.images(),
                      'the set to be dropped')

    def wait_target(self, job_id, state, message=''):
        def is_there():
            targets = self.database.read(precache.targets, job_id)
            return bool(targets) and targets[0].state == state and (
                message in (targets[0].message or ''))

        waiting.until(is_there, f'the target to be {state}')
