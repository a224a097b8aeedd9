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
"""Servers saved and restored: conductor, agents, libvirt and QEMU are real.

Nova and Glance are answered for: what is asked of them here is little.
"""

import hashlib
import http.server
import json
import re
import signal
import subprocess
import threading
import time
import unittest
import uuid

from diffcache_openstack.agent import rpcapi
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common import local_client
from diffcache_openstack.conductor import versionsapi
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db import version_tasks
from diffcache_openstack.db import versions as db
from diffcache_openstack import objects
from tests import base
from tests.functional.fixtures import deployment
from tests.functional.fixtures import libvirt

PROJECT = 'p' * 32
EVERYBODY = listing.Viewer(None, True)
SECONDS = 90
MIB = 1 << 20
DISK = 64 * MIB


class Cloud(http.server.ThreadingHTTPServer):
    """Nova's servers and Glance's images, as far as they are asked for."""

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.servers = {}
        self.images = {}
        self.files = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.server_address[1]}'


class Handler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        kind, key = self.path.rsplit('/', 2)[-2:]
        found = {'servers': self.server.servers,
                 'images': self.server.images}[kind].get(key)
        if found is None:
            self._send(404, {})
        else:
            self._send(200, {'server': found} if kind == 'servers'
                       else found)

    def do_POST(self):
        image = json.loads(self._body())
        if image['id'] in self.server.images:
            self._send(409, {})
            return
        self.server.images[image['id']] = {**image, 'status': 'queued'}
        self._send(201, image)

    def do_PUT(self):
        image_id = self.path.split('/')[-2]
        self.server.files[image_id] = self._body()
        self.server.images[image_id]['status'] = 'active'
        self._send(204, None)

    def _body(self):
        if self.headers.get('Transfer-Encoding') != 'chunked':
            return self.rfile.read(int(self.headers['Content-Length']))
        data = b''
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, status, document):
        data = b'' if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


class Site(deployment.Deployment):
    """A conductor, a repository and a host with servers."""

    def _setUp(self):
        super()._setUp()
        self.cloud = Cloud()
        self.addCleanup(self.cloud.server_close)
        self.addCleanup(self.cloud.shutdown)
        self.libvirt = self.useFixture(libvirt.Libvirt())
        self.instances = self.directory / 'instances'
        self.instances.mkdir()
        self.key_file = self.directory / 'site.key'
        keys.create_key(self.key_file)
        self.agents = rpcapi.AgentAPI(self.bus, self.conf)
        self.versions = versionsapi.VersionsAPI(self.bus, self.conf)
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)
        self.processes = {'conductor': self.start_conductor(
            nova={'auth_type': 'none', 'endpoint_override': self.cloud.url},
            versions={'resend_interval': 3, 'verify_interval': 0})}
        for name in ('hub', 'host-1'):
            self.start_agent(name)

    def start_agent(self, name):
        process = self.processes[name] = self.start(
            'diffcache-agent', name,
            agent={'host': name, 'heartbeat_interval': 2,
                   'site': 'centre' if name == 'hub' else 'edge',
                   'role': 'repository' if name == 'hub' else 'compute',
                   'state_dir': self.directory / name},
            data_plane={'listen': '127.0.0.1:0', 'key_file': self.key_file},
            glance={'auth_type': 'none',
                    'endpoint_override': self.cloud.url},
            versions={'store': f'file://{self.directory}/store',
                      'directories': self.instances,
                      'libvirt_uri': self.libvirt.uri})
        process.wait_for(f'Agent {name} serves')

    def version(self, version_id):
        return self.database.read(db.get_version, EVERYBODY, version_id)

    def task(self, task_id):
        return self.database.read(version_tasks.get_task, EVERYBODY, task_id)

    def wait(self, ready):
        """What a function returns as soon as that is something."""
        deadline = time.monotonic() + SECONDS
        while not (found := ready()):
            if time.monotonic() > deadline:
                raise AssertionError('waited in vain:\n' + '\n'.join(
                    process.printed()[-5000:] for process
                    in self.processes.values()))
            time.sleep(0.1)
        return found


