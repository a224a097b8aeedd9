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
"""Versions that Nova's driver boots servers from."""

from unittest import mock

from diffcache_openstack.agent.local import version_delivery
from tests import base


class DeliveryTest(base.TestCase):

    def deliver(self, durable, whole):
        """Return how the output was published."""
        output, images, versions = mock.Mock(), mock.Mock(), mock.Mock()
        output.open.return_value.path = self.directory / 'output'
        output.open.return_value.can_take.return_value = True
        part = output.open.return_value.create.return_value
        part.fd = self.enter_file('part')
        images.whole_version.return_value = whole
        version_delivery.VersionDelivery(
            images, versions, output, self.directory / 'work', durable
        ).deliver('v', 'p', 'output', mock.Mock())
        if whole is None:
            return output.open.return_value.take.call_args.kwargs['durable']
        [found] = part.publish.call_args.kwargs.values()
        return found

    def enter_file(self, name):
        file = open(self.directory / name, 'wb')
        self.addCleanup(file.close)
        return file.fileno()

    def test_no_power_failure_takes_a_base(self):
        # Regression: Nova took what was left of it for the image.
        whole = self.write_file('whole', b'content')
        for durable in (True, False):
            self.assertIs(durable, self.deliver(durable, None))
            self.assertIs(durable, self.deliver(durable, whole))
