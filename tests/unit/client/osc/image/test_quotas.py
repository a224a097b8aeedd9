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
"""Quotas, by commands over the API itself."""

import types

from openstack import exceptions as sdk_exceptions

from tests.unit.client import cloud  # Before services, which may be missing.

from diffcache_openstack.client.osc.image import quotas
from tests.unit.api import base


def forbidden(name, ignore_missing):
    """Keystone's refusal to list projects."""
    raise sdk_exceptions.ForbiddenException('identity:list_projects')


class TestQuotas(cloud.CommandTest):

    def test_limits_and_use(self):
        self.conf.set_override('version_policy_count_total', 7, 'quota')
        rows = self.listed(quotas.ListQuotas)
        self.assertIn({'Resource': 'version_policy_count_total',
                       'Limit': 7, 'In Use': 0}, rows)
        self.assertEqual(5, len(rows))

    def project(self, *words, user='admin'):
        """The path of the request for the quotas of a project."""
        self.app.client_manager.diffcache = self.connect(user)
        self.listed(quotas.ListQuotas, '--project', *words)
        return self.wire.sent[-1].path_url

    def test_of_another_project(self):
        found = {'other': base.OTHER_PROJECT}

        def find_project(name, ignore_missing):
            if name not in found:
                raise sdk_exceptions.NotFoundException(f'No Project: {name}')
            return types.SimpleNamespace(id=found[name])
        identity = types.SimpleNamespace(find_project=find_project)
        self.app.client_manager.sdk_connection.identity = identity
        expected = f'/v1/limits?project_id={base.OTHER_PROJECT}'
        self.assertEqual(expected, self.project('other'))
        self.assertRaises(sdk_exceptions.NotFoundException, self.project,
                          'none')
        # Users who may not list projects give the ID.
        self.patch(identity, 'find_project', forbidden)
        self.assertEqual(expected, self.project(base.OTHER_PROJECT))
        self.assertRaises(sdk_exceptions.ForbiddenException, self.project,
                          base.OTHER_PROJECT, user='member')
