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
"""Application of Django: registers the service's rights with Horizon."""

import pathlib

from django import apps
from django import conf

SERVICE = 'diffcache'
DEFAULT_POLICIES = pathlib.Path(__file__).parent / 'conf' / 'policies.yaml'


class ImageCacheConfig(apps.AppConfig):
    """What Horizon needs to know before it shows a page."""

    name = 'diffcache_openstack.dashboard'
    # The last part of the name is too common for a label.
    label = 'diffcache_dashboard'

    def ready(self) -> None:
        """Add the rules of the service; an operator's settings hold."""
        conf.settings.POLICY_FILES.setdefault(
            SERVICE, f'{SERVICE}_policy.yaml')
        conf.settings.DEFAULT_POLICY_FILES.setdefault(
            SERVICE, str(DEFAULT_POLICIES))
