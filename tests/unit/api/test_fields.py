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
"""Who sees which field: every route, every field, every kind of caller."""

import dataclasses
import json

from diffcache_openstack.api import fields
from diffcache_openstack.api import handlers
from diffcache_openstack.api import host_ids
from diffcache_openstack.api import policies
from diffcache_openstack.api.policies import base as rules
from diffcache_openstack.api import routing
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import precache as conductor_precache
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import hydrations
from diffcache_openstack.db.planning import precache
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack.db import volume_caches
from diffcache_openstack import objects
from diffcache_openstack.objects import precache as precache_states
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from diffcache_openstack.prefetch import profiles
from tests import base as tests_base
from tests.unit.api import base
from tests.unit import arriving
from tests.unit.conductor import fakes
from tests.unit.db import database
from tests.unit import volume_reports

# Of the operator's machines; in no document of a user.
HOST = 'rack7-node3'
PATH = '/var/lib/nova/instances'
SECRETS = (HOST, PATH, 'secret-aggregate')
PROJECT_USERS = ('member', 'reader')
OPERATORS = ('admin', 'service', 'auditor')
LISTED = {'images', 'versions', 'version_tasks', 'version_policies',
          'precache_jobs', 'targets', 'volume_caches', 'profiles',
          'hydrations'}


def resource_schema(route):
    """The schema of the resource, or of a listing's entries, of a route."""
    [schema] = [schema for name, schema
                in route.response['properties'].items()
                if not name.endswith('_links')]
    return schema.get('items', schema)


def objects_in(schema):
    """The schema of the object that a field is, or is a list of, if any."""
    schema = schema.get('items', schema)
    for each in schema.get('anyOf', [schema]):
        if each.get('properties'):
            return each
    return None


class TestTable(tests_base.TestCase):

    def routes(self):
        return [route for route in handlers.routes()
                if route.shows.fields is not None
                and route.response is not routing.NOTHING]

    def test_has_each_field_of_each_route_and_no_other(self):
        for route in self.routes():
            with self.subTest(route=route.template, method=route.method):
                self.compare(resource_schema(route), route.shows.fields)

    def compare(self, schema, table):
        self.assertEqual(set(schema['properties']), set(table))
        for name, field in table.items():
            parts = objects_in(schema['properties'][name])
            if parts is not None:
                self.compare(parts, field.parts)

    def test_is_part_of_each_route(self):
        arguments = {each.name for each in dataclasses.fields(routing.Route)
                     if each.default is dataclasses.MISSING
                     and each.default_factory is dataclasses.MISSING}
        self.assertIn('shows', arguments)
        self.assertEqual(set(fields.RESOURCES), {
            route.shows for route in handlers.routes()
            if route.shows.fields is not None})

    def test_only_routes_of_operators_show_all(self):
        """Projects may not use routes whose documents are not selected."""
        checks = {rule.name: rule.check_str for rule in policies.list_rules()}
        for route in handlers.routes():
            if route.shows is fields.OPERATORS:
                with self.subTest(route=route.template, method=route.method):
                    self.assertNotIn('project', checks[route.policy])

    def test_each_change_of_a_projects_resource_finds_it(self):
        for route in handlers.routes():
            if route.shows.fields is None or '<' not in route.path:
                continue
            with self.subTest(route=route.template, method=route.method):
                self.assertIsNotNone(route.finder)


class TestSelection(tests_base.TestCase):

    def select(self, document, operator):
        return fields.select(
            {'version': document}, fields.VERSION,
            fields.microversions.MAXIMUM, operator)['version']

    def test_field_that_is_in_no_table_is_the_operators(self):
        self.assertEqual({'id': 5}, self.select({'id': 5, 'new': 1}, False))
        self.assertEqual({'id': 5, 'new': 1},
                         self.select({'id': 5, 'new': 1}, True))

    def test_field_of_a_part_too(self):
        self.assertEqual(
            {'disks': [{'device': 'vda'}]},
            self.select({'disks': [{'device': 'vda', 'path': PATH}]}, False))

    def test_error_that_has_no_code(self):
        found = self.select({'error': PATH, 'error_code': None}, False)
        self.assertIn('cloud administrator', found['error'])
        self.assertEqual({'error': None, 'error_code': None}, self.select(
            {'error': None, 'error_code': None}, False))


