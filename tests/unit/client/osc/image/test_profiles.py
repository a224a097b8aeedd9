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
"""Commands about profiles of images."""

import json

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
import sqlalchemy as sa

from diffcache_openstack.client.osc.image import profiles as commands
from diffcache_openstack.common import profile_files
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.objects import versioned
from diffcache_openstack.prefetch import profiles
from tests.unit.client import cloud
from tests.unit.db import database

IMAGE = '4b3f1a52-0d6e-4c0b-9a0a-6f1f5a1e7c33'
ROWS = [[0, 4, 100.0], [9, 2, 2_500_000.0]]


class TestProfiles(cloud.CommandTest):

    def setUp(self):
        super().setUp()
        image = database.image(7, size=10 * profiles.CHUNK)
        image.id = IMAGE
        self.database.write(catalogue.put_image, image,
                            versioned.now())
        self.file = self.directory / 'profile.json'
        self.write(profile_files.document(profiles.CHUNK, ROWS))

    def write(self, document):
        self.file.write_text(json.dumps(document))

    def create(self, *options):
        self.take(commands.ImportProfile, IMAGE, str(self.file), *options)
        return next(iter(self.cloud.profiles())).id

    def test_import_and_export(self):
        profile = self.create('--label', 'm1.small')
        path = self.directory / 'exported.json'
        self.take(commands.ExportProfile, profile, str(path))
        self.assertEqual({'format': 1, 'chunk': profiles.CHUNK,
                          'profile': ROWS}, json.loads(path.read_text()))
        self.assertRaises(exceptions.CommandError, self.take,
                          commands.ExportProfile, profile,
                          str(self.directory / 'none' / 'file'))

    def test_list(self):
        self.create('--label', 'm1.small')
        for options in ((), ('--image', IMAGE), ('--label', 'm1.small')):
            [found] = self.listed(commands.ListProfiles, *options)
            self.assertEqual((IMAGE, 'm1.small', 4, 2), tuple(
                found[name] for name in ('Image', 'Label', 'Instances',
                                         'Chunks')))
        self.assertEqual([], self.listed(commands.ListProfiles, '--label',
                                         'm1.large'))

    def test_show(self):
        found = self.shown(commands.ShowProfile, self.create())
        self.assertEqual((2 * profiles.CHUNK, 2.5, '', ''), tuple(
            found[name] for name in ('bytes', 'last_read_s', 'label',
                                     'carried_from')))

    def test_carried(self):
        profile = self.create('--label', 'm1.small')
        self.database.write(lambda session: session.execute(
            sa.update(models.Profile).values(carried_from='t1')))
        found = self.shown(commands.ShowProfile, profile)
        self.assertEqual('t1', found['carried_from'])
        [listed] = self.listed(commands.ListProfiles, '--long')
        self.assertEqual('t1', listed['Carried From'])

    def test_graph(self):
        profile, path = self.create(), self.directory / 'profile.png'
        self.take(commands.ShowProfile, profile, '--graph', str(path))
        self.assertEqual(b'\x89PNG', path.read_bytes()[:4])
        for name, error in (('profile.xyz', SystemExit),
                            ('none/profile.png', exceptions.CommandError)):
            self.assertRaises(error, self.take, commands.ShowProfile, profile,
                              '--graph', str(self.directory / name))

    def test_delete(self):
        profile = self.create()
        self.take(commands.DeleteProfiles, profile)
        self.assertEqual([], self.listed(commands.ListProfiles))
        self.assertRaises(sdk_exceptions.NotFoundException, self.take,
                          commands.DeleteProfiles, profile)

    def test_files_that_are_no_profiles(self):
        for document, reason in (
                ([], 'format'), ({}, 'format'),
                ({'chunk': profiles.CHUNK, 'profile': []}, 'format'),
                ({**profile_files.document(profiles.CHUNK, []), 'format': 2},
                 'format 2'),
                (profile_files.document(4096, []), 'chunks'),
                (profile_files.document(profiles.CHUNK, 5), 'chunks')):
            self.write(document)
            error = self.assertRaises(exceptions.CommandError, self.create)
            self.assertIn(str(self.file), str(error))
            self.assertIn(reason, str(error))
        self.file.write_text('{')
        self.assertRaises(exceptions.CommandError, self.create)
        self.file.unlink()
        error = self.assertRaises(exceptions.CommandError, self.create)
        self.assertIn(f'{self.file}: No such file or directory.', str(error))
        self.write(profile_files.document(profiles.CHUNK, [[99, 1, 0]]))
        self.assertRaises(sdk_exceptions.BadRequestException, self.create)
