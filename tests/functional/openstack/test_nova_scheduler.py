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
"""Where Nova's scheduler puts servers, with the weigher beside its own."""

import uuid

from tests.functional.openstack import nova_hosts

# The image can be copied from the holder within a second, which saves less
# than a tenth of what counts. Times this it is more than memory, processors
# and disk together.
RAISED = '1000'


class TestWeigher(nova_hosts.NovaTest):
    """One of two hosts has an image, the other has more of all else."""

    def setUp(self):
        super().setUp()
        self.holder, self.other = self.trial.hosts[:2]
        # So that none soon brings images anywhere.
        self.image_of('base')
        self.plan()

    def held(self, image):
        """Have an image on one host only, and all hosts know where."""
        self.start(image, self.holder)
        self.wait_until(
            lambda: (self.known(self.other, image) or {})['way'] == 'peer',
            f'{self.other} knows that {self.holder} has {image}')
        return image

    def where(self, image, *flags):
        """Create a server with the client; returns where it was put."""
        created = self.type(
            f'server create --flavor tiny --nic none --image {image}'
            f' {" ".join(flags)} w-{uuid.uuid4().hex[:8]} -f json')
        self.addCleanup(self.trial.delete, created['id'])
        return self.trial.wait_active(created['id'])

    def test_the_hint_and_the_multiplier_and_neither(self):
        image = self.held(self.upload(self.new_content('web', 4)))
        self.assertEqual(self.holder, self.where(image, '--prefer-cached'))
        with self.aggregate((self.holder, self.other), {
                'build_cost_weight_multiplier': RAISED}):
            self.assertEqual(self.holder, self.where(image))
        self.assertEqual(self.other, self.where(image))
