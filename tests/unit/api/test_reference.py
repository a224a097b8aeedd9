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
"""The API reference tells what the routes are and what samples bring.

To write it anew: ``DIFFCACHE_WRITE_REFERENCE=1 stestr run test_reference``.
"""

import json
import os
import pathlib

from diffcache_openstack.api import handlers
from diffcache_openstack.api import microversions
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.prefetch import profiles
from tests import base as tests_base
from tests.unit.api import base
from tests.unit.api import reference
from tests.unit.api import rights_tables
from tests.unit import arriving
from tests.unit.conductor import fakes
from tests.unit.db import database
from tests.unit import volume_reports

WRITE = 'DIFFCACHE_WRITE_REFERENCE'
JOB = {'precache_job': {
    'name': 'Monday morning', 'images': ['t2'], 'hosts': ['h2'],
    'priority': 80, 'window': '00:00-24:00'}}


def _without_ids(body):
    """A body without the ids that other samples brought."""
    return body and json.loads(reference.steady(json.dumps(body)))


class TestReference(base.ApiTest):

    def setUp(self):
        super().setUp()
        self.conductor.tg.stop()
        self.samples = {}

    def sample(self, method, image, body=None, query='', **arguments):
        """Run a sample, and note what it was."""
        path = image.format(**arguments) + query
        status, came, _headers = self.call(method, path, body)
        route = next(route for route in handlers.routes()
                     if (route.method, route.template) == (method, image))
        self.assertEqual(route.status, status, came)
        self.samples[method, image] = (
            reference.steady(path), _without_ids(body), came)
        return came

    def want_boot_set(self):
        """A set that the plan wants, and that is there."""
        rows = {chunk: (2, 100) for chunk in range(8)}
        database.put_wanted(self.database, ['h1'], [boot_sets.PlannedSet(
            'h1', database.content(3), boot_sets.BootReads(
                't3', 8 * profiles.CHUNK, rows), requests=2.0,
            wait_seconds=1.5, from_peer=False, saved_seconds=2.5,
            pinned=False)], versioned.now())
        self.database.write(boot_sets.exchange, 'h1', [boot_sets.HeldSet(
            database.content(3), 8 * profiles.CHUNK, 'ready')], None,
            versioned.now())

    def run_all(self):
        self.run_discovery()
        self.run_plans()
        self.run_jobs()
        self.run_versions()
        self.sample('GET', '/v1/hosts', query='?site=edge&limit=1')
        self.api.report_network(self.ctxt, 'h1', objects.HostNetwork(
            fill_rate=2000000, fill_windows=['22:00-06:00'], peer_mbps=931.5,
            repositories=[objects.RepositoryStanding(
                name='hub', mbps=18.5, transfers=12, failures=1,
                bytes=1500000000)]))
        self.sample('GET', '/v1/hosts/{name}', name='h1')
        self.sample('GET', '/v1/hosts/{name}/objects', name='h1',
                    query='?kind=images')
        self.sample('GET', '/v1/holdings', query='?site=edge&limit=1')
        self.sample('GET', '/v1/hosts/{name}/pending-images', name='h1',
                    query='?state=waiting_for_space')
        self.want_boot_set()
        self.sample('GET', '/v1/hosts/{name}/boot-sets', name='h1',
                    query='?state=ready')
        self.sample('GET', '/v1/images', query='?family=t1')
        self.sample('GET', '/v1/images/{image_id}', image_id='t1')
        self.sample('GET', '/v1/images/{image_id}/locations',
                    image_id='t1')
        self.sample('GET', '/v1/images/{image_id}/lookups',
                    image_id='t2', query='?site=edge&limit=1')
        self.sample('GET', '/v1/patches', query='?target=t2&target=t3')
        self.sample('GET', '/v1/patches/{patch_id}',
                    patch_id=database.patch(1, 2).id)
        self.sample('GET', '/v1/patch-pairs', query='?target=t2')
        self.sample('GET', '/v1/lookups',
                    query='?host=h1&image_id=t2&limit=1')
        self.sample('GET', '/v1/requests', query='?site=edge&limit=1')
        self.sample('GET', '/v1/sites')
        self.sample('GET', '/v1/limits')
        self.sample('GET', '/v1/sites/{name}/report', name='edge')
        self.sample('GET', '/v1/sites/{name}/forecast', name='edge',
                    query='?limit=1')
        self.run_volume_caches()
        self.run_profiles()
        self.run_hydrations()
        database.silence(self.database, 'h2')
        self.sample('DELETE', '/v1/hosts/{name}', name='h2')

    def run_volume_caches(self):
        # Another fake answers for h1.
        self.nova.change('running', host='h2')
        self.nova.volumes = {volume_reports.VOLUME: 'running'}
        self.api.report_volume_caches(
            self.ctxt, 'h2', volume_reports.cache(),
            [volume_reports.volume()])
        volume = {'volume_id': volume_reports.VOLUME}
        path = '/v1/volume-caches'
        self.sample('GET', path, query='?server_id=running')
        self.sample('GET', f'{path}/{{volume_id}}', **volume)
        self.sample('GET', f'{path}/{{volume_id}}/curve', **volume)
        fakes.listen_for_volumes(
            self, 'h2', volume_reports.cached(self, volume_reports.VOLUME))
        self.sample('PATCH', f'{path}/{{volume_id}}', {'volume_cache': {
            'generation': 0, 'min': 64}}, **volume)
        self.sample('PUT', f'{path}/{{volume_id}}/specs', {
            'volume_cache': {'specs': {
                'diffcache:ssd_cache': 'write-through',
                'diffcache:ssd_cache:max': '1GiB'}}}, **volume)
        self.sample('POST', f'{path}/{{volume_id}}/actions',
                    {'action': 'flush'}, **volume)
        self.sample('GET', '/v1/ssd-caches')
        self.sample('GET', '/v1/ssd-caches/{host}', host='h2')

    def run_profiles(self):
        self.sample('POST', '/v1/profiles', {'profile': {
            'image_id': 't1', 'label': 'm1.small', 'chunk': profiles.CHUNK,
            'rows': [[0, 2, 1500.0]]}})
        [profile] = self.get('/v1/profiles')['profiles']
        self.sample('GET', '/v1/profiles', query='?image_id=t1')
        for method in ('GET', 'DELETE'):
            self.sample(method, '/v1/profiles/{profile_id}',
                        profile_id=profile['id'])

    def run_hydrations(self):
        # Another fake answers for h2.
        self.api.register_host(self.ctxt, database.host('h3'))
        self.nova.change('running', host='h3')
        self.services.lazy.report_hydrations(
            self.ctxt, 'h3', [arriving.hydration('running')])
        server = {'server_id': 'running'}
        path = '/v1/hydrations'
        self.sample('GET', path, query='?image_id=t1')
        self.sample('GET', f'{path}/{{server_id}}', **server)
        host = arriving.Host(self.directory, arriving.status())
        host.boot('running')
        fakes.listen_for_hydrations(self, 'h3', host.hydrations)
        self.sample('PATCH', f'{path}/{{server_id}}', {'hydration': {
            'generation': 0, 'deadline': 600}}, **server)

    def run_discovery(self):
        self.sample('GET', '/')
        self.sample('GET', '/v1')

    def run_plans(self):
        plans = [self.sample('POST', '/v1/plans', {'plan': {'site': 'edge'}})
                 ['plan']['id'] for _ in range(2)]
        self.conductor._proposals._pool.submit(int).result()
        self.sample('POST', '/v1/plans/{plan_id}/apply', {'generation': 0},
                    plan_id=plans[0])
        self.sample('POST', '/v1/plans/{plan_id}/cancel', {},
                    plan_id=plans[1])
        self.sample('GET', '/v1/plans', query='?state=current')
        self.sample('GET', '/v1/plans/{plan_id}', plan_id=plans[0])
        self.sample('GET', '/v1/plans/{plan_id}/explanation',
                    plan_id=plans[0])
        self.sample('POST', '/v1/what-if', {'what_if': {
            'site': 'edge', 'changes': {'repository_mbps': 100.0}}})

    def run_jobs(self):
        job = self.sample('POST', '/v1/precache-jobs', JOB)
        job_id = job['precache_job']['id']
        self.conductor._precacher.round()
        self.sample('GET', '/v1/precache-jobs', query='?state=ready')
        self.sample('GET', '/v1/precache-jobs/{job_id}', job_id=job_id)
        self.sample('GET', '/v1/precache-jobs/{job_id}/targets',
                    job_id=job_id)
        self.sample('PATCH', '/v1/precache-jobs/{job_id}', {
            'precache_job': {'generation': 1, 'pinned': True}},
            job_id=job_id)
        self.sample('POST', '/v1/precache-jobs/{job_id}/retry', {},
                    job_id=job_id)
        self.sample('POST', '/v1/precache-jobs/{job_id}/cancel',
                    {'generation': 2}, job_id=job_id)

    def run_versions(self):
        host, hub = fakes.listen(self, 'h1'), fakes.listen(self, 'hub')
        # Not when it likes, or samples would tell now this and now that.
        self.conductor._dispatcher.wake = lambda: None
        saved = [self.run_saving(host, number) for number in (1, 2)]
        one, other = ({'version_id': each} for each in saved)
        self.sample('GET', '/v1/versions', query='?server_id=stopped&limit=1')
        self.sample('GET', '/v1/versions/{version_id}', **one)
        self.sample('PATCH', '/v1/versions/{version_id}', {'version': {
            'generation': 1, 'name': 'Gold', 'protected': True}}, **one)
        self.sample('POST', '/v1/versions/{version_id}/restore',
                    {'restore': {'keep_current': False,
                                 'method': 'auto'}}, **one)
        host.report(self.sent(host), result=json.dumps({
            'bytes_differing': 8192, 'bytes_written': 8192,
            'bytes_read': 16384, 'seconds': 0.5}))
        self.sample('POST', '/v1/versions/{version_id}/export',
                    {'export': {'name': 'Gold'}}, **one)
        hub.report(self.sent(hub), result=json.dumps({
            'image_id': '00000000-0000-4000-8000-000000000007',
            'uploaded': 2097152}))
        task = self.sample('POST', '/v1/versions/{version_id}/diff',
                           {'diff': {'against': saved[1]}}, **one)
        task_id = task['version_task']['id']
        self.sent(hub)
        self.sample('POST', '/v1/version-tasks/{task_id}/cancel', {},
                    task_id=task_id)
        self.sample('POST', '/v1/version-tasks/verify', {'verify': {}})
        self.sample('POST', '/v1/version-tasks/replicate', {'replicate': {}})
        self.sample('GET', '/v1/version-stores/{project_id}',
                    project_id=base.PROJECT)
        self.sent(hub)
        self.sample('GET', '/v1/version-tasks', query='?kind=export')
        self.sample('GET', '/v1/version-tasks/{task_id}', task_id=task_id)
        self.sample('DELETE', '/v1/versions/{version_id}', **other)
        self.run_policies()

    def sent(self, host):
        """The task that a host is sent next."""
        self.conductor._dispatcher.look()
        return host.next()

    def run_saving(self, host, number):
        version = self.sample('POST', '/v1/versions', {'version': {
            'server_id': 'stopped', 'name': f'Day {number}'}})
        host.report(self.sent(host), saved=fakes.saved(number))
        return version['version']['id']

    def run_policies(self):
        policy = self.sample('POST', '/v1/version-policies', {
            'version_policy': {'server_id': 'running', 'every': 3600,
                               'keep_hourly': 24, 'keep_daily': 7,
                               'on_delete': True}})
        policy_id = policy['version_policy']['id']
        self.sample('GET', '/v1/version-policies', query='?limit=1')
        self.sample('GET', '/v1/version-policies/{policy_id}',
                    policy_id=policy_id)
        self.sample('DELETE', '/v1/version-policies/{policy_id}',
                    policy_id=policy_id)

    def test_is_what_the_routes_say_and_the_samples_bring(self):
        self.run_all()
        self.assertEqual([], reference.routes_without(self.samples))
        text = reference.text(self.samples)
        if os.environ.get(WRITE):
            reference.PATH.write_text(text)
        self.assertEqual(reference.PATH.read_text(), text)


class TestRights(base.ApiTest):

    def test_tables_are_what_policies_and_fields_say(self):
        text = rights_tables.text(self.services.enforcer)
        if os.environ.get(WRITE):
            rights_tables.PATH.write_text(text)
        self.assertEqual(rights_tables.PATH.read_text(), text)


class TestHistory(tests_base.TestCase):

    def test_each_version_is_told(self):
        document = pathlib.Path(reference.PATH).with_name('api.rst')
        text = ' '.join(document.read_text().split())
        for number, change in microversions.HISTORY.items():
            self.assertIn(f'{number} {change}', text)
