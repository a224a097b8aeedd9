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
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache.engines import commands
from diffcache_openstack.ssdcache.engines import loading
from tests import base

SETTINGS = engines.Settings('/run/control', '/run/nbd', '/dev/sdx', 'ssd', 1,
                            '/var/lib')


class TestLoad(base.TestCase):

    def test_each_engine(self):
        with mock.patch.object(commands.os, 'geteuid', return_value=0):
            for name in ('ssdcached', 'lvmcache', 'opencas'):
                self.assertEqual(name, loading.load(name, SETTINGS).name)

    def test_options_that_are_missing(self):
        for name, option in (('ssdcached', 'control'),
                             ('lvmcache', 'volume_group'),
                             ('opencas', 'device')):
            error = self.assertRaises(exceptions.NotConfigured, loading.load,
                                      name, engines.Settings())
            self.assertIn(option, str(error))

    def test_engines_of_the_kernel_need_root(self):
        with mock.patch.object(commands.os, 'geteuid', return_value=1000):
            for name in ('lvmcache', 'opencas'):
                error = self.assertRaises(exceptions.NotConfigured,
                                          loading.load, name, SETTINGS)
                self.assertIn('root', str(error))

    def test_a_name_that_is_unknown(self):
        error = self.assertRaises(exceptions.InvalidInput, loading.load,
                                  'flashcache', SETTINGS)
        self.assertIn('lvmcache, opencas, ssdcached', str(error))