class FilledTest(base.ApiTest):
    """Every field of the operator's machines has a value."""

    def setUp(self):
        self.patch(conductor_precache.Precacher, 'round', lambda _self: None)
        super().setUp()
        self.host = fakes.listen(self, HOST)
        self.nova.change('stopped', host=HOST)
        # What the test writes stays as it is.
        self.conductor._dispatcher.wake = lambda: None
        when = versioned.now()
        self.version, self.task, self.job = (base.unknown_id()
                                             for _each in range(3))
        self.write(db.create, objects.NewVersion(
            id=self.version, server_id='stopped', project_id=base.PROJECT),
            when)
        self.write(db.saved, self.version, HOST, fakes.saved(), when)
        # As after a deletion that failed.
        self.write(db.failed, self.version, db.Failure(
            f'{HOST}: {PATH}/disk is busy', 'busy'), when)
        self.write(self.fill_task, when)
        self.write(self.fill_job, when)
        _status, body, _headers = self.call(
            'POST', '/v1/version-policies',
            {'version_policy': {'keep_last': 5}}, user='member')
        self.policy = body['version_policy']['id']
        self.api.register_host(self.ctxt, objects.Host(
            name=HOST, site='edge', role='compute'))
        self.write(volume_caches.put_volumes, HOST, [
            volume_reports.volume()], {volume_reports.VOLUME:
                                       volume_caches.VolumeOwner(
                                           'stopped', base.PROJECT)})
        self.write(hydrations.put, HOST, [arriving.hydration('stopped')],
                   {'stopped': base.PROJECT})
        self.write(catalogue.put_image, database.image(
            4, owner=base.OTHER_PROJECT, visibility='private', family='t1'),
            when)
        self.write(catalogue.put_image, database.image(
            5, owner=base.PROJECT, visibility='private', size=10 ** 8), when)
        _status, body, _headers = self.call(
            'POST', '/v1/profiles', self.new_profile(), user='member')
        self.profile = body['profile']['id']

    def new_profile(self):
        return {'profile': {'image_id': 't5', 'chunk': profiles.CHUNK,
                            'rows': [[0, 1, 5.0]]}}

    def fill_task(self, session, when):
        version_tasks.create(session, objects.VersionTask(
            id=self.task, kind=versions.VERIFY, project_id=base.PROJECT),
            when)
        version_tasks.sent(session, self.task, HOST, when)
        version_tasks.report(session, objects.TaskReport(
            task_id=self.task, state=versions.DONE, result=json.dumps({
                'intact': False, 'bytes_checked': 5, 'disks_damaged': [],
                'damage': [{'object': 'pack-1', 'reason': PATH}],
                'surprise': HOST})), when)
        row = session.get(version_tasks.models.VersionTask, self.task)
        row.error, row.error_code = f'{HOST}: {PATH}', 'internal'

    def fill_job(self, session, when):
        precache.create(session, objects.PrecacheJob(
            id=self.job, project_id=base.PROJECT, images=['t1', 't2'],
            hosts=[HOST], aggregates=['secret-aggregate']), when)
        precache.set_message(session, self.job, f'{HOST} is dead')
        precache.sync_targets(
            session, self.job, [HOST, f'{HOST}-b'],
            [precache.WantedImage(name, database.content(1), 5)
             for name in ('t1', 't2')], when)
        precache.set_progress(session, self.job, [precache.Progress(
            HOST, 't1', precache_states.FAILED, way='local',
            message=f'{PATH} is full')], when)

    def samples(self):
        """A request of each route, by method and image."""
        path = f'/v1/versions/{self.version}'
        volume = f'/v1/volume-caches/{volume_reports.VOLUME}'
        return {
            ('GET', '/v1/volume-caches'): ('/v1/volume-caches', None),
            ('GET', '/v1/volume-caches/{volume_id}'): (volume, None),
            ('GET', '/v1/volume-caches/{volume_id}/curve'):
                (f'{volume}/curve', None),
            ('PATCH', '/v1/volume-caches/{volume_id}'):
                (volume, {'volume_cache': {'generation': 2}}),
            ('PUT', '/v1/volume-caches/{volume_id}/specs'):
                (f'{volume}/specs', {'volume_cache': {'specs': {}}}),
            ('POST', '/v1/volume-caches/{volume_id}/actions'):
                (f'{volume}/actions', {'action': 'flush'}),
            ('GET', '/v1/hydrations'): ('/v1/hydrations', None),
            ('GET', '/v1/hydrations/{server_id}'):
                ('/v1/hydrations/stopped', None),
            ('PATCH', '/v1/hydrations/{server_id}'):
                ('/v1/hydrations/stopped', {'hydration': {'generation': 0}}),
            ('GET', '/v1/profiles'): ('/v1/profiles', None),
            ('GET', '/v1/profiles/{profile_id}'):
                (f'/v1/profiles/{self.profile}', None),
            ('POST', '/v1/profiles'): ('/v1/profiles', self.new_profile()),
            ('DELETE', '/v1/profiles/{profile_id}'):
                (f'/v1/profiles/{self.profile}', None),
            ('GET', '/v1/images'): ('/v1/images?name=Image 1', None),
            ('GET', '/v1/images/{image_id}'):
                ('/v1/images/t1', None),
            ('GET', '/v1/limits'):
                (f'/v1/limits?project_id={base.PROJECT}', None),
            ('GET', '/v1/versions'): ('/v1/versions', None),
            ('GET', '/v1/versions/{version_id}'): (path, None),
            ('GET', '/v1/version-tasks'): ('/v1/version-tasks', None),
            ('GET', '/v1/version-tasks/{task_id}'):
                (f'/v1/version-tasks/{self.task}', None),
            ('GET', '/v1/version-stores/{project_id}'):
                (f'/v1/version-stores/{base.PROJECT}', None),
            ('GET', '/v1/version-policies'): ('/v1/version-policies', None),
            ('GET', '/v1/version-policies/{policy_id}'):
                (f'/v1/version-policies/{self.policy}', None),
            ('GET', '/v1/precache-jobs'): ('/v1/precache-jobs', None),
            ('GET', '/v1/precache-jobs/{job_id}'):
                (f'/v1/precache-jobs/{self.job}', None),
            ('GET', '/v1/precache-jobs/{job_id}/targets'):
                (f'/v1/precache-jobs/{self.job}/targets', None),
            ('PATCH', '/v1/versions/{version_id}'):
                (path, {'version': {'generation': 1, 'name': 'x'}}),
            ('POST', '/v1/versions'):
                ('/v1/versions', {'version': {'server_id': 'stopped'}}),
            ('POST', '/v1/versions/{version_id}/restore'):
                (f'{path}/restore', {'restore': {}}),
            ('POST', '/v1/versions/{version_id}/export'):
                (f'{path}/export', {'export': {}}),
            ('POST', '/v1/versions/{version_id}/diff'):
                (f'{path}/diff', {'diff': {'against': self.version}}),
            ('DELETE', '/v1/versions/{version_id}'): (path, None),
            ('POST', '/v1/version-tasks/{task_id}/cancel'):
                (f'/v1/version-tasks/{self.task}/cancel', {}),
            ('POST', '/v1/version-tasks/verify'):
                ('/v1/version-tasks/verify', {'verify': {}}),
            ('POST', '/v1/version-tasks/replicate'):
                ('/v1/version-tasks/replicate', {'replicate': {}}),
            ('POST', '/v1/version-policies'):
                ('/v1/version-policies', {'version_policy': {}}),
            ('DELETE', '/v1/version-policies/{policy_id}'):
                (f'/v1/version-policies/{self.policy}', None),
            ('POST', '/v1/precache-jobs'):
                ('/v1/precache-jobs', {'precache_job': {
                    'images': ['t1'], 'hosts': ['h1']}}),
            ('PATCH', '/v1/precache-jobs/{job_id}'):
                (f'/v1/precache-jobs/{self.job}',
                 {'precache_job': {'generation': 1, 'name': 'x'}}),
            ('POST', '/v1/precache-jobs/{job_id}/retry'):
                (f'/v1/precache-jobs/{self.job}/retry', {}),
            ('POST', '/v1/precache-jobs/{job_id}/cancel'):
                (f'/v1/precache-jobs/{self.job}/cancel', {}),
        }


