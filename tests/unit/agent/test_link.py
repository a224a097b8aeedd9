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
import logging
import queue
import threading
import uuid

import fixtures

from diffcache_openstack.agent.lazy import hydration_reports
from diffcache_openstack.agent import link
from diffcache_openstack.agent.state import current_map
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.sites import views
from tests import base
from tests import host_key_files
from tests.unit.agent.state import test_current_map
from tests.unit import arriving
from tests.unit import volume_reports
from tests import waiting

CONTENT = test_current_map.CONTENT
NOW = datetime.datetime(2026, 11, 20, tzinfo=datetime.timezone.utc)


def a_request():
    return objects.Request(id=str(uuid.uuid4()), image_id='t', host='h1',
                           started_at=NOW)


class Conductor:

    def __init__(self):
        self.dead = False
        self.known = True
        self.differs = False
        self.no_history = False
        self.refuses = False
        self.revoked = None
        self.map_generation = 3
        self.revoked_number = 0
        self.calls = []

    def _note(self, name, *arguments):
        if self.dead:
            raise exceptions.ServiceUnavailable('no answer')
        self.calls.append((name, *arguments))

    def verify_object(self, ctxt, host, kind, object_id):
        self._note('verify_object', host, kind, object_id)

    def register_host(self, ctxt, host):
        self._note('register_host', host.name)
        self.known = True
        return objects.HeartbeatAnswer(map_generation=self.map_generation,
                                       revoked_number=self.revoked_number)

    def report_holdings(self, ctxt, host, holdings):
        self._note('report_holdings', [(h.kind, h.id, h.bytes)
                                       for h in holdings])
        if not self.known:
            raise exceptions.NotFound('who?')

    def change_holdings(self, ctxt, host, added, removed, count, total):
        self._note('change_holdings', [(h.kind, h.id, h.bytes)
                                       for h in added],
                   [h.id for h in removed], count, total)
        if not self.known:
            raise exceptions.NotFound('who?')
        if self.differs:
            raise exceptions.Conflict('not what is known')

    def report_borrowed(self, ctxt, host, holdings):
        self._note('report_borrowed', [(h.kind, h.id, h.bytes)
                                       for h in holdings])
        if self.refuses:
            raise exceptions.InvalidInput('refused')

    def report_fills(self, ctxt, host, fills):
        self._note('report_fills', host, fills)

    def report_network(self, ctxt, host, network):
        self._note('report_network', network)
        if self.refuses:
            raise exceptions.InvalidInput('refused')

    def report_requests(self, ctxt, requests):
        if self.no_history:
            raise exceptions.ServiceUnavailable('the database is full')
        self._note('report_requests', [r.id for r in requests])

    def update_site_map(self, ctxt, site, generation=None):
        self._note('update_site_map', generation)
        return None if generation == self.map_generation \
            else test_current_map.a_map(self.map_generation)

    def get_revoked_keys(self, ctxt, known):
        self._note('get_revoked_keys', known)
        return self.revoked

    def report_pending_images(self, ctxt, host, images):
        self._note('report_pending_images', images)

    def report_volume_caches(self, ctxt, host, cache, volumes):
        self._note('report_volume_caches', cache, volumes)

    def report_hydrations(self, ctxt, host, found):
        self._note('report_hydrations', [each.server_id for each in found])

    def named(self, name):
        return [call for call in self.calls if call[0] == name]


class Held(dict):
    """Holdings: sizes by key."""

    def __init__(self):
        super().__init__()
        self.borrowed = Borrowed()

    def sizes(self):
        return dict(self)

    def is_borrowed(self, key):
        return key not in self and key in self.borrowed


class Borrowed(dict):
    """Files of other services: sizes by key."""

    def sizes(self):
        return dict(self)


class Status:
    """Describes the host."""

    def __init__(self):
        self.pending = []
        self.images = None
        self.found = None

    def network(self):
        return self.found

    def describe(self):
        return objects.Host(name='h1', site='s', role='compute')

    def fills(self):
        return list(self.pending)

    def pending_images(self):
        return self.images


class LinkTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conductor = Conductor()
        self.context = contexts.RequestContext.for_service('test')
        self.site_map = current_map.SiteMap(
            self.directory / 'map.json', self.conductor, self.context, 's',
            image_records.Verifier(signatures.Security()))
        self.learned = []
        self.site_map.subscribe(lambda: self.learned.append(
            self.site_map.current().generation))
        self.spool = request_spool.RequestSpool(self.directory / 'requests')
        self.host = host_state.HostState('h1', Held(), self.site_map)
        self.held = self.host.held
        self.status = Status()
        self.link = link.ConductorLink(
            link.Clients(self.conductor, self.conductor, self.context),
            self.host, self.status, self.spool, 3600)

    def test_a_stop_does_not_wait_for_a_conductor_that_is_silent(self):
        asked, answer = threading.Event(), threading.Event()
        self.addCleanup(answer.set)
        self.patch(threads, 'STOP_SECONDS', 0.01)

        def report():
            asked.set()
            answer.wait()

        self.patch(self.link, 'report', report)
        self.link.start()
        self.assertTrue(asked.wait(60))
        stopping = threading.Thread(target=self.link.stop, daemon=True)
        stopping.start()
        stopping.join(60)
        self.assertFalse(stopping.is_alive())

    def new_volume_reporter(self, volumes, interval):
        return link.ConductorLink(
            link.Clients(self.conductor, self.conductor, self.context),
            self.host, self.status, self.spool, interval,
            link.OptionalParts(volumes=volumes))

    def test_new_volumes_are_reported_once_more(self):
        volumes = volume_reports.cached(self, 'a')
        reporter = self.new_volume_reporter(volumes, 10)
        now = 1000.0
        self.patch(link.time, 'monotonic', lambda: now)

        def count_at(seconds):
            nonlocal now
            now = 1000.0 + seconds
            reporter.report()
            return len(self.conductor.named('report_volume_caches'))

        self.assertEqual([1, 1, 2, 2, 2], [
            count_at(seconds) for seconds in (0, 9, 10, 20, 80)])
        volumes.change('a', 0, {'max': 9})
        self.assertEqual([3, 3, 4], [
            count_at(seconds) for seconds in (81, 92, 162)])

    def test_changes_in_the_ssd_cache_are_reported_at_once(self):
        volumes = volume_reports.cached(self, 'a')
        reporter = self.new_volume_reporter(volumes, 3600)
        reported = queue.Queue()
        self.patch(self.conductor, 'report_volume_caches',
                   lambda ctxt, host, cache, found: reported.put(
                       [each.limit for each in found]))
        reporter.start()
        self.addCleanup(reporter.stop)
        self.assertEqual([1000], reported.get(timeout=60))
        volumes.change('a', 0, {'max': 9})
        self.assertEqual([9], reported.get(timeout=60))

    def test_the_ssd_cache_is_reported_when_there_is_news(self):
        volumes = volume_reports.cached(self, 'a')
        reporter = self.new_volume_reporter(volumes, 3600)

        def reported():
            reporter.report()
            return [[each.limit for each in call[2]] for call
                    in self.conductor.named('report_volume_caches')]

        self.assertEqual([[1000]], reported())
        self.assertEqual([[1000]], reported())
        volumes.change('a', 0, {'max': 9})
        self.assertEqual([[1000], [9]], reported())

    def test_hydrations_are_reported_and_again_after_a_failure(self):
        host = arriving.Host(self.directory, arriving.status())
        reporter = link.ConductorLink(
            link.Clients(self.conductor, self.conductor, self.context),
            self.host, self.status, self.spool, 3600,
            link.OptionalParts(
                hydrations=hydration_reports.HydrationReports(
                    'h1', host.hydrations, self.conductor)))

        def reported():
            reporter.report()
            return [call[1] for call
                    in self.conductor.named('report_hydrations')]

        self.assertEqual([[]], reported())
        self.assertEqual([[]], reported())
        host.boot('s1')
        self.assertEqual([[], ['s1']], reported())
        host.servers.remove('s1')
        reported()
        reporter._note_failure(exceptions.ServiceUnavailable('down'), 1)
        self.assertEqual([[], ['s1'], [], []], reported())

    def test_revoked_keys_are_fetched_with_heartbeats(self):
        keys = host_key_files.Keys(self.directory / 'keys')
        revoked = revocations.Revocations(self.directory / 'revoked',
                                          keys.authority())
        reporter = link.ConductorLink(
            link.Clients(self.conductor, self.conductor, self.context),
            self.host, self.status, self.spool, 0.0,
            link.OptionalParts(revoked))
        signer = keys.key('controller', 'c')
        reporter.report()
        self.assertEqual([], self.conductor.named('get_revoked_keys'))
        self.conductor.revoked_number = 2
        self.conductor.revoked = revocations.sign(
            signer, revocations.RevokedKeys(2, {'h2': 1.0}))
        reporter.report()
        reporter.report()
        # An old list, as a client of the broker may send it again.
        self.conductor.revoked = revocations.sign(
            signer, revocations.RevokedKeys(1, {}))
        self.conductor.revoked_number = 1
        with self.assertLogs(link.LOG, 'WARNING') as logged:
            reporter.report()
        self.assertIn('older than number 2', logged.output[0])
        self.assertEqual(2, revoked.number)
        self.assertEqual([0, 2], [known for _name, known in
                                  self.conductor.named('get_revoked_keys')])

    def test_images_that_wait_are_told_when_that_changed(self):
        for state, seconds in (('waiting', 1), ('waiting', 2),
                               ('waiting_for_space', 3)):
            self.status.images = [objects.PendingImage(
                image_id='a', state=state, retry_at=NOW
                + datetime.timedelta(seconds=seconds))]
            self.link.report()
        self.assertEqual(['waiting', 'waiting_for_space'], [
            images[0].state for _name, images in
            self.conductor.named('report_pending_images')])

    def test_fills_are_told_when_they_changed(self):
        for done in (0, 0, 5, 5):
            self.status.pending = [objects.Fill(
                kind=views.IMAGES, id=CONTENT, active=True,
                bytes_total=9, bytes_done=done,
                retry_at=versioned.now())]
            self.link.report()
        self.assertEqual([0, 5], [
            sum(fill.bytes_done for fill in call[2])
            for call in self.conductor.named('report_fills')])

    def test_links_are_reported_when_they_changed_much(self):
        def network(**values):
            return objects.HostNetwork(
                **{'peer_mbps': values.pop('peer', None)},
                repositories=[objects.RepositoryStanding(
                    **{'name': 'hub', **values})])

        found = [network(), network(bytes=10 ** 9), network(mbps=20.0),
                 network(mbps=24.9), network(mbps=25.1),
                 network(mbps=25.1, answers=False, since=NOW),
                 network(mbps=25.1, answers=False,
                         since=NOW + datetime.timedelta(seconds=1)),
                 network(mbps=25.1), network(mbps=25.1, peer=900.0)]
        for each in found:
            self.status.found = each
            self.link.report()
        self.assertEqual(
            [found[n] for n in (0, 2, 4, 5, 7, 8)],
            [each for _name, each in self.conductor.named('report_network')])

    def test_a_report_that_is_refused_holds_up_no_other(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.status.found = objects.HostNetwork()
        self.conductor.refuses = True
        for _ in range(2):
            self.link.report()
        self.assertEqual(1, log.output.count('the report of links'))
        self.assertEqual([3], self.learned)
        # The same refusal is news once a report was taken.
        for mbps, self.conductor.refuses in ((1.0, False), (2.0, True)):
            self.status.found = objects.HostNetwork(peer_mbps=mbps)
            self.link.report()
        self.assertEqual(2, log.output.count('the report of links'))

    def test_says_only_what_is_new(self):
        for _ in range(2):
            self.link.report()
        self.assertEqual(1, len(self.conductor.named('register_host')))
        self.assertEqual(1, len(self.conductor.named('report_holdings')))
        self.assertEqual([3], self.learned)
        self.held[views.Key(views.IMAGES, CONTENT)] = 5
        self.link.report()
        self.assertEqual([
            ('change_holdings', [('images', CONTENT, 5)], [], 1, 5)],
            self.conductor.named('change_holdings'))
        self.held.clear()
        self.link.report()
        self.assertEqual(('change_holdings', [], [CONTENT], 0, 0),
                         self.conductor.named('change_holdings')[-1])
        self.assertEqual(1, len(self.conductor.named('report_holdings')))

    def test_a_heartbeat_at_rest_is_one_message(self):
        reporter = link.ConductorLink(
            link.Clients(self.conductor, self.conductor, self.context),
            self.host, self.status, self.spool, 1e-9)
        self.patch(link, 'REPEAT_HOLDINGS', float('inf'))
        reporter.report()
        self.conductor.calls.clear()
        reporter.report()
        self.assertEqual([('register_host', 'h1')], self.conductor.calls)
        # What the answer names is fetched.
        self.conductor.map_generation = 4
        reporter.report()
        self.assertEqual([('update_site_map', 3)],
                         self.conductor.calls[2:])
        self.assertEqual([3, 4], self.learned)

    def test_borrowed_images_also_if_they_are_held(self):
        key = views.Key(views.IMAGES, CONTENT)
        self.link.report()
        self.held.borrowed[key] = 7
        for _ in range(2):
            self.link.report()
        self.held[key] = 5
        self.link.report()
        self.assertEqual([[], [('images', CONTENT, 7)]],
                         [call[1] for call in
                          self.conductor.named('report_borrowed')])

    def test_all_holdings_where_a_difference_does_not_fit(self):
        self.link.report()
        self.conductor.differs = True
        self.held[views.Key(views.IMAGES, CONTENT)] = 5
        self.link.report()
        self.assertEqual([('images', CONTENT, 5)],
                         self.conductor.named('report_holdings')[-1][1])

    def test_requests_wait_for_the_conductor(self):
        request = a_request()
        self.spool.put(request.obj_to_primitive())
        self.conductor.dead = True
        self.assertRaises(exceptions.ServiceUnavailable, self.link.report)
        self.assertEqual(1, len(self.spool))
        self.conductor.dead = False
        self.link.report()
        self.assertEqual([('report_requests', [request.id])],
                         self.conductor.named('report_requests'))
        self.assertEqual(0, len(self.spool))

    def test_a_report_of_a_newer_release_keeps_nobody_from_the_map(self):
        document = a_request().obj_to_primitive()
        document['diffcache_object.version'] = '9.0'
        self.spool.put(document)
        good = a_request()
        self.spool.put(good.obj_to_primitive())
        self.link.report()
        self.assertEqual([('report_requests', [good.id])],
                         self.conductor.named('report_requests'))
        self.assertEqual([3], self.learned)

    def test_the_map_does_not_wait_for_the_history(self):
        self.spool.put(a_request().obj_to_primitive())
        self.conductor.no_history = True
        self.assertRaises(exceptions.ServiceUnavailable, self.link.report)
        self.assertEqual([3], self.learned)

    def test_suspects_are_told_once(self):
        self.conductor.dead = True
        self.host.suspect('h2', views.Key(views.IMAGES, CONTENT))
        self.assertRaises(exceptions.ServiceUnavailable, self.link.report)
        self.conductor.dead = False
        for _ in range(2):
            self.link.report()
        self.assertEqual([('verify_object', 'h2', 'images', CONTENT)],
                         self.conductor.named('verify_object'))

    def test_a_conductor_that_forgot_is_told_all_again(self):
        self.link.report()
        self.conductor.known = False
        self.held[views.Key(views.IMAGES, CONTENT)] = 5
        self.assertRaises(exceptions.NotFound, self.link.report)
        self.link.report()
        self.assertEqual(2, len(self.conductor.named('register_host')))
        self.assertEqual(2, len(self.conductor.named('report_holdings')))

    def test_keeps_trying_and_tells_when_it_is_back(self):
        self.patch(link, 'RETRY_SECONDS', 0.01)
        self.conductor.dead = True
        back = threading.Event()
        self.link.on_contact(back.set)
        self.link.start()
        self.addCleanup(self.link.stop)
        self.assertFalse(back.wait(0.05))
        self.assertFalse(self.site_map.reachable)
        self.conductor.dead = False
        self.assertTrue(back.wait(waiting.SECONDS))
        self.assertTrue(self.site_map.reachable)
