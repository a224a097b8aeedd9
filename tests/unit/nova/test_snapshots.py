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
import pathlib
import types

# Before Nova itself, which may be missing.
from tests.unit.nova import needs

from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt import utils as libvirt_utils

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import backends
from diffcache_openstack.nova import driver
from diffcache_openstack.nova import options
from diffcache_openstack.nova import snapshots
from diffcache_openstack.nova import tallies
from tests.unit.nova import test_driver

SERVER = types.SimpleNamespace(uuid='a-server', project_id='p')


class Client:
    """An agent that writes images as a test says."""

    def __init__(self):
        self.asked = []
        self.error = None
        self.quiesced = True

    def write_server_image(self, server_id, wanted, stall_timeout):
        self.asked.append((server_id, wanted))
        pathlib.Path(wanted['output']).write_bytes(b'image')
        if self.error is not None:
            raise self.error
        return {'pause_ms': 5.0, 'bytes_changed': 10, 'bytes_stored': 5,
                'quiesced': self.quiesced}


class TestSnapshots(needs.NovaTest):

    def setUp(self):
        super().setUp()
        self.client = Client()
        self.tally = tallies.Tally(self.directory / 'counts.json')
        self.snapshots = snapshots.Snapshots(self.client, self.tally, 60.0)
        self.output = str(self.directory / 'snapshot')

    def write(self, image_format='qcow2'):
        return self.snapshots.write(SERVER, '/disk', self.output,
                                    image_format)

    def outcomes(self):
        return self.tally.summary()['snapshots']

    def test_the_agent_writes_what_nova_uploads(self):
        self.assertTrue(self.write())
        self.assertEqual([('a-server', {
            'project_id': 'p', 'disk': '/disk', 'output': self.output,
            'format': 'qcow2'})], self.client.asked)
        self.assertEqual({'stored': 1}, self.outcomes())

    def test_nova_makes_it_if_the_agent_cannot(self):
        for error in (exceptions.ServiceUnavailable('away'),
                      ValueError('nonsense')):
            self.client.error = error
            self.assertFalse(self.write())
            self.assertFalse(pathlib.Path(self.output).exists())
        self.assertEqual({'ServiceUnavailable': 1, 'ValueError': 1},
                         self.outcomes())

    def test_formats_that_only_nova_makes(self):
        self.assertFalse(self.write('vmdk'))
        self.assertEqual([], self.client.asked)

    def test_compressed_where_nova_compresses(self):
        self.set('snapshot_compression', True, 'libvirt')
        made = []
        self.patch(libvirt_utils, 'extract_snapshot',
                   lambda *arguments: made.append(arguments))
        self.assertTrue(self.write())
        plain = f'{self.output}.plain'
        self.assertEqual([(plain, 'qcow2', self.output, 'qcow2')], made)
        self.assertFalse(pathlib.Path(plain).exists())

    def test_disk_of_a_stopped_server(self):
        backend = imagebackend.Backend(True)
        backends.install(backend, ('qcow2',), None, self.snapshots)
        image = backend.BACKEND['qcow2'](SERVER, path='/disk')
        image.snapshot_extract(self.output, 'qcow2')
        self.assertEqual({'stored': 1}, self.outcomes())
        self.client.error = exceptions.ServiceUnavailable('away')
        made = []
        self.patch(libvirt_utils, 'extract_snapshot',
                   lambda *arguments: made.append(arguments))
        image.snapshot_extract(self.output, 'qcow2')
        self.assertEqual([('/disk', 'qcow2', self.output, 'qcow2')], made)


class TestDriver(test_driver.DriverTest):

    quiesced = True

    def snapshot(self, **properties):
        """Who makes the image of a running server: the agent, or Nova."""
        client = Client()
        client.quiesced = self.quiesced
        self.patch(driver.local_client, 'LocalClient', return_value=client)
        made = []
        self.patch(libvirt_driver.LibvirtDriver, '_live_snapshot',
                   side_effect=lambda *arguments: made.append(arguments))
        self.load()._live_snapshot(
            None, SERVER, None, '/disk', str(self.directory / 'snapshot'),
            'qcow2', 'qcow2', types.SimpleNamespace(properties=properties))
        return len(client.asked), len(made)

    def test_nova_makes_images_unless_configured(self):
        self.assertEqual((0, 1), self.snapshot())

    def test_the_agent_makes_images(self):
        self.set('snapshot_images', options.STORE, 'diffcache')
        self.assertEqual((1, 0), self.snapshot())

    def test_what_has_to_be_quiesced_and_was_not_is_refused_by_nova(self):
        # Regression: it got an image all the same.
        self.set('snapshot_images', options.STORE, 'diffcache')
        self.assertEqual((1, 0), self.snapshot(os_require_quiesce=True))
        self.quiesced = False
        self.assertEqual((1, 0), self.snapshot())
        self.assertEqual((1, 1), self.snapshot(os_require_quiesce=True))
