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
"""Addresses of the forms, and of what the tab's tables send."""

from django import urls

from diffcache_openstack.dashboard.versions import views

urlpatterns = [
    urls.path('<str:instance_id>/', views.ActionsView.as_view(),
              name='actions'),
    urls.path('<str:instance_id>/save/', views.SaveView.as_view(),
              name='save'),
    urls.path('<str:instance_id>/policy/', views.PolicyView.as_view(),
              name='policy'),
    urls.path('<str:instance_id>/compare/<uuid:version_id>/',
              views.CompareView.as_view(), name='compare'),
    urls.path('<str:instance_id>/export/<uuid:version_id>/',
              views.ExportView.as_view(), name='export'),
    urls.path('<str:instance_id>/restore/<uuid:task_id>/',
              views.RestoreView.as_view(), name='restore'),
]
