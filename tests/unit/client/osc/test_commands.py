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
"""The commands, over the API itself."""

import contextlib
import io
import json
import pathlib
import sys
import types

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
import requests

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc.image import cached_images
from diffcache_openstack.client.osc.image import hosts
from diffcache_openstack.client.osc.image import lookups
from diffcache_openstack.client.osc.image import plans
from diffcache_openstack.client.osc.image import precache
from diffcache_openstack.client.osc.image import quotas
from diffcache_openstack.client.osc.image import sites
from diffcache_openstack.client.osc.image import status
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import profiles
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack.db.sites import pending_images
from diffcache_openstack import objects as server_objects
from diffcache_openstack.objects import base as objects_base
from tests import base as test_base
from tests.unit.api import base
from tests.unit.client import cloud
from tests.unit.client.osc import pages
from tests.unit.db import database

PNG = b'\x89PNG\r\n\x1a\n'


def forbidden(name, ignore_missing):
    """Keystone's refusal to list projects."""
    raise sdk_exceptions.ForbiddenException('identity:list_projects')


class TestErrors(test_base.TestCase):

    def words(self, **more):
        response = requests.Response()
        response.status_code = 409
        with self.assertRaises(exceptions.CommandError) as found:
            with commands.errors_in_words():
                raise sdk_exceptions.ConflictException(response=response,
                                                       **more)
        return str(found.exception)

    def test_words_of_other_services(self):
        # The library says nothing but the code of Cinder's and Nova's.
        self.assertEqual('Specs x exist.', self.words(
            message=None, details='Specs x exist.'))
        self.assertEqual('Wait.', self.words(message='Wait.', details='x'))


class TestQuotas(cloud.CommandTest):

    def test_limits_and_use(self):
        self.conf.set_override('version_policy_count_total', 7, 'quota')
        rows = self.listed(quotas.ListQuotas)
        self.assertIn({'Resource': 'version_policy_count_total',
                       'Limit': 7, 'In Use': 0}, rows)
        self.assertEqual(5, len(rows))

    def project(self, *words, user='admin'):
        """The path of the request for the quotas of a project."""
        self.app.client_manager.diffcache = self.connect(user)
        self.listed(quotas.ListQuotas, '--project', *words)
        return self.wire.sent[-1].path_url

    def test_of_another_project(self):
        found = {'other': base.OTHER_PROJECT}

        def find_project(name, ignore_missing):
            if name not in found:
                raise sdk_exceptions.NotFoundException(f'No Project: {name}')
            return types.SimpleNamespace(id=found[name])
        identity = types.SimpleNamespace(find_project=find_project)
        self.app.client_manager.sdk_connection.identity = identity
        expected = f'/v1/limits?project_id={base.OTHER_PROJECT}'
        self.assertEqual(expected, self.project('other'))
        self.assertRaises(sdk_exceptions.NotFoundException, self.project,
                          'none')
        # Users who may not list projects give the ID.
        self.patch(identity, 'find_project', forbidden)
        self.assertEqual(expected, self.project(base.OTHER_PROJECT))
        self.assertRaises(sdk_exceptions.ForbiddenException, self.project,
                          base.OTHER_PROJECT, user='member')


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
                retry_at=objects_base.now())])
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
            objects_base.now())
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
        when = objects_base.now()
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
                           'templates')
        self.assertEqual([['t1']], [row['Images'] for row in rows])

    def test_objects_of_a_site(self):
        rows = self.listed(hosts.ListHostObjects, '--site', 'edge', '--kind',
                           'templates')
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


