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
"""An image in the cache: a part of its page, and what that needs."""

PANEL = 'image_cache_project_images'
PANEL_DASHBOARD = 'project'
PANEL_GROUP = 'compute'
ADD_PANEL = 'diffcache_openstack.dashboard.project_images.panel.ProjectImages'
# The page is Angular's, unless ANGULAR_FEATURES['images_panel'] is False.
ADD_ANGULAR_MODULES = ['horizon.app.image-cache']
ADD_JS_FILES = ['image_cache/project_images/project_images.module.js']
EXTRA_TABS = {
    'openstack_dashboard.dashboards.project.images.images.tabs'
    '.ImageDetailTabs':
    ('diffcache_openstack.dashboard.project_images.tabs.ImageTab',)}
