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
"""What hosts may have the conductor do, and what others may not."""

import datetime
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db import senders
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import conductor_costs_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_versions_api
from tests import host_key_files
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database


class TrustTest(test_agents.ConductorTest):
    """A conductor that knows the keys of hosts."""

    REQUIRED = True

    def prepare(self):
        self.keys = host_key_files.Keys(self.directory / 'keys')
        for name, value in self.keys.options('controller', 'c').items():
            self.conf.set_override(name, str(value), 'messaging')
        self.conf.set_override('require_signatures', self.REQUIRED,
                               'messaging')

    def client(self, role=None, host=None, kind=conductor_api.ConductorAPI):
        """A client of the conductor with the key of a host, or without."""
        security = signatures.Security() if role is None \
            else self.keys.security(role, host, self.REQUIRED)
        bus = messaging.Bus(self.conf, versioned.Serializer(),
                            security=security)
        self.addCleanup(bus.close)
        return kind(bus, self.conf)

    def vouched(self, number, by='hub', **values):
        """An image with a record of a repository."""
        image = database.image(number, **values)
        image.record = image_records.sign(
            self.keys.key('repository', by), image)
        return image

    def unsigned(self, call, *arguments):
        """The text of a refusal that any copy of the message may get."""
        error = str(self.assertRaises(exceptions.ServiceUnavailable, call,
                                      self.ctxt, *arguments))
        self.assertIn('without a signature', error)
        return error

    def forbidden(self, call, *arguments):
        return str(self.assertRaises(exceptions.Forbidden, call, self.ctxt,
                                     *arguments))