class TestObjects(cloud.CommandTest):

    def test_list_and_show(self):
        rows = self.listed(cached_images.ListImages, '--family', 't1')
        self.assertEqual(['t2'], [row['ID'] for row in rows])
        shown = self.shown(cached_images.ShowImage, 't1')
        self.assertEqual((1, database.content(1)),
                         (shown['members'], shown['content']))
        [row] = self.listed(cached_images.ListLocations, 't1')
        self.assertEqual('h1', row['Host'])

    def test_lookups_of_all_hosts(self):
        rows = self.listed(cached_images.ListLookups, 't2', '--site', 'edge')
        self.assertEqual([('h1', 'build'), ('h2', 'build')],
                         [(row['Host'], row['Way']) for row in rows])
        [row] = self.listed(cached_images.ListLookups, 't1', '--limit', '1')
        self.assertEqual((0, 0, None), (row['WAN'], row['LAN'],
                                        row['Lazy Boot Waits (s)']))

    def test_image_that_glance_has_no_more(self):
        command = self.command(cached_images.ShowImage)
        missing = '00000000-0000-4000-8000-000000000000'
        self.app.client_manager.sdk_connection.image = None
        self.assertEqual(missing, command.known_image_id(missing))

    def test_patches(self):
        [row] = self.listed(cached_images.ListPatches, '--base', 't1')
        self.assertEqual(database.patch(1, 2).id, row['ID'])

    def test_patches_of_several_images(self):
        for number in (1, 3):
            self.database.write(catalogue.put_patch,
                                database.patch(2, number), objects_base.now())
        for words, targets in (
                (('--target', 't1', '--target', 't2'), (1, 2)),
                (('--target', 't1', '--target', 't2', '--base', 't1'), (2,)),
                (('--base', 't3', '--base', 't2', '--limit', '1'), (1,))):
            self.assertEqual(
                {database.content(number) for number in targets},
                {row['Target'] for row in self.listed(
                    cached_images.ListPatches, *words)})

    def test_pairs(self):
        [row] = self.listed(cached_images.ListPairs, '--base', 't1', '--long')
        self.assertEqual((database.content(2), 'made', 0),
                         (row['Target'], row['State'], row['Attempts']))
        self.assertEqual([], self.listed(cached_images.ListPairs, '--state',
                                         'declined'))


class TestPlans(cloud.CommandTest):

    def create(self):
        return self.shown(plans.CreatePlan, 'edge', '--wait')

    def test_create_apply_explain(self):
        plan = self.create()
        self.assertEqual(('proposed', 'seconds'),
                         (plan['state'], plan['objective']))
        self.assertIsNotNone(plan['moves_over_wan'])
        self.assertEqual('current',
                         self.shown(plans.ApplyPlan, plan['id'])['state'])
        # By the name of its site from now on.
        reasons = self.listed(plans.ExplainPlan, 'edge', '--host', 'h1')
        self.assertEqual({'h1'}, {row['Host'] for row in reasons})
        items = self.listed(plans.ListItems, 'edge')
        self.assertLessEqual({row['Host'] for row in items}, {'h1', 'h2'})
        [row] = self.listed(plans.ListPlans, '--state', 'current')
        self.assertEqual(plan['id'], row['ID'])

    def test_cancel(self):
        plan = self.create()
        self.take(plans.CancelPlan, plan['id'])
        self.assertEqual('cancelled',
                         self.shown(plans.ShowPlan, plan['id'])['state'])

    def test_failure_is_an_error(self):
        database.silence(self.database, 'h1', 'h2')
        error = self.assertRaises(exceptions.CommandError, self.create)
        self.assertIn('no living compute host', str(error))

    def test_graph(self):
        plan, path = self.create(), self.directory / 'plan.png'
        self.take(plans.ShowPlan, plan['id'], '--graph', str(path))
        self.assertEqual(PNG, path.read_bytes()[:len(PNG)])
        self.assertEqual([path], list(self.directory.glob('plan*')))

    def test_graph_that_cannot_be_written(self):
        plan = self.create()
        error = self.assertRaises(
            exceptions.CommandError, self.take, plans.ShowPlan, plan['id'],
            '--graph', str(self.directory / 'none' / 'plan.png'))
        self.assertIn('/none/plan.png: ', str(error))
        self.assertRaises(
            SystemExit, self.take, plans.ShowPlan, plan['id'], '--graph',
            str(self.directory / 'plan.cow'))
        self.assertFalse(list(pathlib.Path(self.directory).glob('plan*')))

    def test_what_if_nothing_changes(self):
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  plans.WhatIf, 'edge')
        self.assertIn('--add-hosts 1', str(error))

    def test_what_if(self):
        shown = self.shown(plans.WhatIf, 'edge', '--repository-rate', '1000')
        self.assertGreater(shown['saving'], 0)
        self.assertEqual('seconds', shown['objective'])
        lean = self.shown(plans.WhatIf, 'edge', '--repository-rate', '1000',
                          '--objective', 'wan_bytes')
        self.assertEqual('wan_bytes', lean['objective'])
        self.assertLessEqual(lean['wan_per_request_after'],
                             1.0001 * shown['wan_per_request_after'])

    def test_what_if_with_units(self):
        shown = self.shown(plans.WhatIf, 'edge', '--add-capacity=-1TB')
        self.assertLess(shown['saving'], 0)
        self.assertRaises(SystemExit, self.take, plans.WhatIf, 'edge',
                          '--add-capacity', '1XB')

    def test_the_guide_shows_the_fields(self):
        names, _ = self.take(plans.CreatePlan, 'edge')
        pages.assert_are_fields(self, pages.CLIENT, 'plan create site', names)
        names, _ = self.take(plans.WhatIf, 'edge', '--repository-rate', '9')
        pages.assert_are_fields(self, pages.CLIENT, 'plan what-if', names)

    def test_solver_that_is_none(self):
        error = self.assertRaises(
            sdk_exceptions.BadRequestException, self.take, plans.CreatePlan,
            'edge', '--solver', 'oracle')
        self.assertIn("'oracle' is not installed; choose from", str(error))
        self.assertNotIn('Traceback', str(error))


