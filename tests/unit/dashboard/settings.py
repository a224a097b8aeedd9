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
"""Settings of Horizon's tests, with the panels of this suite."""

from openstack_dashboard import enabled as horizon_enabled
from openstack_dashboard.test.settings import *  # noqa: F401,F403,H303
from openstack_dashboard.test import settings as _horizon
from openstack_dashboard.utils import settings as settings_utils

from diffcache_openstack.dashboard import enabled

HORIZON_CONFIG = dict(_horizon.HORIZON_CONFIG)
INSTALLED_APPS = list(_horizon.INSTALLED_APPS)
settings_utils.update_dashboards([horizon_enabled, enabled], HORIZON_CONFIG,
                                 INSTALLED_APPS)
# Those of Horizon are there already.
INSTALLED_APPS = list(dict.fromkeys(INSTALLED_APPS))
POLICY_FILES = dict(_horizon.POLICY_FILES)
TEST_RUNNER = 'tests.unit.dashboard.runner.Runner'