@unittest.skipUnless(libvirt.is_there(), libvirt.NEEDS)
class TestServers(base.TestCase):

    def setUp(self):
        super().setUp()
        self.site = self.useFixture(Site())
        self.base = self.site.instances / 'base'
        self.base.write_bytes(hashlib.shake_256(b'base').digest(4 * MIB)
                              + bytes(4 * MIB))
        self.server = str(uuid.uuid4())
        self.disk = self.site.instances / 'disk'
        subprocess.run(
            ['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'raw', '-b',
             self.base, self.disk, str(DISK)], check=True)
        self.domain = self.site.libvirt.define(self.server, self.disk)
        self.nova('SHUTOFF')

    def nova(self, status):
        """Have Nova tell the server's state."""
        self.site.cloud.servers[self.server] = {
            'id': self.server, 'tenant_id': PROJECT, 'status': status,
            'OS-EXT-SRV-ATTR:host': 'host-1',
            'OS-EXT-STS:task_state': None, 'image': {'id': 'an-image'}}

    def power_on(self):
        self.domain.create()
        self.nova('ACTIVE')

    def power_off(self):
        self.domain.destroy()
        self.nova('SHUTOFF')

    def writes(self, *commands):
        self.site.libvirt.guest_writes(self.domain, *commands)

    def begin(self, **values):
        """A version whose saving has begun."""
        new = objects.NewVersion(id=str(uuid.uuid4()), server_id=self.server,
                                 project_id=PROJECT, **values)
        self.site.versions.create_version(self.site.context, new)
        return new.id

    def save(self, **values):
        """A version, when it is saved."""
        return self.saved(self.begin(**values))

    def saved(self, version_id):
        """A version, when it is."""
        found = self.site.wait(lambda: self.ended(version_id))
        self.assertEqual(('available', None),
                         (found['state'], found['error']))
        return found

    def ended(self, version_id):
        found = self.site.version(version_id)
        return found if found['state'] != 'saving' else None

    def done(self, task_id):
        """What a task came to."""
        found = self.site.wait(lambda: self.task_ended(task_id))
        self.assertEqual(('done', None), (found['state'], found['error']))
        return found['result']

    def task_ended(self, task_id):
        found = self.site.task(task_id)
        return (found if found['state'] not in ('queued', 'running')
                else None)

    def restore(self, version, keep=None, dry_run=False):
        task_id = str(uuid.uuid4())
        self.site.versions.restore_version(
            self.site.context, version['id'], task_id, keep, dry_run)
        return self.done(task_id)

    def content(self):
        """What a guest would read of the disk, as a hash."""
        raw = self.directory / 'raw'
        subprocess.run(['qemu-img', 'convert', '-O', 'raw', self.disk, raw],
                       check=True)
        return hashlib.sha256(raw.read_bytes()).hexdigest()

    def test_saved_while_running_and_rolled_back_in_place(self):
        self.power_on()
        self.writes('write -P 1 10M 1M')
        first = self.save(name='one')
        # What the guest wrote, and nothing of its base.
        self.assertEqual(MIB, first['bytes_changed'])
        self.assertGreater(first['pause_ms'], 0)
        self.power_off()
        first_content = self.content()
        self.power_on()
        self.writes('write -P 2 20M 64k', 'write -P 3 10M 4k')
        second = self.save()
        self.assertEqual((first['id'], 64 * 1024 + 4096),
                         (second['parent_id'], second['bytes_changed']))
        self.assertLess(second['bytes_read'], MIB)
        self.assertRaises(
            exceptions.PermanentError, self.restore, first)
        self.power_off()
        second_content = self.content()
        self.assertEqual(64 * 1024 + 4096, self.restore(
            first, dry_run=True)['bytes_differing'])
        self.assertEqual(second_content, self.content())
        kept = str(uuid.uuid4())
        result = self.restore(first, keep=kept)
        self.assertLessEqual(result['bytes_written'],
                             1.02 * (64 * 1024 + 4096))
        self.assertEqual(first_content, self.content())
        self.restore(self.saved(kept))
        self.assertEqual(second_content, self.content())
        subprocess.run(['qemu-img', 'check', '-q', self.disk], check=True)

    def test_agent_that_was_killed_goes_on(self):
        process = self.site.processes['host-1']
        process.stop(signal.SIGKILL)
        version_id = self.begin()
        self.site.wait(lambda: self.site.version(version_id)['task'][
            'state'] == 'running')
        self.site.start_agent('host-1')
        self.saved(version_id)

    def test_every_kind_of_work_on_the_store(self):
        self.power_on()
        self.writes('write -P 1 10M 1M')
        first = self.save()
        self.writes('write -P 2 20M 64k')
        second = self.save()
        task_id = str(uuid.uuid4())
        self.site.versions.diff_versions(self.site.context, first['id'],
                                         second['id'], task_id)
        self.assertEqual(64 * 1024, self.done(task_id)['bytes'])
        task_id = str(uuid.uuid4())
        self.site.versions.verify_versions(self.site.context, PROJECT,
                                           task_id)
        self.assertIs(True, self.done(task_id)['intact'])
        self.site.versions.delete_version(self.site.context, first['id'])
        self.site.wait(lambda: self.gone(first['id']))
        self.power_off()
        before = self.content()
        self.restore(second)
        self.assertEqual(before, self.content())

    def gone(self, version_id):
        try:
            self.site.version(version_id)
        except exceptions.NotFound:
            return True
        return False

    def test_image_of_a_version_is_made_where_there_is_no_server(self):
        self.site.agents.register_image(
            self.site.context, 'hub', str(self.base), 'an-image', 'Base')
        self.power_on()
        self.writes('write -P 1 10M 1M')
        version = self.save(base_image='an-image')
        self.power_off()
        expected = self.content()
        task_id = str(uuid.uuid4())
        self.site.versions.export_version(self.site.context, version['id'],
                                          task_id, 'Gold')
        image_id = self.done(task_id)['image_id']
        image = self.site.cloud.images[image_id]
        self.assertEqual(
            ('Gold', PROJECT, 'private', 'active', 'qcow2', 'an-image'),
            tuple(image[name] for name in (
                'name', 'owner', 'visibility', 'status', 'disk_format',
                'diffcache_base_template')))
        self.disk = self.write_file('image', self.site.cloud.files[image_id])
        self.assertEqual(expected, self.content())
        # It is there, so it is not made again.
        task_id = str(uuid.uuid4())
        self.site.versions.export_version(self.site.context, version['id'],
                                          task_id, '')
        self.assertEqual({'image_id': image_id, 'uploaded': 0},
                         self.done(task_id))

    def test_saved_before_it_is_deleted_if_the_policy_says_so(self):
        client = local_client.LocalClient(
            str(self.site.directory / 'host-1' / 'agent.sock'), timeout=30)
        wish = {'project_id': PROJECT, 'trigger': 'delete',
                'image_id': None}
        self.power_on()
        self.assertIsNone(client.save_server(self.server, wish)['version'])
        self.site.versions.set_policy(
            self.site.context, objects.VersionPolicy(
                id=str(uuid.uuid4()), project_id=PROJECT, on_delete=True,
                required=True))
        self.writes('write -P 1 10M 1M')
        answer = client.save_server(self.server, wish)
        self.assertEqual((True, None), (answer['required'], answer['error']))
        version = self.site.version(answer['version'])
        self.assertEqual(('available', 'delete', MIB), tuple(
            version[name] for name in ('state', 'trigger',
                                       'bytes_changed')))
        # A server that is not here cannot be saved, which is told.
        answer = client.save_server(str(uuid.uuid4()), wish)
        self.assertTrue(answer['required'])
        self.assertTrue(re.search('has no server', answer['error']))
