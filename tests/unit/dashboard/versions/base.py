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
"""A server with versions, in Horizon's own page."""

from tests.unit.dashboard import needs

from django import urls

ID = 'c7a1d3b4-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
PARENT = 'a1b2e4c5-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
TASK = 'e9c3f5d6-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
SERVER = needs.ServerPageTest.server
TAB = (urls.reverse('horizon:project:instances:detail', args=[SERVER])
       + '?tab=instance_details__versions')
ACTIONS = urls.reverse('horizon:project:image_cache_versions:actions',
                       args=[SERVER])
SAVE = urls.reverse('horizon:project:image_cache_versions:save',
                    args=[SERVER])
RESTORE = urls.reverse('horizon:project:image_cache_versions:restore',
                       args=[SERVER, TASK])
POLICY = urls.reverse('horizon:project:image_cache_versions:policy',
                      args=[SERVER])
COMPARE, EXPORT = (
    urls.reverse(f'horizon:project:image_cache_versions:{name}',
                 args=[SERVER, ID]) for name in ('compare', 'export'))
PROJECT = needs.ServerPageTest.project
VERSION = {
    'id': ID, 'name': 'before<upgrade>', 'description': '',
    'server_id': SERVER, 'project_id': PROJECT, 'parent_id': PARENT,
    'state': 'available', 'trigger': 'request', 'generation': 3,
    'protected': False, 'size': 20 * 10 ** 9, 'bytes_stored': 3 * 10 ** 9,
    'error': None, 'created_at': '2026-11-23T18:00:00Z', 'task': None}
WORK = {
    'id': TASK, 'kind': 'save', 'state': 'running', 'project_id': PROJECT,
    'server_id': SERVER, 'version_id': ID, 'host': None,
    'done': 4 * 10 ** 9, 'total': 10 ** 10, 'result': {}, 'error': None,
    'created_at': '2026-11-23T18:00:00Z'}
FOUND = {'dry_run': True, 'bytes_differing': 7 * 10 ** 8,
         'bytes_rebuild': 9 * 10 ** 9, 'cheaper': 'rollback',
         'reason': 'It costs less.'}
CHECKED = {**WORK, 'kind': 'restore', 'state': 'done', 'result': FOUND}
RULES = {
    'id': PARENT, 'project_id': PROJECT, 'server_id': SERVER, 'every': 5400,
    'keep_last': 5, 'keep_hourly': 0, 'keep_daily': 0, 'keep_weekly': 0,
    'keep_monthly': 0, 'on_shutdown': False, 'on_delete': True,
    'required': False, 'volumes': True, 'alpha': '0',
    'created_at': '2026-11-23T18:00:00Z'}
SUBMIT = 'btn-primary" type="submit" value="Roll Back"'


class VersionsTest(needs.ServerPageTest):
    """A server with one version and one task, in Horizon's own page."""

    def setUp(self):
        super().setUp()
        self.versions(VERSION)
        self.tasks(WORK)

    def versions(self, *entries):
        """Have the service list some versions."""
        self.answer('/versions', needs.listing('versions', *entries))

    def tasks(self, *entries):
        """Have the service list some tasks."""
        self.answer('/version-tasks', needs.listing('version_tasks',
                                                    *entries))

    def act(self, table, action, row, query=''):
        """Take an action; return the response of the tab that follows."""
        return self.client.post(f'{ACTIONS}{query}', {
            'action': f'{table}__{action}__{row}'}, follow=True)
