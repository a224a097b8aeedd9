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
"""The commands of the user guide, typed one after another."""

import os

from tests.functional.openstack import guides
from tests.functional.openstack import transcripts

GUIDE = guides.DOCUMENTS / 'user' / 'openstack-client.rst'
# That many at least the guide has; fewer were found if it is read wrongly.
_COMMANDS, _SHOWN = 30, 10


class TestGuide(guides.Reader):

    transcript_name = 'client-guide.txt'

    def setUp(self):
        super().setUp()
        for name in ('guest-base', 'guest-web'):
            os.symlink(self.trial.guests()[name], self.directory
                       / f'{name}.raw')
        self.upload('guest-base')

    def upload(self, name):
        """Have an image that the guide takes for granted in the catalogue.

        Names are the guide's: a second image of that name would be one too
        many.
        """
        glance = self.trial.admin.image
        if glance.find_image(name) is None:
            image = self.trial.upload(name, self.trial.guests()[name])
            self.addCleanup(glance.delete_image, image, ignore_missing=True)
        listing = 'openstack image cache image list --status active'
        self.wait_until(lambda: name in self.type_words(listing).stdout,
                        f'The repository took in {name}', 300)

    def tidy(self):
        for command in ('image precache cancel $JOB',
                        'server delete --wait web-1',
                        'image delete shop-web',
                        'aggregate remove host edge-hosts compute-1',
                        'aggregate delete edge-hosts'):
            self.type_words(f'openstack {command}')

    def ready(self, command):
        if '--family guest-base' in command:
            self.wait_until(
                lambda: 'shop-web' in self.type_words(command).stdout,
                'The repository took in shop-web', 300)

    def test_each_command_prints_what_is_shown(self):
        steps = transcripts.steps(GUIDE.read_text())
        self.assertGreater(len(steps), _COMMANDS)
        self.assertGreaterEqual(sum(bool(step.shown) for step in steps),
                                _SHOWN)
        self.assert_prints_what_is_shown(steps)
        self.assertTrue((self.directory / 'plan.png').read_bytes()
                        .startswith(b'\x89PNG'))
