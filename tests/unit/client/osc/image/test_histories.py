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
"""Exports of a cloud's history."""

import json
import types

from openstack.compute.v2 import server as sdk_server
from openstack.compute.v2 import service as sdk_service
from openstack.image.v2 import image as sdk_image
from osc_lib import exceptions

from diffcache_openstack.client.osc.image import histories
from tests import base

NOON = '2026-11-01T12:00:00Z'
# As Glance and Nova answer.
IMAGES = (
    {'id': 'i1', 'name': 'debian-13-20261101', 'size': 7, 'created_at': NOON},
    {'id': 'i2', 'name': 'debian-13-20261108-2', 'size': 8,
     'created_at': NOON},
    {'id': 'i3', 'name': 'x', 'size': 9, 'created_at': NOON,
     'os_distro': 'ubuntu', 'os_version': '24.04'},
    {'id': 'i4', 'name': 'y', 'size': 9, 'created_at': NOON,
     'base_image_ref': 'i1'},
    {'id': 'queued', 'name': 'z', 'size': None, 'created_at': NOON})
SERVICES = ({'host': 'c1', 'zone': 'edge', 'binary': 'nova-compute'},
            {'host': 'c2', 'zone': 'edge', 'binary': 'nova-compute'})


def server(host, image):
    """A server as Nova shows it to an administrator."""
    return sdk_server.Server.existing(**{
        'image': image, 'created': NOON, 'OS-EXT-SRV-ATTR:host': host,
        'OS-SRV-USG:terminated_at': None})


class TestExport(base.TestCase):

    def setUp(self):
        super().setUp()
        self.services = [sdk_service.Service.existing(**each)
                         for each in SERVICES]
        self.present = [server('c1', {'id': 'i1'}), server('c1', ''),
                        server('c1', {'id': 'deleted'})]
        self.deleted = [server('c2', {'id': 'i3'}),
                        server('gone', {'id': 'i1'})]
        self.path = self.directory / 'history.json'

    def export(self):
        compute = types.SimpleNamespace(
            services=lambda binary: self.services,
            servers=lambda all_projects, details, deleted_only:
            self.deleted if deleted_only else self.present)
        images = types.SimpleNamespace(images=lambda: [
            sdk_image.Image.existing(**each) for each in IMAGES])
        connection = types.SimpleNamespace(compute=compute, image=images)
        command = histories.ExportHistory(
            types.SimpleNamespace(client_manager=types.SimpleNamespace(
                sdk_connection=connection)), None)
        parsed = command.get_parser('export').parse_args([str(self.path)])
        names, values = command.take_action(parsed)
        return dict(zip(names, values)), json.loads(self.path.read_text())

    def test_what_the_file_has(self):
        shown, document = self.export()
        self.assertEqual(
            {'Images': 4, 'Families': 3, 'Sites': 1, 'Hosts': 2,
             'Servers': 2, 'Left Out': 3}, shown)
        self.assertEqual(
            {'i1': 'debian-13', 'i2': 'debian-13', 'i3': 'ubuntu 24.04',
             'i4': 'i1'},
            {each['id']: each['family'] for each in document['images']})
        self.assertEqual([{'name': 'edge', 'hosts': ['c1', 'c2']}],
                         document['sites'])
        self.assertEqual(
            [('i1', 'c1', NOON, None), ('i3', 'c2', NOON, None)],
            [(each['image'], each['host'], each['created_at'],
              each['deleted_at']) for each in document['servers']])

    def test_without_the_rights_of_an_administrator(self):
        self.services = []
        error = self.assertRaises(exceptions.CommandError, self.export)
        self.assertIn('administrator', str(error))
        self.assertFalse(self.path.exists())
