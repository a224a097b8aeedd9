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
"""Precache jobs over the API."""

import datetime

from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import profiles
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.planning import precache
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.objects import versioned
from tests.unit.api import base
from tests.unit.db import database
from tests import waiting

PATH = '/v1/precache-jobs'


class JobTest(base.ApiTest):

    # The tests call each round themselves: another at the same time would
    # find their changes half made.
    CHECK_INTERVAL = 3600

    def create(self, user='admin', **values):
        """A job, as the answer to its creation shows it."""
        status, body, headers = self.call('POST', PATH, {'precache_job': {
            'images': ['t1'], 'hosts': ['h1', 'h2'], **values}}, user=user)
        self.assertEqual(202, status, body)
        job = body['precache_job']
        self.assertEqual(f'http://localhost{PATH}/{job["id"]}',
                         headers['Location'])
        return job

    def round(self):
        """Have the conductor look after all jobs."""
        self.conductor._precacher.round()

    def show(self, job):
        return self.get(f'{PATH}/{job["id"]}')['precache_job']

    def targets(self, job, query=''):
        return self.get(f'{PATH}/{job["id"]}/targets{query}')['targets']


class TestLife(JobTest):

    def test_progress_by_host(self):
        job = self.create(pinned=True)
        self.assertEqual(('running', 1), (job['state'], job['generation']))
        self.round()
        self.assertEqual(
            [('h1', 'ready', 'local'), ('h2', 'fetching', None)],
            [(target['host'], target['state'], target['way'])
             for target in self.targets(job)])
        size = 100 * base.test_agents.MB
        self.assertEqual(
            {'targets': 2, 'ready': 1, 'failed': 0, 'bytes': 2 * size,
             'bytes_done': size}, self.show(job)['progress'])
        self.write(held_rows.put_holdings, 'h2', [database.holding(1)],
                   versioned.now())
        self.round()
        self.assertEqual('ready', self.show(job)['state'])

    def test_met_by_a_patch(self):
        job = self.create(images=['t2'], hosts=['h2'])
        self.round()
        [target] = self.targets(job)
        self.assertEqual(('ready', 'build'), (target['state'],
                                              target['way']))

    def test_pinned_is_not_met_by_a_patch(self):
        job = self.create(images=['t2'], hosts=['h2'], pinned=True)
        self.round()
        self.assertNotEqual('ready', self.targets(job)[0]['state'])

    def test_family_and_its_new_members(self):
        job = self.create(images=[], families=['t1'], hosts=['h1'])
        self.round()
        self.assertEqual(['t1', 't2'], [
            target['image_id'] for target in self.targets(job)])
        self.write(catalogue.put_image, database.image(
            5, family='t1', data_size=1000), versioned.now())
        self.round()
        self.assertEqual(3, len(self.targets(job)))

    def test_what_cannot_be_says_why(self):
        self.write(catalogue.put_image, database.image(
            6, data_size=10 ** 12), versioned.now())
        job = self.create(images=['t6', 'gone'], hosts=['h1', 'h9'])
        self.round()
        failed = self.targets(job, '?state=failed')
        self.assertEqual(4, len(failed))
        for target, word in zip(failed, (
                'not in the catalogue', 'cache of host h1',
                'not in the catalogue', 'not registered')):
            self.assertIn(word, target['message'])

    def test_becomes_demand_for_the_plan(self):
        self.create(images=['t2'], hosts=['h2'], pinned=True)
        self.round()
        [demand] = self.read(precache.demand, 'edge')
        self.assertEqual(('h2', database.content(2), True), (
            demand.host, demand.content_id, demand.pinned))
        self.assertIn(('h2', database.content(2)),
                      [(item.host, item.id) for item in self.plan().items])

    def plan(self):
        """Wait for the site's plan: the conductor's own round may make it."""
        return waiting.until(
            lambda: self.read(plans.current_plan, 'edge'), 'a plan')

    def test_priority_weighs(self):
        self.create(images=['t1'], hosts=['h1'], priority=40)
        self.create(images=['t1'], hosts=['h2'], priority=60)
        self.round()
        low, high = self.read(precache.demand, 'edge')
        self.assertEqual(4 * low.requests, high.requests)

    def test_closed_window_asks_for_nothing_new(self):
        now = datetime.datetime.now()
        start, end = ((now + datetime.timedelta(hours=hours)).strftime('%H:00')
                      for hours in (2, 3))
        self.create(window=f'{start}-{end}')
        self.round()
        # What is there at the site is not asked for, but stays.
        self.assertEqual(['h1', 'h2'], [
            demand.host for demand in self.read(precache.demand, 'edge')])
        self.write(held_rows.put_holdings, 'h1', [], versioned.now())
        self.round()
        self.assertEqual([], self.read(precache.demand, 'edge'))

    def test_expiry(self):
        soon = versioned.now() + datetime.timedelta(days=1)
        job = self.create(expires_at=soon.isoformat())
        self.assertEqual([job['id']], self.write(
            precache.expire, soon + datetime.timedelta(seconds=1)))
        self.assertEqual('expired', self.show(job)['state'])
        self.assertEqual([], self.read(precache.demand, 'edge'))

    def test_survives_the_conductor(self):
        job = self.create()
        self.conductor.stop()
        another = base.test_agents.service.ConductorService(self.conf)
        another.start()
        self.addCleanup(another.stop)
        another._precacher._owner = self.conductor._precacher._owner
        another._precacher.round()
        self.assertEqual(2, self.show(job)['progress']['targets'])

    def test_zones_without_nova_keep_the_job_waiting(self):
        job = self.create(hosts=[], availability_zones=['edge-1'])
        self.round()
        self.assertIn('[nova]', self.show(job)['message'])


