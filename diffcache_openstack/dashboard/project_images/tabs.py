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
"""Tab of Horizon's own page of an image, where Django makes that page."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from diffcache_openstack.dashboard.project_images import summaries


class ImageTab(tabs.Tab):
    """What the cache has of an image."""

    name = _('Image Cache')
    slug = 'image_cache'
    preload = False
    permissions = ('openstack.services.diffcache',)
    policy_rules = (('diffcache', 'diffcache:images:show'),)
    template_name = 'image_cache/project_images/_summary.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        return summaries.summarize(request, self.tab_group.kwargs['image'].id)
