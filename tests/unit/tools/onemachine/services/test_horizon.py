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
"""Horizon's settings, enabled panels and static files."""

import pathlib
from unittest import mock

from onemachine import errors
from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import horizon
from onemachine import steps

from tests import base


class TestHorizon(base.TestCase):

    def setUp(self):
        super().setUp()
        self.venv = self.directory / 'venv'
        self.local = (self.venv / 'lib/python3.11/site-packages'
                      / 'openstack_dashboard/local')
        (self.local / 'enabled').mkdir(parents=True)
        patcher = mock.patch.object(layout.Layout, 'venv', self.venv)
        patcher.start()
        self.addCleanup(patcher.stop)
        self.where = layout.Layout(self.directory, dashboard=True)
        self.horizon = horizon.Horizon(place.Place(
            self.where, processes.Processes(self.where), steps.Progress()))

    def test_settings_are_python(self):
        self.horizon.configure()
        found = {}
        exec((self.local / 'local_settings.py').read_text(), found)
        self.assertEqual(f'{self.where.url("keystone")}/v3',
                         found['OPENSTACK_KEYSTONE_URL'])
        self.assertEqual([self.where.centre], found['ALLOWED_HOSTS'])
        self.assertEqual(self.where.password('dashboard'),
                         found['SECRET_KEY'])

    def test_settings_are_not_for_everybody(self):
        self.horizon.configure()
        mode = (self.local / 'local_settings.py').stat().st_mode
        self.assertEqual(0, mode & 0o007)

    def test_panels_are_those_of_this_checkout(self):
        enabled = self.local / 'enabled'
        (enabled / '_2599_admin_image_cache_gone_panel.py').touch()
        (enabled / '_3000_of_another_plugin.py').touch()
        self.horizon.configure()
        wanted = {path.name for path in (
            layout.CHECKOUT / 'diffcache_openstack/dashboard/enabled').glob(
                '_[0-9]*.py')}
        self.assertNotEqual(set(), wanted)
        self.assertEqual(wanted | {'_3000_of_another_plugin.py'},
                         {path.name for path in enabled.iterdir()})

    def test_static_files_are_collected_once(self):
        self.horizon.configure()
        with mock.patch.object(self.horizon, '_manage') as manage:
            self.assertTrue(self.horizon.ensure_static())
            self.assertFalse(self.horizon.ensure_static())
        self.assertEqual(['collectstatic', 'compress'],
                         [call.args[0] for call in manage.call_args_list])

    def test_static_files_follow_the_settings(self):
        self.horizon.configure()
        with mock.patch.object(self.horizon, '_manage'):
            self.horizon.ensure_static()
            settings = pathlib.Path(self.local / 'local_settings.py')
            settings.write_text('COMPRESS_OFFLINE = False\n')
            self.assertTrue(self.horizon.ensure_static())

    def test_failed_compression_is_repeated(self):
        self.horizon.configure()
        with mock.patch.object(self.horizon, '_manage',
                               side_effect=errors.OpenStackError('full')):
            self.assertRaises(errors.OpenStackError,
                              self.horizon.ensure_static)
        with mock.patch.object(self.horizon, '_manage'):
            self.assertTrue(self.horizon.ensure_static())

    def test_another_file_of_the_panels_restarts_it(self):
        """A change of static files alone left the old pages served."""
        panels = self.directory / 'dashboard'
        names = ('static/image_cache/page.js', 'templates/page.html',
                 'hosts/views.py', 'locale/de/LC_MESSAGES/django.mo')
        for name in names:
            self.write_file(f'dashboard/{name}', b'before')
        self.horizon.configure()
        with mock.patch.object(horizon, '_PANELS', panels):
            for name in names:
                before = self.horizon._daemon().digest()
                self.write_file(f'dashboard/{name}', b'after')
                self.assertNotEqual(before, self.horizon._daemon().digest())
            before = self.horizon._daemon().digest()
            self.write_file('dashboard/hosts/__pycache__/views.pyc', b'x')
            self.assertEqual(before, self.horizon._daemon().digest())
