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
"""Requests to diffcached; that it runs is tested on real mounts."""

import contextlib
import grp
import io
import sys

import fixtures

from diffcache_openstack.cmd import lazy_service
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base


class TestConfiguration(base.TestCase):

    def conf(self, text):
        path = self.write_file('x.conf', text.encode())
        return opts.new_config(['--config-file', str(path)])

    def test_what_the_file_says(self):
        group = grp.getgrgid(0).gr_name
        found = lazy_service.configuration(self.conf(
            f'[lazy]\nsocket = /s/x\nsocket_group = {group}\n'
            f'image_group = {grp.getgrgid(1).gr_name}\n'
            'state_dir = /state\nmount = /m\n'
            '[data_plane]\nkey_name = k\nkey_file = /key\n'
            'tls_ca_file = /ca\n'))
        self.assertEqual(
            {'socket': '/s/x', 'socket_group': 0, 'image_group': 1,
             'state': '/state',
             'mount': '/m', 'mounter': None, 'hints': True,
             'tuning': {'in_flight': 3, 'threshold': 0.1},
             'identity': {
                 'key_name': 'k', 'key_file': '/key', 'tls_ca_file': '/ca',
                 'tls_cert_file': None, 'tls_key_file': None,
                 'tls_crl_file': None, 'tls_plain_peers': False}}, found)

    def test_the_mounter_is_that_of_the_file_or_of_the_unit(self):
        text = '[lazy]\nsocket = /s/x\nmounter = /run/file\n'
        found = lazy_service.configuration(self.conf(text))
        self.assertEqual('/run/file', found['mounter'])
        for value, mounter in (('/run/unit', '/run/unit'), ('', None)):
            self.useFixture(fixtures.EnvironmentVariable(
                'OS_LAZY__MOUNTER', value))
            found = lazy_service.configuration(self.conf(text))
            self.assertEqual(mounter, found['mounter'])

    def test_a_name_without_a_key_is_none(self):
        found = lazy_service.configuration(
            self.conf('[lazy]\nsocket = /s/x\n'))
        self.assertIsNone(found['identity']['key_name'])
        self.assertIsNone(found['socket_group'])
        self.assertIsNone(found['image_group'])

    def test_hosts_teach_each_other_if_projects_may(self):
        found = lazy_service.configuration(self.conf(
            '[lazy]\nsocket = /s/x\nshare_profiles = project\n'))
        self.assertIs(False, found['hints'])

    def test_how_images_are_served(self):
        for name, value, refused in (
                ('in_flight', 16, ('0', '65', '')),
                ('threshold', 0.25, ('0', '-1', '1e7', 'nan', '')),
                ('threshold', 3.0, ('inf', 'all'))):
            text = f'[lazy]\nsocket = /s/x\n{name} = {{}}\n'
            found = lazy_service.configuration(self.conf(text.format(value)))
            self.assertEqual(value, found['tuning'][name])
            for bad in refused:
                error = self.assertRaises(opts.BadValueError, self.conf,
                                          text.format(bad))
                self.assertIn(f'option {name!r}', str(error))

    def test_what_cannot_be_used(self):
        for text, told in (
                ('', 'socket is not set'),
                ('[lazy]\nsocket = /s\nsocket_group = nosuchgroup\n',
                 'nosuchgroup')):
            error = self.assertRaises(
                exceptions.InvalidInput, lazy_service.configuration,
                self.conf(text))
            self.assertIn(told, str(error))

    def test_an_error_is_one_line(self):
        path = self.write_file('y.conf', b'')
        self.patch(sys, 'argv', ['x', '--config-file', str(path)])
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            self.assertEqual(1, lazy_service.main())
        self.assertIn('diffcache-lazy: error: [lazy] socket',
                      error.getvalue())
