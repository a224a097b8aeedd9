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
"""A site with servers that are saved and restored.

Conductor, agents, libvirt and QEMU are real. Nova and Glance are answered for:
what is asked of them here is little.
"""

import hashlib
import http.server
import json
import pathlib
import re
import subprocess
import threading
import unittest
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store as engine_of_versions
from tests import base
from tests.functional.fixtures import deployment
from tests.functional.fixtures import libvirt
from tests import openstack_apis
from tests import waiting

NEEDS_LIBVIRT = unittest.skipUnless(libvirt.is_there(), libvirt.NEEDS)
PROJECT = 'p' * 32
EVERYBODY = listing.Viewer(None, True)
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
        if key.startswith('detail?'):
            # Nova's client asks for pages until one is empty.
            self._send(200, {'servers': [] if 'marker=' in key else list(
                self.server.servers.values())})
            return
        if key.startswith('images?'):
            owner = re.search('owner=([^&]+)', key)[1]
            self._send(200, {'images': [
                image for image in self.server.images.values()
                if image.get('owner') == owner]})
            return
        if kind == 'schemas':
            self._send(200, openstack_apis.SCHEMAS[key])
            return
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
    """A conductor, a repository and a host with servers.

    :param agents: options of the agents, by group
    :param instances: where servers lie; a directory of the site's if None
    """

    def __init__(self, agents, instances=None):
        super().__init__()
        self._agents = agents
        self.instances = instances

    def _setUp(self):
        super()._setUp()
        self.cloud = Cloud()
        self.addCleanup(self.cloud.server_close)
        self.addCleanup(self.cloud.shutdown)
        self.libvirt = self.useFixture(libvirt.Libvirt())
        if self.instances is None:
            self.instances = self.directory / 'instances'
            self.instances.mkdir()
        self.key_file = self.directory / 'site.key'
        keys.create_key(self.key_file)
        self.agents = agent_api.AgentAPI(self.bus, self.conf)
        self.versions = conductor_versions_api.VersionsAPI(self.bus, self.conf)
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)
        self.processes = {'conductor': self.start_conductor(
            nova={'auth_type': 'none', 'endpoint_override': self.cloud.url},
            versions={'resend_interval': 3, 'verify_interval': 0})}
        for name in ('hub', 'host-1'):
            self.start_agent(name)

    def start_agent(self, name):
        groups = dict(
            agent={'host': name, 'heartbeat_interval': 2,
                   'site': 'centre' if name == 'hub' else 'edge',
                   'role': 'repository' if name == 'hub' else 'compute',
                   'output_directories': self.instances,
                   'state_dir': self.directory / name},
            data_plane={'listen': '127.0.0.1:0', 'key_file': self.key_file},
            glance={'auth_type': 'none',
                    'endpoint_override': self.cloud.url},
            repository={'image_directories': self.instances},
            versions={'store': f'file://{self.directory}/store',
                      'directories': self.instances,
                      'libvirt_uri': self.libvirt.uri})
        for group, options in self._agents.items():
            groups[group] = {**groups.get(group, {}), **options}
        process = self.processes[name] = self.start(
            'diffcache-agent', name, **groups)
        process.wait_for(f'Agent {name} serves')

    def images_of(self, server_id):
        """The versions that images of a server were read of."""
        return self.database.read(db.of_images, server_id)

    def version(self, version_id):
        return self.database.read(db.get_version, EVERYBODY, version_id)

    def task(self, task_id):
        return self.database.read(version_tasks.get_task, EVERYBODY, task_id)

    def wait(self, ready):
        """What a function returns as soon as that is something."""
        return waiting.until(ready, 'the site', seen=self.printed)


class ServersTestCase(base.TestCase):
    """A server, which is off at first."""

    #: options of the agents, by group
    options: dict[str, dict[str, object]] = {}

    def setUp(self):
        super().setUp()
        self.site = self.useFixture(Site(self.options, self.place()))
        self.server = str(uuid.uuid4())
        self.base = self.site.instances / 'base'
        self.make_base()
        self.disk = self.make_disk('disk')
        self.domain = self.define()
        self.nova('SHUTOFF')

    def place(self):
        """Where servers lie, if not in a directory of the site's."""
        return None

    def make_base(self):
        """Write the image that disks lie on."""
        self.base.write_bytes(hashlib.shake_256(b'base').digest(4 * MIB)
                              + bytes(4 * MIB))

    def make_disk(self, name):
        """A new disk on the base."""
        disk = self.site.instances / name
        subprocess.run(
            ['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'raw', '-b',
             self.base, disk, str(DISK)], check=True)
        return disk

    def define(self):
        """The server's domain."""
        return self.site.libvirt.define(self.server, self.disk)

    def nova(self, status, task=None):
        """Have Nova tell the server's state."""
        self.site.cloud.servers[self.server] = {
            'id': self.server, 'tenant_id': PROJECT, 'status': status,
            'OS-EXT-SRV-ATTR:host': 'host-1',
            'OS-EXT-STS:task_state': task, 'image': {'id': 'an-image'}}

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

    def begin_to_restore(self, version, keep=None, dry_run=False,
                         way='auto'):
        """The task of a restore."""
        task_id = str(uuid.uuid4())
        self.site.versions.restore_version(
            self.site.context, version['id'], task_id, keep, dry_run, way)
        return task_id

    def restore(self, *arguments, **options):
        """What a restore came to."""
        return self.done(self.begin_to_restore(*arguments, **options))

    def raw(self, disk=None):
        """A file of what a guest would read of a disk.

        One that runs has to have written its tables down: ``flush``.
        """
        raw = self.directory / 'raw'
        subprocess.run(['qemu-img', 'convert', '-U', '-O', 'raw',
                        disk or self.disk, raw], check=True)
        return raw

    def stored(self):
        """Ids of what the project's store has."""
        store = engine_of_versions.VersionStore.open(file.FileStore(
            pathlib.Path(self.site.directory, 'store', PROJECT)))
        return {version.id for version in store.versions()}

    def listed(self):
        """The server's versions, the latest first."""
        return self.site.database.read(
            db.list_versions, EVERYBODY, {'server_id': self.server},
            listing.Page(100)).entries

    def content(self, disk=None):
        """What a guest would read of a disk, as a hash."""
        return hashlib.sha256(self.raw(disk).read_bytes()).hexdigest()

    def gone(self, version_id):
        try:
            self.site.version(version_id)
        except exceptions.NotFound:
            return True
        return False