class TestPrecache(cloud.CommandTest):

    def create(self, *words):
        return self.shown(precache.CreateJob, 't1', '--host', 'h1', *words)

    def test_create_list_show(self):
        job = self.create('--pinned', '--rate', '2MB', '--lifetime', '7d',
                          '--priority', '80', '--name', 'Monday')
        self.assertEqual((True, 2_000_000, 80, 'Monday'), (
            job['pinned'], job['rate'], job['priority'], job['name']))
        self.assertTrue(job['expires_at'].endswith('Z'))
        [row] = self.listed(precache.ListJobs, '--state', 'running')
        self.assertEqual(job['id'], row['ID'])
        self.assertEqual(job['images'],
                         self.shown(precache.ShowJob, job['id'])['images'])

    def test_the_guide_shows_the_fields_of_a_job(self):
        names, _ = self.take(precache.ShowJob, self.create()['id'])
        pages.assert_are_fields(self, pages.CLIENT, 'precache show', names)

    def test_boot_sets(self):
        job = self.create('--boot-set')
        self.assertIs(True, job['boot_set'])
        self.assertIs(False, self.create()['boot_set'])

    def test_change_and_cancel(self):
        job = self.create()
        self.take(precache.SetJob, job['id'], '--priority', '5',
                  '--unpinned')
        self.assertEqual(
            5, self.shown(precache.ShowJob, job['id'])['priority'])
        self.take(precache.CancelJob, job['id'])
        self.assertEqual(
            'cancelled', self.shown(precache.ShowJob, job['id'])['state'])
        self.assertRaises(exceptions.CommandError, self.take,
                          precache.SetJob, job['id'])

    def test_a_wait_that_is_interrupted_tells_what_goes_on(self):
        stream = io.StringIO()
        self.patch(sys, 'stderr', stream)

        def interrupt(_bar, _job):
            raise KeyboardInterrupt

        self.patch(waiting.Bar, 'job', interrupt)
        command = self.command(precache.CreateJob)
        arguments = command.get_parser('test').parse_args(
            ['t1', '--host', 'h1', '--wait'])
        self.assertRaises(KeyboardInterrupt, command.run, arguments)
        [job] = self.listed(precache.ListJobs)
        self.assertIn(job['ID'], stream.getvalue())
        self.assertEqual('running', job['State'])

    def test_retry_and_wait(self):
        job = self.create()
        self.conductor._precacher.round()
        shown = self.shown(precache.RetryJob, job['id'], '--wait')
        self.assertEqual('ready', shown['state'])
        [row] = self.listed(precache.ListTargets, job['id'], '--host', 'h1')
        self.assertEqual('local', row['Way'])

    def test_wait_for_what_cannot_be(self):
        job = self.shown(precache.CreateJob, 't1', '--host', 'h9')
        self.conductor._precacher.round()
        error = self.assertRaises(
            exceptions.CommandError, self.take, precache.RetryJob, job['id'],
            '--wait')
        self.assertIn('1 of 1 targets', str(error))

    def test_wait_for_what_has_no_target(self):
        job = self.shown(precache.CreateJob, 't1', '--aggregate', 'none')
        self.conductor._precacher.round()
        error = self.assertRaises(
            exceptions.CommandError, self.take, precache.RetryJob, job['id'],
            '--wait')
        self.assertIn('has nothing to do yet: [nova] has no auth_type',
                      str(error))

    def test_the_same_said_twice(self):
        job = self.shown(precache.CreateJob, 't1', 't1', '--host', 'h1',
                         '--host', 'h1')
        self.assertEqual((['t1'], ['h1']), (job['images'], job['hosts']))

    def test_progress_is_told_once(self):
        [row] = self.create() and self.listed(precache.ListJobs)
        self.assertEqual(({'targets', 'ready', 'failed'},
                          {'bytes', 'bytes_done'}),
                         (set(row['Ready']), set(row['Done'])))

    def test_image_that_is_none(self):
        error = self.assertRaises(
            sdk_exceptions.NotFoundException, self.take, precache.CreateJob,
            'none', '--host', 'h1')
        self.assertIn('"none"; see "openstack image list"', str(error))

    def test_what_and_where_have_to_be_said(self):
        for words, said in ((('t1',), '--host'), (('--host', 'h1'),
                                                  '--family')):
            error = self.assertRaises(exceptions.CommandError, self.take,
                                      precache.CreateJob, *words)
            self.assertIn(said, str(error))

    def test_words_that_are_no_durations(self):
        for word in ('7', 'd', '1y', '-1d', '1.5h', '0s', '99999999w',
                     '9' * 30 + 'd'):
            self.assertRaises(SystemExit, self.create, '--lifetime', word)
        self.assertRaises(SystemExit, self.create, '--rate', 'fast')


