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
import datetime
import uuid

from diffcache_openstack.conductor import demand as notifications
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database

SERVER = '0a5a4c7e-0000-4000-8000-00000000000'


def boot(number=1, host='h1', start=0, seconds=30, **changes):
    """What Nova tells of a server that took a while to make."""
    return {'payload': {
        'instance_id': f'{SERVER}{number}', 'host': host,
        'image_meta': {'base_image_ref': 't1'},
        'created_at': database.at(start).isoformat(sep=' '),
        'launched_at': (database.at(start + seconds).replace(tzinfo=None)
                        .isoformat()), **changes}}


def versioned(number=1):
    """The same in Nova's other format."""
    return {'payload': {'nova_object.name': 'InstanceCreatePayload',
                        'nova_object.data': {
                            'uuid': f'{SERVER}{number}', 'host': 'h1',
                            'image_uuid': 't1',
                            'created_at': '2026-01-01T12:00:00Z',
                            'launched_at': '2026-01-01T12:00:30Z'}}}


def sent(number=1, publisher='image.edge', address='10.9.9.9', image='t1'):
    """What Glance tells of a download."""
    return {'message_id': str(uuid.UUID(int=number)),
            'publisher_id': publisher,
            'timestamp': '2026-01-01 12:00:09.000001',
            'payload': {'image_id': image, 'bytes_sent': 50,
                        'destination_ip': address}}


class HistoryTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        for name in ('h1', 'h2', 'edge'):
            self.write(host_rows.put_host, database.host(
                name, url=f'http://10.0.0.{len(name)}:9192'), database.at(0))
        self.write(catalogue.put_image, database.image(1),
                   database.at(0))
        self.history = notifications.History(self.database)

    def demand(self):
        return sorted((d.host, d.content_id) for d in self.read(
            history.demand, database.SITE,
            database.at(0) - datetime.timedelta(days=1)))

    def asked(self, *numbers):
        self.write(history.put_requests, [
            database.request(n, way='build') for n in numbers])

    def test_a_boot_is_demand(self):
        self.history.booted(boot())
        self.assertEqual([('h1', database.content(1))], self.demand())
        known = self.read(database.requests, 10)[0]
        self.assertEqual(('t1', history.BOOT, 30.0), (
            known.image_id, known.way, known.seconds))

    def test_names_of_events(self):
        for name, pattern in (
                ('compute.instance.create.end', notifications.BOOTED),
                ('instance.create.end', notifications.BOOTED),
                ('image.send', notifications.SENT)):
            self.assertRegex(name, pattern)
        for name in ('compute.instance.create.start', 'image.sending',
                     'compute.instance.create.end.x'):
            self.assertNotRegex(name, notifications.BOOTED)
            self.assertNotRegex(name, notifications.SENT)

    def test_told_twice_and_in_both_formats_it_is_one(self):
        for told in (boot(), boot(), versioned()):
            self.history.booted(told)
        self.assertEqual(1, len(self.demand()))

    def test_image_by_its_address(self):
        self.history.booted(boot(
            image_meta={}, image_ref_url='http://glance/images/t1'))
        self.assertEqual(1, len(self.demand()))

    def test_not_from_an_image(self):
        self.history.booted(boot(image_meta={'base_image_ref': ''},
                                 image_ref_url=''))
        self.assertEqual([], self.read(database.requests, 10))

    def test_boot_that_nobody_knows_the_begin_of(self):
        for notification in (boot(), versioned()):
            payload = notification['payload']
            payload.get('nova_object.data', payload)['created_at'] = None
            self.assertRaises(KeyError, notifications.boot_of, payload)

    def test_asked_then_booted(self):
        self.asked(10)
        self.history.booted(boot())
        self.assertEqual(1, len(self.demand()))

    def test_booted_then_asked(self):
        self.history.booted(boot())
        self.asked(10)
        self.assertEqual(1, len(self.demand()))

    def test_one_request_for_many_boots_at_once(self):
        for order in (0, 10):
            for number in range(1, 5):
                self.history.booted(boot(number + order // 10 * 4,
                                         start=order * 100))
                if number == 2:
                    self.asked(order * 100 + 7)
        self.assertEqual(8, len(self.demand()))

    def test_two_requests_two_boots(self):
        self.asked(10, 11)
        self.history.booted(boot(1))
        self.history.booted(boot(2))
        self.history.booted(boot(3))
        self.assertEqual(3, len(self.demand()))

    def test_other_times_hosts_and_images_are_others(self):
        self.asked(200)
        self.write(history.put_requests, [
            database.request(11, way='build', host='h2')])
        self.history.booted(boot())
        self.assertEqual(['h1'], [host for host, _ in self.demand()])
        self.assertEqual(3, len(self.read(database.requests, 10)))

    def test_a_download(self):
        self.history.sent(sent(1))
        self.history.sent(sent(1))
        self.history.sent(sent(2))
        self.assertEqual([('edge', database.content(1))] * 2, self.demand())

    def test_a_download_of_nova_counts_as_its_boot(self):
        self.history.sent(sent(1, address='10.0.0.2'))
        self.history.booted(boot())
        self.assertEqual([('h1', database.content(1))], self.demand())

    def test_downloads_from_nowhere_and_elsewhere(self):
        self.history.sent(sent(1, publisher='image.localhost'))
        self.history.sent(sent(2, publisher='image.unknown'))
        self.assertEqual([], self.read(database.requests, 10))

    def test_what_the_repository_takes_in_is_no_demand(self):
        self.write(host_rows.put_host, database.host(
            'centre', role=objects.REPOSITORY), database.at(0))
        self.history.sent(sent(1, publisher='image.centre'))
        self.assertEqual([], self.read(database.requests, 10))

    def test_a_boot_on_an_unknown_host_is_nobodys_demand(self):
        self.history.booted(boot(host='elsewhere'))
        self.assertEqual([], self.demand())

    def test_what_was_never_in_the_catalogue(self):
        self.history.booted(boot(image_meta={'base_image_ref': 'other'}))
        self.assertEqual([], self.demand())
        self.assertIsInstance(self.read(database.requests, 1)[0],
                              objects.Request)
