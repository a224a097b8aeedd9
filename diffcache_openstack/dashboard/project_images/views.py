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
"""What Horizon's own page of an image shows, for a script to put there."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon import views

from diffcache_openstack.dashboard.project_images import summaries


class ImageView(views.HorizonTemplateView):
    """A part of a page: it has no menu and no title."""

    template_name = 'image_cache/project_images/_part.html'
    page_title = _('Image Cache')

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        return super().get_context_data(**kwargs, **summaries.summarize(
            self.request, self.kwargs['image_id']))