class TestStatus(cloud.CommandTest):

    def test_a_site_on_one_screen(self):
        names, values = self.take(status.ShowStatus, 'edge', '--days', '1')
        found = dict(zip(names, values))
        text = found['requests'].human_readable()
        self.assertIn('3, 0 failed, mean', text)
        self.assertIn('build 100%', text)
        self.assertEqual({'bytes': 15, 'whole_bytes': 3 * 10 ** 8},
                         found['wan'].machine_readable())
        self.assertIn('100% saved', found['wan'].human_readable())
        self.assertEqual(0, found['running_jobs'])

    def test_problems_name_what_they_are_about(self):
        self.database.write(pending_images.put, 'hub', [
            server_objects.PendingImage(
                image_id='t9', state='refused', attempts=1,
                error='It has a backing file')])
        self.database.write(host_rows.expire_hosts, objects_base.now())
        found = self.shown(status.ShowStatus, 'edge')['problems']
        for text in ('Host h1 is dead', 'Host h2 is dead',
                     'Repository hub is dead', 'no plan yet',
                     'could not add image t9 (refused): It has a backing'
                     ' file'):
            self.assertTrue(any(text in line for line in found),
                            f'{text}: {found}')

    def test_without_requests(self):
        self.assertEqual('none', status.Requests(
            status._count([])).human_readable())
        self.assertEqual('0 B for requests', status.Saved(
            {'bytes': 0, 'whole_bytes': 0}).human_readable())
        self.assertEqual('none', status.Lines([]).human_readable())

    def test_more_than_whole_images_is_said_so(self):
        found = status.Saved({'bytes': 120, 'whole_bytes': 100})
        self.assertEqual('120 B for requests, whole images 100 B: 20% more',
                         found.human_readable())


