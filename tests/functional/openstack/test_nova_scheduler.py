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

import contextlib
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

    @contextlib.contextmanager
    def raised_multiplier(self):
        """The saved cost counts more on these hosts meanwhile."""
        aggregate = self.compute.create_aggregate(
            name=f'weigh-{uuid.uuid4().hex[:8]}')
        self.compute.set_aggregate_metadata(
            aggregate, {'build_cost_weight_multiplier': RAISED})
        hosts = (self.holder, self.other)
        try:
            for host in hosts:
                self.compute.add_host_to_aggregate(aggregate, host)
            yield
        finally:
            for host in hosts:
                self.compute.remove_host_from_aggregate(aggregate, host)
            self.compute.delete_aggregate(aggregate)

    def test_the_hint_and_the_multiplier_and_neither(self):
        image = self.held(self.upload(self.new_content('web', 4)))
        self.assertEqual(self.holder, self.where(image, '--prefer-cached'))
        with self.raised_multiplier():
            self.assertEqual(self.holder, self.where(image))
        self.assertEqual(self.other, self.where(image))
