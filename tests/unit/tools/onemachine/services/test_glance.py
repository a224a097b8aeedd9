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
"""Glance's configuration."""

import configparser

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import glance
from onemachine import steps

from tests import base


class TestGlance(base.TestCase):

    def test_uploads_of_any_size_with_defaults_that_a_release_loses(self):
        where = layout.Layout(self.directory)
        paste = where.venv / 'etc/glance/glance-api-paste.ini'
        paste.parent.mkdir(parents=True)
        paste.touch()
        glance.Glance(place.Place(
            where, processes.Processes(where), steps.Progress())).configure(
                {}, lambda text: text)
        for which in ('centre', 'site'):
            found = configparser.ConfigParser(interpolation=None)
            found.read(where.etc / f'glance-{which}/glance-api.conf')
            self.assertEqual(
                ('0', '60'),
                (found['store']['swift_store_retry_get_count'],
                 found['store']['swift_store_expire_soon_interval']))