class TestChanges(JobTest):

    def update(self, job, **values):
        return self.call('PATCH', f'{PATH}/{job["id"]}', {'precache_job': {
            'generation': job['generation'], **values}})

    def test_update(self):
        job = self.create()
        status, body, _headers = self.update(
            job, priority=90, name='Monday', rate=10 ** 6,
            expires_at='2031-01-01T00:00:00Z')
        self.assertEqual(200, status, body)
        job = body['precache_job']
        self.assertEqual(
            (90, 'Monday', 10 ** 6, '2031-01-01T00:00:00Z', 2),
            (job['priority'], job['name'], job['rate'], job['expires_at'],
             job['generation']))

    def test_second_of_two_writers_is_told(self):
        job = self.create()
        self.assertEqual(200, self.update(job, priority=90)[0])
        status, body, _headers = self.update(job, priority=10)
        self.assertEqual(409, status)
        self.assertEqual('diffcache.concurrent_update',
                         body['errors'][0]['code'])
        # Having looked again it succeeds.
        self.assertEqual(200, self.update(self.show(job), priority=10)[0])

    def test_cancel(self):
        job = self.create()
        self.round()
        path = f'{PATH}/{job["id"]}/cancel'
        for _repeated in range(2):
            _status, body, _headers = self.call('POST', path, {})
            self.assertEqual('cancelled', body['precache_job']['state'])
        self.assertEqual([], self.read(precache.demand, 'edge'))
        status, _body, _headers = self.update(self.show(job), priority=1)
        self.assertEqual(409, status)

    def test_retry_sends_the_plan_again(self):
        agent = self.listen('h1')
        job = self.create()
        self.round()
        first = agent.plans.get(timeout=base.test_agents.ANSWER_SECONDS)
        status, _body, _headers = self.call(
            'POST', f'{PATH}/{job["id"]}/retry', {})
        self.assertEqual(202, status)
        self.assertEqual(first, agent.plans.get(
            timeout=base.test_agents.ANSWER_SECONDS))

    def test_names_that_would_write_into_other_peoples_terminals(self):
        for name in ('a\x00b', '\x1b[2J', 'two\nlines', '\x9b1m',
                     # Bidirectional, or not visible.
                     'gpj.\u202exe', 'a\u2066b', 'a\u200bb', 'a\u200db',
                     'a\ufeff', 'a\u00adb', 'a\u061cb', 'a\u2028b', '\u3164',
                     'a\ufe0f', 'a\U000e0041', 'a\U000e0100'):
            error = self.refused(400, 'POST', PATH, {'precache_job': {
                'images': ['t1'], 'hosts': ['h1'], 'name': name}})
            self.assertIn('precache_job/name', error['detail'])
            self.assertIn('characters that control', error['detail'])

    def test_half_of_a_character_is_no_text(self):
        for values in ({'images': ['\ud800']}, {'name': 'a\udfff'},
                       {'hosts': ['\udc80']}):
            error = self.refused(400, 'POST', PATH, {'precache_job': {
                'images': ['t1'], 'hosts': ['h1'], **values}})
            self.assertIn('lone surrogate', error['detail'])

    def test_malformed(self):
        for values in ({'images': []}, {'hosts': []}, {'priority': 101},
                       {'rate': 0}, {'pinned': 'yes'},
                       {'expires_at': 'soon'},
                       {'expires_at': '2001-01-01T00:00:00Z'},
                       {'expires_at': '9999-12-31T23:59:59-14:00'},
                       {'images': ['t1', 't1']},
                       {'colour': 'red'}, {'window': 'at night'}):
            self.refused(400, 'POST', PATH, {'precache_job': {
                'images': ['t1'], 'hosts': ['h1'], **values}})