class TestSites(cloud.CommandTest):

    def test_list_report_forecast(self):
        rows = self.listed(sites.ListSites)
        self.assertEqual(['centre', 'edge'], [row['Name'] for row in rows])
        report = self.shown(sites.ShowReport, 'edge', '--days', '1')
        self.assertEqual(15, report['wan_bytes'])
        rows = self.listed(sites.ListForecast, 'edge', '--limit', '1')
        self.assertEqual([['t2']], [row['Images'] for row in rows])

    def test_the_only_site_need_not_be_named(self):
        # The repository's site has no compute host.
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            report = self.shown(sites.ShowReport)
            self.listed(sites.ListForecast)
            plan = self.shown(plans.CreatePlan, '--wait')
            self.take(plans.ApplyPlan, plan['id'])
            shown = self.shown(plans.ShowPlan)
        self.assertEqual('edge', report['site'])
        self.assertEqual((plan['id'], 'edge'), (shown['id'], shown['site']))
        self.assertEqual('Site: edge\n' * 4, err.getvalue())

    def test_one_of_several_sites_has_to_be_named(self):
        for number, site in enumerate(('north', 'edge', 'south')):
            self.database.write(host_rows.put_host, database.host(
                f'host-{number}', site=site), objects_base.now())
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  sites.ShowReport)
        self.assertIn('edge, north, south', str(error))
        self.assertEqual('north',
                         self.shown(sites.ShowReport, 'north')['site'])

    def test_a_site_without_a_plan(self):
        for words in ((), ('edge',), ('nowhere',)):
            error = self.assertRaises(exceptions.CommandError, self.take,
                                      plans.ShowPlan, *words)
            self.assertIn('neither the ID of a plan nor a site with a current'
                          ' plan', str(error))

    def test_no_site(self):
        self.database.write(host_rows.remove_host, 'h1')
        self.database.write(host_rows.remove_host, 'h2')
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  sites.ShowReport)
        self.assertIn('No compute host has reported yet', str(error))

    def test_requests(self):
        self.assertEqual(3, len(self.listed(
            sites.ListRequests, '--image', 't2', '--way', 'build')))
        self.assertEqual([], self.listed(sites.ListRequests, '--failed'))
        # As known from notifications.
        for way in (history.BOOT, history.DOWNLOAD):
            self.assertEqual([], self.listed(
                sites.ListRequests, '--way', way))

    def test_lookup(self):
        ways = self.listed(lookups.Lookup, 'h1', 't2', '--limit', '2')
        self.assertEqual((2, 'build'), (len(ways), ways[0]['Way']))

    def test_lookup_of_what_a_lazy_boot_waits_for(self):
        group, when = 2 ** 20, objects_base.now()
        self.database.write(profiles.report,
                            profiles.Subject('t1', '', 'a'), 'h2', (1, 1),
                            [[0, 1, 10]], when)
        self.database.write(boot_sets.exchange, 'h2', [], None, when)
        size = self.cloud.get_template('t1').size
        way = self.listed(lookups.Lookup, 'h2', 't1')[-1]
        self.assertEqual(('lazy boot', min(size, group), 0),
                         (way['Way'], way['WAN'], way['LAN']))
        self.assertIn('of which the host has 0 B', way['Detail'])
