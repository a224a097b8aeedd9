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
"""Notifications of Glance over a broker, to more than one repository."""

import oslo_messaging

from diffcache_openstack.agent.repository import glance_source
from diffcache_openstack.conf import opts
from testing import rabbitmq
from tests import base
from tests import openstack_apis
from tests import waiting

SECONDS = 60


class TestGlanceNotifications(base.TestCase):

    def setUp(self):
        super().setUp()
        broker = rabbitmq.RabbitMQ(virtual_hosts=1)
        self.addCleanup(broker.stop)
        broker.start()
        self.url = broker.transport_url()
        self.cloud = self.useFixture(openstack_apis.Cloud())

    def conf(self, host):
        conf = opts.new_config(files=[str(self.write_file(
            host, self.cloud.options('glance').encode()))])
        conf.set_override('transport_url', self.url)
        conf.set_override('host', host, 'agent')
        return conf

    def listen(self, host):
        """Return a list of images, to which a repository's changes come."""
        source, images = glance_source.GlanceSource(self.conf(host)), []
        source.start(images.append, images.append)
        self.addCleanup(source.stop)
        self.assertTrue(source._listener._started.wait(SECONDS))
        return images

    def test_each_repository_gets_all_of_them(self):
        """Repositories shared them: one served on what was deactivated."""
        got = [self.listen(host) for host in ('first', 'second')]
        conf = self.conf('glance')
        conf.set_override('control_exchange', 'glance')
        notifier = oslo_messaging.Notifier(
            oslo_messaging.get_notification_transport(conf), 'image.host',
            'messagingv2', topics=conf.notifications.topics)
        images = [f'image-{number}' for number in range(5)]
        for image in images:
            notifier.info({}, 'image.deactivate', {'id': image})
        waiting.until(lambda: [sorted(found) for found in got]
                      == [images] * 2, 'both to get all')
