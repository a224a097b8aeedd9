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
"""What tests of the parts need that run inside Nova.

Nova is no requirement of this project; these tests run in an environment
where Nova is installed, and are skipped in others.
"""

import unittest

try:
    import nova.conf
except ImportError as error:
    raise unittest.SkipTest(
        'Nova is not installed; the stage "openstack" of tools/test runs'
        ' this where it is') from error

from nova import objects
from nova import privsep

from diffcache_openstack.nova import options
from tests import base

CONF = nova.conf.CONF
# As the driver does, which not all tests import.
options.register_compute_opts(CONF)


class NovaTest(base.TestCase):
    """Has Nova's configuration for itself.

    Nova's privileged calls run in this process.
    """

    def setUp(self):
        super().setUp()
        objects.register_all()
        privsep.sys_admin_pctxt.set_client_mode(False)
        self.addCleanup(privsep.sys_admin_pctxt.set_client_mode, True)
        CONF([], project='nova', version='0', default_config_files=[],
             default_config_dirs=[])
        self.addCleanup(CONF.reset)
        self.instances = self.directory / 'instances'
        self.instances.mkdir()
        self.set('instances_path', str(self.instances))
        self.set('state_path', str(self.directory))

    def set(self, name, value, group=None):
        """Set an option until the test ends."""
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)