class TestHosts(TrustTest):

    def setUp(self):
        super().setUp()
        self.host = self.client('compute', 'h1')
        self.other = self.client('compute', 'h2')
        self.hub = self.client('repository', 'hub')
        self.host.register_host(self.ctxt, database.host('h1'))
        self.hub.register_host(self.ctxt, database.host(
            'hub', role='repository'))
        self.hub.register_image(self.ctxt, self.vouched(1))
        self.host.report_holdings(self.ctxt, 'h1', [database.holding(1)])

    def held(self):
        return self.database.read(database.holding_host, 'h1').holdings

    def test_hosts_report_for_themselves_only(self):
        self.assertIn('for host h1', self.forbidden(
            self.other.report_holdings, 'h1', []))
        self.forbidden(self.other.report_fills, 'h1', [])
        self.forbidden(self.other.register_host, database.host('h1'))
        self.assertIn('site edge', self.forbidden(
            self.other.register_host, database.host('h2', site='elsewhere')))
        self.assertEqual(['edge'], self.database.read(generations.list_sites))
        self.forbidden(self.other.report_requests, [
            database.request(1, host='h2'), database.request(2)])
        self.assertEqual([database.holding(1)], self.held())
        self.host.report_requests(self.ctxt, [database.request(1)])

    def test_a_host_sees_the_map_and_plan_of_its_own_site_only(self):
        self.host.update_site_map(self.ctxt, 'edge')
        for call in (self.host.update_site_map, self.host.get_plan):
            self.assertIn('their own site only',
                          self.forbidden(call, 'elsewhere'))

    def test_nothing_unsigned_is_believed(self):
        stranger = self.client()
        for call, arguments in (
                (stranger.report_holdings, ('h1', [])),
                (stranger.register_host, (database.host('h3'),)),
                (stranger.remove_host, ('h1',)),
                (stranger.register_image, (database.image(2),)),
                (stranger.update_site_map, ('edge',))):
            self.assertIn('not signed', self.forbidden(call, *arguments))

    def test_hosts_remove_no_hosts(self):
        for client in (self.other, self.hub, self.host):
            self.assertIn('may not call remove_host', self.forbidden(
                client.remove_host, 'h1'))
        database.silence(self.database, 'h1')
        self.client('controller', 'c').remove_host(self.ctxt, 'h1')

    def test_only_the_repository_registers_images(self):
        deleted = self.vouched(1, status=objects.DELETED)
        for image in (deleted, self.vouched(2)):
            self.forbidden(self.host.register_image, image)
        self.forbidden(self.host.register_patch, database.patch(1, 2))
        self.assertEqual(objects.ACTIVE, self.host.get_image(
            self.ctxt, 't1').status)

    def test_content_is_bound_to_the_file_that_glance_has(self):
        # Glance's true hash under an id that is not registered yet, with
        # other content: by whomever it is sent.
        forged = self.vouched(2, os_hash_algo='sha512',
                              os_hash_value='ab' * 64)
        forged.content_id = database.content(666)
        for client in (self.hub, self.client('controller', 'c')):
            self.assertIn('not valid', self.forbidden(
                client.register_image, forged))
            self.assertIn('no signed record', self.forbidden(
                client.register_image, database.image(2)))
        self.assertRaises(exceptions.NotFound, self.host.get_image,
                          self.ctxt, 't2')

    def test_second_repository_with_another_content_changes_nothing(self):
        second = self.client('repository', 'hub2')
        known = self.hub.register_image(self.ctxt, self.vouched(
            1, os_hash_algo='sha512', os_hash_value='ab' * 64,
            compressed_size=40))
        forged = [('content', {'content_id': database.content(666)}),
                  ('os_hash_value', {'os_hash_value': 'cd' * 64}),
                  ('file_size', {'file_size': 7}),
                  ('disk_format', {'disk_format': 'qcow2'})]
        for what, values in forged:
            image = self.vouched(1, by='hub2', **{
                'os_hash_algo': 'sha512', 'os_hash_value': 'ab' * 64,
                **values})
            error = self.assertRaises(
                exceptions.Conflict, second.register_image, self.ctxt,
                image)
            self.assertIn(what, str(error))
        found = self.host.get_image(self.ctxt, 't1')
        self.assertEqual(known.record, found.record)
        self.assertEqual('ab' * 64, found.os_hash_value)

    def test_record_of_the_first_repository_stays(self):
        second = self.client('repository', 'hub2')
        first = self.hub.register_image(self.ctxt, self.vouched(
            1, data_size=90, compressed_size=40, form_id='f' * 64,
            form_size=5))
        for size in (1, 0, None):
            second.register_image(self.ctxt, self.vouched(
                1, by='hub2', data_size=10, compressed_size=size))
        found = self.host.get_image(self.ctxt, 't1')
        for name in ('record', 'data_size', 'compressed_size', 'form_id',
                     'form_size'):
            self.assertEqual(getattr(first, name), getattr(found, name))
        # Of what Glance may change, the later word counts.
        second.register_image(self.ctxt, self.vouched(
            1, by='hub2', name='renamed'))
        found = self.host.get_image(self.ctxt, 't1')
        self.assertEqual(('renamed', first.record),
                         (found.name, found.record))
        self.hub.register_image(self.ctxt, self.vouched(
            1, data_size=90, compressed_size=30))
        self.assertEqual(30, self.host.get_image(
            self.ctxt, 't1').compressed_size)

    def test_image_that_another_repository_vouches_for_is_registered(self):
        second = self.client('repository', 'hub2')
        self.hub.register_image(self.ctxt, self.vouched(
            1, data_size=90, compressed_size=40))
        mine = self.vouched(1, by='hub2', data_size=10, compressed_size=0)

        def unregistered(image):
            return second.find_unregistered(self.ctxt, 'hub2', {
                't1': fingerprints.of_image(image)}, [])

        self.assertEqual(([], []), unregistered(mine))
        renamed = self.vouched(1, by='hub2', name='renamed')
        self.assertEqual((['t1'], []), unregistered(renamed))
        self.database.write(senders.revoke, 'hub', versioned.now())
        self.assertEqual((['t1'], []), unregistered(mine))
        self.assertIn('for host hub', self.forbidden(
            second.find_unregistered, 'hub', {}, []))

    def test_record_of_a_revoked_repository_is_replaced(self):
        second = self.client('repository', 'hub2')
        self.hub.register_image(self.ctxt, self.vouched(
            1, os_hash_algo='sha512', os_hash_value='cd' * 64))
        self.database.write(senders.revoke, 'hub', versioned.now())
        mended = self.vouched(1, by='hub2', os_hash_algo='sha512',
                              os_hash_value='ab' * 64)
        second.register_image(self.ctxt, mended)
        found = self.other.get_image(self.ctxt, 't1')
        self.assertEqual((mended.record, 'ab' * 64),
                         (found.record, found.os_hash_value))

    def test_no_host_makes_itself_the_repository(self):
        self.assertIn('issue a key for that role', self.forbidden(
            self.host.register_host, database.host(
                'h1', role='repository')))

    def test_an_administrator_revives_what_was_marked_deleted(self):
        self.hub.register_image(self.ctxt, self.vouched(
            1, status=objects.DELETED))
        self.hub.register_image(self.ctxt, self.vouched(1))
        self.assertEqual(objects.DELETED, self.host.get_image(
            self.ctxt, 't1').status)
        self.database.write(catalogue.restore_image, 't1')
        self.assertEqual(objects.ACTIVE, self.host.get_image(
            self.ctxt, 't1').status)
        self.assertRaises(exceptions.Conflict, self.database.write,
                          catalogue.restore_image, 't1')

    def test_revoked_keys(self):
        self.database.write(
            senders.revoke, 'h1',
            versioned.now() - datetime.timedelta(days=1))
        self.host.report_fills(self.ctxt, 'h1', [])
        self.database.write(senders.revoke, 'h1', versioned.now())
        self.assertIn('was revoked', self.unsigned(
            self.host.report_fills, 'h1', []))
        self.unsigned(self.host.update_site_map, 'edge')
        self.assertEqual(['h1'], [
            host for host, _when in self.database.read(senders.revoked)])
        self.other.register_host(self.ctxt, database.host('h2'))

    def test_revoked_keys_reach_hosts(self):
        authority = self.keys.authority()
        revoked = revocations.Revocations(self.directory / 'revoked',
                                          authority)
        key = self.keys.key('controller', 'lost')
        lost = key.certificate, key.sign(b'x'), b'x'

        def fetch():
            found = self.host.get_revoked_keys(self.ctxt, revoked.number)
            if found is not None:
                revoked.update(found)
            return found
        self.assertIsNone(fetch())
        authority.verify(*lost)
        self.database.write(senders.revoke, 'lost', versioned.now())
        old = fetch()
        self.assertRaises(exceptions.Forbidden, authority.verify, *lost)
        self.assertIsNone(fetch())
        # A host may be revoked again, and others are.
        for host in ('lost', 'h2'):
            self.database.write(senders.revoke, host, versioned.now())
        fetch()
        self.assertEqual(3, revoked.number)
        self.assertRaises(exceptions.Forbidden, revoked.update, old)

    def test_a_message_is_accepted_once(self):
        sent = []
        sign = signatures.sign_call

        def record(key, call):
            sent.append(sent[0] if sent else sign(key, call))
            return sent[0]

        self.patch(signatures, 'sign_call', record)
        self.host.report_holdings(self.ctxt, 'h1', [])
        self.assertIn('accepted before', self.unsigned(
            self.host.report_holdings, 'h1', []))
        # Another conductor has the same memory, and so has the next process.
        self.conductor._ledger.tidy()
        self.unsigned(self.host.report_holdings, 'h1', [])

    def accepted(self):
        return self.database.read(
            lambda session: session.query(models.Message).count())

    def test_old_messages_are_forgotten(self):
        self.conductor._ledger.tidy()
        self.assertLess(3, self.accepted())
        self.patch(versioned, 'now', lambda: (
            versioned.timeutils.utcnow(with_timezone=True)
            + datetime.timedelta(seconds=3600)))
        self.conductor._ledger.tidy()
        self.assertEqual(0, self.accepted())

    def test_costs_need_no_key(self):
        bus = messaging.Bus(self.conf, versioned.Serializer())
        self.addCleanup(bus.close)
        costs = conductor_costs_api.CostsAPI(bus, 30)
        self.assertEqual({}, costs.build_costs(self.ctxt, 'unknown', ['h1']))
        self.assertEqual({}, costs.ssd_room(self.ctxt, 'unknown', ['h1']))

    def test_tasks_are_reported_by_their_hosts(self):
        task = objects.VersionTask(id=str(uuid.uuid4()), kind='verify',
                                   project_id='p')
        self.database.write(version_tasks.create, task, versioned.now())
        self.database.write(version_tasks.sent, task.id, 'h1',
                            versioned.now())
        report = objects.TaskReport(task_id=task.id, state='done')
        host, other = (self.client(
            'compute', name, conductor_versions_api.VersionsAPI)
            for name in ('h1', 'h2'))
        self.assertIn('sent to h1', self.forbidden(other.report_task, report))
        self.assertTrue(host.report_task(self.ctxt, report))

    def test_forged_answers_are_not_believed(self):
        self.patch(signatures.Security, 'answer',
                   lambda security, sender, result: result)
        error = self.assertRaises(
            exceptions.ServiceUnavailable, self.host.update_site_map,
            self.ctxt, 'edge')
        self.assertIn('not signed', str(error))

    def test_forged_errors_are_not_believed(self):
        self.assertRaises(exceptions.NotFound, self.host.get_image,
                          self.ctxt, 'unknown')
        # What a client of the broker can send: the error, unsigned.
        self.patch(signatures.Security, 'failure',
                   lambda security, sender, error: None)
        self.assertIn('unknown', self.unsigned(self.host.get_image,
                                               'unknown'))


class TestIntroduction(TrustTest):
    """While keys are introduced host by host."""

    REQUIRED = False

    def test_with_and_without_keys(self):
        for client in (self.client(), self.client('compute', 'h1')):
            client.register_host(self.ctxt, database.host('h1'))
        self.forbidden(self.client('compute', 'h2').register_host,
                       database.host('h1'))
        # Errors without a signature are believed, too.
        self.patch(signatures.Security, 'failure',
                   lambda security, sender, error: None)
        self.forbidden(self.client('compute', 'h2').register_host,
                       database.host('h1'))
        self.client().update_site_map(self.ctxt, 'edge')
