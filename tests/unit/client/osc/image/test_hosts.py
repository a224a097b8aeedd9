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
"""Commands of hosts, over the API itself."""

import json

from osc_lib import exceptions

from diffcache_openstack.client.osc.image import hosts
from diffcache_openstack.client.osc.image import plans
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack.db.sites import pending_images
from diffcache_openstack import objects as server_objects
from diffcache_openstack.objects import versioned
from tests.unit.client import cloud
from tests.unit.db import database


class TestHosts(cloud.CommandTest):

    def test_list(self):
        rows = self.listed(hosts.ListHosts, '--site', 'edge', '--alive')
        self.assertEqual([('h1', 55), ('h2', 0)],
                         [(row['Name'], row['Held']) for row in rows])
        self.assertEqual([], self.listed(hosts.ListHosts, '--dead'))

    def test_images_that_wait_for_space(self):
        self.database.write(pending_images.put, 'hub', [
            server_objects.PendingImage(
                image_id='t9', state='waiting_for_space', attempts=2,
                error='The file system of /x is full',
                retry_at=versioned.now())])
        [row] = self.listed(hosts.ListPendingImages, 'hub', '--state',
                            'waiting_for_space')
        self.assertEqual(
            ('t9', 'waiting_for_space', 2, 'The file system of /x is full'),
            tuple(row[name] for name in ('Image', 'State', 'Attempts',
                                         'Reason')))
        self.assertIsNotNone(row['Retry At'])
        self.assertEqual([], self.listed(hosts.ListPendingImages, 'hub',
                                         '--state', 'refused'))

    def test_boot_sets_and_what_they_save(self):
        database.put_wanted(self.database, ['h2'], [boot_sets.PlannedSet(
            'h2', database.content(1), boot_sets.BootReads(
                't1', 1 << 20, {0: (1, 5)}), requests=2.0, wait_seconds=3.0,
            from_peer=True, saved_seconds=6.0, pinned=True)],
            versioned.now())
        [row] = self.listed(hosts.ListBootSets, 'h2', '--state', 'waiting')
        self.assertEqual(
            ('t1', 'waiting', 1 << 20, 0, True, 2.0, 3.0, True, 6.0),
            tuple(row[name] for name in (
                'Image', 'State', 'Size', 'Held', 'Pinned', 'Boots Per Day',
                'Wait Seconds', 'From Peer', 'Saved Seconds Per Day')))
        self.assertEqual([], self.listed(hosts.ListBootSets, 'h2', '--state',
                                         'ready'))

    def test_holders_of_an_object(self):
        # Tables show the first twelve digits.
        patch = database.patch(2, 1, id='ab' * 32)
        when = versioned.now()
        self.database.write(catalogue.put_patch, patch, when)
        self.database.write(held_rows.put_holdings, 'h1', [
            database.holding(1), server_objects.Holding(
                kind=server_objects.PATCHES, id=patch.id, bytes=5)], when)
        for holder in (patch.id[:12], patch.id, database.content(1)):
            rows = self.listed(hosts.ListHosts, '--holds', holder)
            self.assertEqual(['h1'], [row['Name'] for row in rows])
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  hosts.ListHosts, '--holds', 'f00d')
        self.assertIn('0 objects have an ID that begins with "f00d"',
                      str(error))

    def test_part_of_a_list(self):
        rows = self.listed(hosts.ListHosts, '--limit', '1', '--marker', 'h1')
        self.assertEqual(['h2'], [row['Name'] for row in rows])

    def test_values_are_such_as_json_has(self):
        json.dumps(self.listed(hosts.ListHosts))
        json.dumps(self.shown(hosts.ShowHost, 'h1'))
        self.database.write(networks.put, 'h1', server_objects.HostNetwork(
            peer_mbps=900.0, repositories=[
                server_objects.RepositoryStanding(name='hub', mbps=18.5)]))
        shown = self.shown(hosts.ShowHost, 'h1')
        self.assertEqual({'peer': 900.0, 'repo': 18.5}, shown['measured'])
        self.assertEqual(['hub'],
                         [each['name'] for each in shown['repositories']])
        self.assertEqual(['h1'], [each['host'] for each in self.shown(
            hosts.ShowHost, 'hub')['clients']])

    def test_objects(self):
        rows = self.listed(hosts.ListHostObjects, 'h1', '--kind',
                           'images')
        self.assertEqual([['t1']], [row['Images'] for row in rows])

    def test_objects_of_a_site(self):
        rows = self.listed(hosts.ListHostObjects, '--site', 'edge', '--kind',
                           'images')
        self.assertEqual(
            [('h1', database.content(1), 50, ['t1'])],
            [(row['Host'], row['ID'], row['Size'], row['Images'])
             for row in rows])
        self.assertEqual([], self.listed(hosts.ListHostObjects, '--site',
                                         'centre'))

    def test_objects_that_a_plan_does_not_place(self):
        plan = self.shown(plans.CreatePlan, 'edge', '--wait')
        placed = {(item['host'], item['id'])
                  for item in self.cloud.get_plan(plan['id']).items}
        rows = self.listed(hosts.ListHostObjects, '--not-in-plan', plan['id'])
        self.assertEqual(
            {('h1', database.content(1)),
             ('h1', database.patch(1, 2).id)} - placed,
            {(row['Host'], row['ID']) for row in rows})

    def test_objects_of_either_a_host_or_a_site(self):
        for words in ((), ('h1', '--site', 'edge'),
                      ('--site', 'edge', '--not-in-plan', 'x')):
            self.assertRaises(SystemExit, self.take, hosts.ListHostObjects,
                              *words)

    def test_delete_one_that_is_alive(self):
        command = self.command(hosts.DeleteHost)
        arguments = command.get_parser('test').parse_args(['h2'])
        error = self.assertRaises(exceptions.CommandError, command.run,
                                  arguments)
        self.assertIn('h2 is alive', str(error))

    def test_delete(self):
        database.silence(self.database, 'h2')
        self.take(hosts.DeleteHost, 'h2')
        self.assertEqual(2, len(self.listed(hosts.ListHosts)))

    def test_errors_are_in_words(self):
        command = self.command(hosts.ShowHost)
        arguments = command.get_parser('test').parse_args(['h9'])
        error = self.assertRaises(exceptions.CommandError, command.run,
                                  arguments)
        self.assertIn('Host h9 is not registered', str(error))
        self.assertNotIn('http://', str(error))
