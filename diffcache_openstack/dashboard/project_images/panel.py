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
"""The panel that has the address of what the page of an image shows."""

from django import urls
from django.utils.translation import gettext_lazy as _
import horizon


class ProjectImages(horizon.Panel):
    """Images in the cache; not in the menu, as they are in Horizon's page."""

    name = _('Image Cache')
    slug = 'image_cache_project_images'
    nav = False
    permissions = ('openstack.services.diffcache',)
    policy_rules = (('diffcache', 'diffcache:images:show'),)

    def get_absolute_url(self) -> str:
        """Return the address of the list of images."""
        return urls.reverse('horizon:project:images:index')