class TestWalk(FilledTest):

    def walk(self, method=None):
        """Each route of projects' resources, with a request."""
        samples = self.samples()
        for route in handlers.routes():
            if route.shows.fields is not None and method in (
                    None, route.method):
                yield (route, *samples[route.method, route.template])

    def entries(self, route, user, path):
        """The resources that a user is shown."""
        body = self.get(path, user=user)
        [shown] = [value for name, value in body.items()
                   if not name.endswith('_links')]
        return shown if isinstance(shown, list) else [shown]

    def test_without_a_token(self):
        for route, path, body in self.walk():
            with self.subTest(route=route.template, method=route.method):
                self.refused_plainly(401, route.method, path, body, None)

    def refused_plainly(self, status, method, path, body, user):
        found, answer, _headers = self.call(method, path, body, user=user)
        self.assertEqual(status, found, answer)
        self.check_no_secrets(answer)

    def check_no_secrets(self, answer):
        for secret in SECRETS:
            self.assertNotIn(secret, json.dumps(answer))

    def test_with_too_few_rights(self):
        for route, path, body in self.walk():
            with self.subTest(route=route.template, method=route.method):
                self.refused_plainly(403, route.method, path, body, 'nobody')
                if route.method != 'GET':
                    self.refused_plainly(403, route.method, path, body,
                                         'reader')

    def test_with_another_projects_token(self):
        checks = {rule.name: rule.check_str for rule in policies.list_rules()}
        for route, path, body in self.walk():
            if route.shows is fields.LIMITS:
                self.refused_plainly(403, route.method, path, body, 'other')
            if route.shows is fields.IMAGE or '<' not in route.path:
                continue
            # What only administrators may do is refused to all others.
            status = 403 if checks[route.policy] == rules.ADMIN else 404
            with self.subTest(route=route.template, method=route.method):
                self.refused_plainly(status, route.method, path, body,
                                     'other')
        for route, path, _body in self.walk('GET'):
            if '<' not in route.path and route.shows not in (
                    fields.IMAGE, fields.LIMITS):
                self.assertEqual([], self.entries(route, 'other', path))

    def test_project_sees_its_fields_and_no_secrets(self):
        for route, path, _body in self.walk('GET'):
            full = self.entries(route, 'admin', path)
            for user in PROJECT_USERS:
                shown = self.entries(route, user, path)
                with self.subTest(route=route.template, user=user):
                    self.check_no_secrets(shown)
                    self.assertEqual(len(full), len(shown))
                    self.compare(route.shows.fields, full[0], shown[0])

    def compare(self, table, full, shown):
        """Compare a document as operators and as others see it."""
        self.assertEqual(set(table) & set(full), set(shown))
        for name, field in table.items():
            if name not in full:
                continue
            if field.operators:
                self.assertIsNotNone(full[name], name)
                self.assertNotEqual(full[name], shown[name], name)
                self.assertEqual(field.substitute(full), shown[name])
            elif field.parts and isinstance(full[name], dict):
                self.compare(field.parts, full[name], shown[name])
            elif name not in ('id', 'members'):
                self.assertEqual(full[name], shown[name], name)

    def test_operators_see_all(self):
        for route, path, _body in self.walk('GET'):
            full = self.entries(route, 'admin', path)
            for user in OPERATORS:
                with self.subTest(route=route.template, user=user):
                    self.assertEqual(full, self.entries(route, user, path))

    def test_changes_show_no_secrets_either(self):
        for route, path, body in self.walk():
            if route.method in ('POST', 'PATCH'):
                _status, answer, _headers = self.call(
                    route.method, path, body, user='member')
                with self.subTest(route=route.template, method=route.method):
                    self.check_no_secrets(answer)


