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
import threading
import uuid

from diffcache_openstack.agent import link
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.agent.state import site_map_file
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.objects import base as objects_base
from diffcache_openstack.sites import view
from tests import base

CONTENT = 'a' * 64
NOW = datetime.datetime(2026, 11, 20, tzinfo=datetime.timezone.utc)


def a_map(generation=3):
    return objects.SiteMap(
        site='s', generation=generation,
        templates=[objects.Template(id='t', name='n', content_id=CONTENT,
                                    size=10, data_size=5)],
        patches=[objects.Patch(id='b' * 64, base=CONTENT, target='c' * 64,
                               size=2, apply_seconds=0.5)],
        hosts=[objects.Host(name='h1', site='s', role='compute',
                            url='http://h1', holdings=[
                                objects.Holding(kind='templates',
                                                id=CONTENT, bytes=5)]),
               objects.Host(name='r', site='x', role='repository')],
        links=objects.Links(local=4.0, peer=2.0, repo=1.0))


def a_request():
    return objects.Request(id=str(uuid.uuid4()), template_id='t', host='h1',
                           started_at=NOW)


class Conductor:

    def __init__(self):
        self.dead = False
        self.known = True
        self.no_history = False
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

    def report_holdings(self, ctxt, host, holdings):
        self._note('report_holdings', [(h.kind, h.id, h.bytes)
                                       for h in holdings])
        if not self.known:
            raise exceptions.NotFound('who?')

    def report_fills(self, ctxt, host, fills):
        self._note('report_fills', host, fills)

    def report_requests(self, ctxt, requests):
        if self.no_history:
            raise exceptions.ServiceUnavailable('the database is full')
        self._note('report_requests', [r.id for r in requests])

    def get_site_map(self, ctxt, site, generation=None):
        self._note('get_site_map', generation)
        return a_map() if generation != 3 else None

    def named(self, name):
        return [call for call in self.calls if call[0] == name]


class SiteMapTest(base.TestCase):

    def test_outlives_the_process(self):
        path = self.directory / 'map.json'
        kept = site_map_file.SiteMapKeeper(path).current()
        self.assertEqual(0, kept.generation)
        site_map_file.SiteMapKeeper(path).update(a_map())
        found = site_map_file.SiteMapKeeper(path).current()
        self.assertEqual(3, found.generation)
        self.assertEqual(CONTENT, found.template('t').content_id)
        self.assertEqual(view.Links(4.0, 2.0, 1.0), found.links)
        self.assertEqual(0.5, found.patch('b' * 64).apply_seconds)
        self.assertIn(view.Key(view.TEMPLATES, CONTENT),
                      found.holdings('h1'))
        self.assertEqual('r', found.repository().name)

    def test_a_useless_file_is_no_map(self):
        for document in ({'a': 1}, [], {'diffcache_object.name': 'SiteMap'}):
            path = self.directory / 'map.json'
            files.write_json(path, document)
            keeper = site_map_file.SiteMapKeeper(path)
            self.assertEqual(0, keeper.current().generation)


class LinkTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conductor = Conductor()
        self.keeper = site_map_file.SiteMapKeeper(self.directory / 'map.json')
        self.spool = request_spool.Spool(self.directory / 'requests')
        self.held = {}
        self.fills = []
        self.learned = []
        self.link = link.ConductorLink(
            self.conductor, self.conductor,
            lambda: objects.Host(name='h1', site='s', role='compute'),
            lambda: dict(self.held), self.keeper, self.spool, 3600,
            lambda: self.learned.append(self.keeper.current().generation),
            lambda: list(self.fills))

    def test_fills_are_told_when_they_changed(self):
        for done in (0, 0, 5, 5):
            self.fills = [objects.Fill(
                kind=view.TEMPLATES, id=CONTENT, active=True,
                bytes_total=9, bytes_done=done,
                retry_at=objects_base.now())]
            self.link.talk()
        self.assertEqual([0, 5], [
            sum(fill.bytes_done for fill in call[2])
            for call in self.conductor.named('report_fills')])

    def test_says_only_what_is_new(self):
        for _ in range(2):
            self.link.talk()
        self.assertEqual(1, len(self.conductor.named('register_host')))
        self.assertEqual(1, len(self.conductor.named('report_holdings')))
        self.assertEqual([3], self.learned)
        self.held[view.Key(view.TEMPLATES, CONTENT)] = 5
        self.link.talk()
        self.assertEqual([('templates', CONTENT, 5)],
                         self.conductor.named('report_holdings')[-1][1])

    def test_requests_wait_for_the_conductor(self):
        request = a_request()
        self.spool.put(request.obj_to_primitive())
        self.conductor.dead = True
        self.assertRaises(exceptions.ServiceUnavailable, self.link.talk)
        self.assertEqual(1, len(self.spool))
        self.conductor.dead = False
        self.link.talk()
        self.assertEqual([('report_requests', [request.id])],
                         self.conductor.named('report_requests'))
        self.assertEqual(0, len(self.spool))

    def test_a_report_of_a_newer_release_keeps_nobody_from_the_map(self):
        document = a_request().obj_to_primitive()
        document['diffcache_object.version'] = '9.0'
        self.spool.put(document)
        good = a_request()
        self.spool.put(good.obj_to_primitive())
        self.link.talk()
        self.assertEqual([('report_requests', [good.id])],
                         self.conductor.named('report_requests'))
        self.assertEqual([3], self.learned)

    def test_the_map_does_not_wait_for_the_history(self):
        self.spool.put(a_request().obj_to_primitive())
        self.conductor.no_history = True
        self.assertRaises(exceptions.ServiceUnavailable, self.link.talk)
        self.assertEqual([3], self.learned)

    def test_suspects_are_told_once(self):
        self.conductor.dead = True
        self.link.suspect('h2', view.Key(view.TEMPLATES, CONTENT))
        self.assertRaises(exceptions.ServiceUnavailable, self.link.talk)
        self.conductor.dead = False
        for _ in range(2):
            self.link.talk()
        self.assertEqual([('verify_object', 'h2', 'templates', CONTENT)],
                         self.conductor.named('verify_object'))

    def test_a_conductor_that_forgot_is_told_all_again(self):
        self.link.talk()
        self.conductor.known = False
        self.held[view.Key(view.TEMPLATES, CONTENT)] = 5
        self.assertRaises(exceptions.NotFound, self.link.talk)
        self.link.talk()
        self.assertEqual(2, len(self.conductor.named('register_host')))
        self.assertEqual(3, len(self.conductor.named('report_holdings')))

    def test_keeps_trying_and_tells_when_it_is_back(self):
        self.patch(link, 'RETRY_SECONDS', 0.01)
        self.conductor.dead = True
        back = threading.Event()
        self.link.on_contact(back.set)
        self.link.start()
        self.addCleanup(self.link.stop)
        self.assertFalse(back.wait(0.05))
        self.assertFalse(self.link.reachable)
        self.conductor.dead = False
        self.assertTrue(back.wait(20))
        self.assertTrue(self.link.reachable)