class TestProjects(JobTest):

    def test_each_sees_its_own(self):
        job = self.create()
        for user, seen in (('reader', True), ('other', False),
                           ('service', True), ('auditor', True)):
            jobs = self.get(PATH, user=user)['precache_jobs']
            self.assertEqual([job['id']] if seen else [],
                             [found['id'] for found in jobs])
        for method, path, body in (
                ('GET', '', None), ('GET', '/targets', None),
                ('PATCH', '', {'precache_job': {'generation': 1}}),
                ('POST', '/cancel', {}), ('POST', '/retry', {})):
            self.refused(404, method, f'{PATH}/{job["id"]}{path}', body,
                         user='other')
        self.assertEqual('running', self.show(job)['state'])

    def test_member_of_the_project_may_cancel(self):
        job = self.create()
        status, _body, _headers = self.call(
            'POST', f'{PATH}/{job["id"]}/cancel', {}, user='member')
        self.assertEqual(200, status)


class TestParts(JobTest):

    def test_jobs(self):
        ids = sorted(self.create()['id'] for _ in range(3))
        answer = self.get(f'{PATH}?limit=2&state=running')
        found = [job['id'] for job in answer['precache_jobs']]
        answer = self.get(answer['precache_jobs_links'][0]['href'])
        found += [job['id'] for job in answer['precache_jobs']]
        self.assertEqual(ids, found)

    def test_targets(self):
        job = self.create(images=['t1', 't2'])
        self.round()
        answer = self.get(f'{PATH}/{job["id"]}/targets?limit=3')
        self.assertEqual(3, len(answer['targets']))
        answer = self.get(answer['targets_links'][0]['href'])
        self.assertEqual(['h2/t2'],
                         [target['id'] for target in answer['targets']])


class TestBootSets(JobTest):

    def learn(self):
        self.database.write(
            profiles.import_rows, '5b4a0a3c-8f0d-4c8b-9a52-0f4f6f1a2f11',
            profiles.Subject('t1', '', ''), [[0, 1, 5]], versioned.now())

    def test_progress_by_host(self):
        job = self.create(boot_set=True, hosts=['h2'])
        self.assertIs(True, job['boot_set'])
        self.round()
        [target] = self.targets(job)
        self.assertEqual(('waiting', 0), (target['state'],
                                          target['bytes_total']))
        self.assertIn('Nothing is known of boots', target['message'])
        self.learn()
        self.round()
        [target] = self.targets(job)
        self.assertIn('serves no image', target['message'])
        content_id = database.content(1)
        self.database.write(boot_sets.exchange, 'h2', [], None,
                            versioned.now())
        self.round()
        [target] = self.targets(job)
        self.assertIn('no room', target['message'])
        size = target['bytes_total']
        database.put_wanted(self.database, ['h2'], [boot_sets.PlannedSet(
            'h2', content_id, boot_sets.BootReads('t1', size, {0: (1, 5)}),
            0.0,
            0.0, False, 0.0, True)], versioned.now())
        for held, state, message, shown in (
                (0, 'waiting', None, ('waiting', None, 0)),
                (size // 2, 'fetching', None, ('fetching', None, size // 2)),
                (0, 'failed', 'The disk is full.', ('failed', None, 0)),
                (size, 'ready', None, ('ready', 'boot_set', size))):
            self.database.write(boot_sets.exchange, 'h2', [boot_sets.HeldSet(
                content_id, held, state, message)], None, versioned.now())
            self.round()
            [target] = self.targets(job)
            self.assertEqual(shown, tuple(
                target[name] for name in ('state', 'way', 'bytes_done')))
        self.assertEqual('ready', self.show(job)['state'])

    def test_boots_of_too_few_instances_are_not_known(self):
        self.conf.set_override('threshold', 2.0, 'lazy')
        job = self.create(boot_set=True, hosts=['h2'])
        self.learn()
        self.round()
        [target] = self.targets(job)
        self.assertEqual(0, target['bytes_total'])
        self.assertIn('Nothing is known of boots', target['message'])

    def test_hosts_and_images_that_there_are_not(self):
        job = self.create(boot_set=True, hosts=['h9'])
        self.round()
        [target] = self.targets(job)
        self.assertEqual('failed', target['state'])