class TestFields(FilledTest):

    def test_members_are_those_that_the_caller_may_see(self):
        """Another project's private image is not counted."""
        for user, count in (('admin', 2), ('member', 1), ('other', 2)):
            found = self.get('/v1/images/t1', user=user)['image']
            self.assertEqual(count, found['members'], user)

    def test_code_says_why_where_the_error_is_not_shown(self):
        found = self.get(f'/v1/versions/{self.version}',
                         user='member')['version']
        self.assertEqual('busy', found['error_code'])
        self.assertIn('try again later', found['error'])

    def test_targets_have_novas_ids_of_hosts(self):
        path = f'/v1/precache-jobs/{self.job}/targets'
        first = self.get(f'{path}?limit=3', user='member')
        self.check_ids(first['targets'], ['t1', 't2', 't1'])
        self.assertNotIn(HOST, json.dumps(first))
        rest = self.get(first['targets_links'][0]['href'].removeprefix(
            'http://localhost'), user='member')
        [last] = rest['targets']
        self.assertEqual(host_ids.host_id(base.PROJECT, f'{HOST}-b') + '/t2',
                         last['id'])
        self.refused(400, 'GET', f'{path}?marker={HOST}/t1', user='member')

    def check_ids(self, targets, images):
        hosts = [HOST, HOST, f'{HOST}-b']
        self.assertEqual(
            [f'{host_ids.host_id(base.PROJECT, host)}/{image}'
             for host, image in zip(hosts, images)],
            [target['id'] for target in targets])

    def test_targets_of_a_host_are_the_operators(self):
        path = f'/v1/precache-jobs/{self.job}/targets?host={HOST}'
        self.refused(403, 'GET', path, user='member')
        self.assertEqual(2, len(self.get(path)['targets']))


class TestProblems(FilledTest):

    def test_addresses_of_services_are_the_operators(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailable(
                f'create_version at {HOST}: no answer')

        self.patch(self.services.versions, 'create_version', fail)
        body = {'version': {'server_id': 'stopped'}}
        error = self.refused(503, 'POST', '/v1/versions', body, user='member')
        self.assertNotIn(HOST, error['detail'])
        error = self.refused(503, 'POST', '/v1/versions', body)
        self.assertIn(HOST, error['detail'])
