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
"""The options that existing commands have more."""

import argparse
import datetime
import threading
import types
from unittest import mock

from openstackclient.compute.v2 import server
from osc_lib import exceptions as osc_exceptions

from diffcache_openstack.client.osc import hooks
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack import objects
from tests.unit.client import cloud
from tests.unit.db import database


class HookTest(cloud.CommandTest):

    def hook(self, kind, *words, **defaults):
        """A hook, and the arguments that it made of some words."""
        hook = kind(types.SimpleNamespace(app=self.app))
        parser = argparse.ArgumentParser()
        hook.get_parser(parser)
        parser.set_defaults(**defaults)
        return hook, hook.before(parser.parse_args(list(words)))


class TestImageCreate(HookTest):

    def test_base_image(self):
        _hook, arguments = self.hook(
            hooks.ImageCreate, '--base-image', 't1',
            properties={'colour': 'red'})
        self.assertEqual(
            {'colour': 'red', 'diffcache_base_image': 't1'},
            arguments.properties)

    def test_without(self):
        _hook, arguments = self.hook(hooks.ImageCreate, properties=None)
        self.assertIsNone(arguments.properties)

    def test_base_that_is_none(self):
        self.assertRaises(osc_exceptions.CommandError, self.hook,
                          hooks.ImageCreate, '--base-image', 'none',
                          properties=None)


class TestBootMode(HookTest):

    def test_is_a_property_of_each(self):
        for kind, key in ((hooks.FlavorCreate, 'diffcache:boot_mode'),
                          (hooks.FlavorSet, 'diffcache:boot_mode'),
                          (hooks.ServerCreate, 'diffcache:boot_mode'),
                          (hooks.ImageCreate, 'diffcache_boot_mode'),
                          (hooks.ImageSet, 'diffcache_boot_mode')):
            for given in None, {'colour': 'red'}:
                _hook, arguments = self.hook(kind, '--boot-mode', 'lazy',
                                             properties=given, image=None,
                                             hints=None)
                self.assertEqual({**(given or {}), key: 'lazy'},
                                 arguments.properties, kind)

    def test_without(self):
        _hook, arguments = self.hook(hooks.ImageSet, properties=None)
        self.assertIsNone(arguments.properties)

    def test_another_mode_is_refused(self):
        self.assertRaises(SystemExit, self.hook, hooks.FlavorSet,
                          '--boot-mode', 'hasty', properties=None)


class TestServerCreate(HookTest):

    def test_prefer_cached(self):
        _hook, arguments = self.hook(
            hooks.ServerCreate, '--prefer-cached', hints={'group': ['g']})
        self.assertEqual(
            {'group': ['g'], 'diffcache:prefer_cached': ['true']},
            arguments.hints)

    def test_without(self):
        _hook, arguments = self.hook(hooks.ServerCreate, hints={})
        self.assertEqual({}, arguments.hints)

    def asked(self, *words):
        """What "openstack server create" asks of Nova, which is none."""
        self.patch(server.sdk_utils, 'supports_microversion',
                   lambda adapter, version: True)
        self.patch(server, '_prep_server_detail',
                   lambda *_details: {'id': 's1'})
        app = mock.MagicMock()
        command = server.CreateServer(app, None, cmd_name=None)
        hook = hooks.ServerCreate(command)
        parser = hook.get_parser(command.get_parser('server create'))
        command.take_action(hook.before(parser.parse_args([
            '--image', 'i1', '--flavor', 'tiny', '--nic', 'none', *words,
            'web'])))
        [call] = app.client_manager.compute.create_server.call_args_list
        return call.kwargs

    def test_scheduler_is_told(self):
        self.assertEqual(
            {'group': 'g', 'diffcache:prefer_cached': 'true'},
            self.asked('--hint', 'group=g', '--prefer-cached')[
                'scheduler_hints'])

    def test_the_label_of_the_profile_is_metadata(self):
        self.assertEqual({'diffcache:boot_mode': 'lazy',
                          'diffcache:profile': 'web servers'},
                         self.asked('--boot-mode', 'lazy', '--profile',
                                    'web servers')['metadata'])

    def test_when_the_image_is_to_be_whole_is_metadata(self):
        self.assertEqual(
            {'diffcache:hydrate_by': '600',
             'diffcache:hydrate_rate': '2000000'},
            self.asked('--hydrate-by', '600', '--hydrate-rate', '2MB')[
                'metadata'])

    def test_the_boot_mode_is_metadata(self):
        self.assertEqual({'a': 'b', 'diffcache:boot_mode': 'lazy'},
                         self.asked('--property', 'a=b', '--boot-mode',
                                    'lazy')['metadata'])

    def test_the_scheduler_gets_the_boot_mode_as_a_hint(self):
        self.assertEqual(
            {'group': 'g', 'diffcache:boot_mode': 'lazy'},
            self.asked('--hint', 'group=g', '--boot-mode', 'lazy')[
                'scheduler_hints'])

    def test_scheduler_is_told_nothing_without_it(self):
        self.assertNotIn('diffcache:prefer_cached', self.asked().get(
            'scheduler_hints') or {})


class TestAggregateCacheImage(HookTest):

    def setUp(self):
        super().setUp()
        self.app.client_manager.compute = types.SimpleNamespace(
            find_aggregate=lambda name, ignore_missing: (
                types.SimpleNamespace(id=7, name=name, hosts=['h1'])))

    def run_after(self, *words):
        hook, arguments = self.hook(
            hooks.AggregateCacheImage, *words, aggregate='racks',
            image=['t1'])
        return hook.after(arguments, 0)

    def test_without_wait_nothing_is_done(self):
        self.assertEqual(0, self.run_after())
        self.assertEqual([], list(self.cloud.precache_jobs()))

    def test_wait_is_for_a_job(self):
        answered = threading.Event()
        self.addCleanup(answered.set)
        self.conductor._precacher._compute = types.SimpleNamespace(
            hosts=lambda aggregates, zones: answered.wait() and set())
        error = self.assertRaises(osc_exceptions.CommandError,
                                  self.run_after, '--wait', '--timeout', '0.1')
        self.assertIn('still running', str(error))
        [job] = self.cloud.precache_jobs()
        self.assertEqual((['7'], ['t1']), (job.aggregates, job.images))

    def lifetime(self, *words):
        """Return the lifetime of the job of ``--wait``, hours."""
        self.assertRaises(osc_exceptions.CommandError, self.run_after,
                          '--wait', '--timeout', '0.1', *words)
        [job] = self.cloud.precache_jobs()
        ends = datetime.datetime.fromisoformat(job.expires_at)
        return (ends - datetime.datetime.now(datetime.UTC)).total_seconds() \
            / 3600

    def test_the_job_ends_when_nova_would_forget_the_image(self):
        self.assertAlmostEqual(24, self.lifetime(), delta=0.1)

    def test_the_job_ends_when_the_user_says(self):
        self.assertAlmostEqual(2, self.lifetime('--lifetime', '2h'),
                               delta=0.1)

    def test_wait_ends_when_hosts_have_it(self):
        self.conductor._precacher._compute = types.SimpleNamespace(
            hosts=lambda aggregates, zones: {'h1'} if aggregates else set())
        self.write(held_rows.put_borrowed, 'h1', [objects.Holding(
            kind=objects.IMAGES, id=database.content(1), bytes=50)])
        self.assertEqual(0, self.run_after('--wait', '--timeout', '60'))
        [job] = self.cloud.precache_jobs()
        self.assertEqual('ready', job.state)

    def test_wait_is_for_novas_cache_too(self):
        self.conductor._precacher._compute = types.SimpleNamespace(
            hosts=lambda aggregates, zones: {'h1'} if aggregates else set())
        waited = []
        self.patch(self.cloud, 'wait_for_base_images',
                   lambda *words: waited.append(words[:2]))
        self.assertEqual(0, self.run_after('--wait', '--timeout', '60'))
        self.assertEqual([(['h1'], ['t1'])], waited)

    def test_what_nova_did_not_cache_is_named(self):
        self.conductor._precacher._compute = types.SimpleNamespace(
            hosts=lambda aggregates, zones: {'h1'} if aggregates else set())
        wait = self.cloud.wait_for_base_images
        self.patch(self.cloud, 'wait_for_base_images',
                   lambda hosts, images, _timeout: wait(hosts, images, 0.1))
        error = self.assertRaises(osc_exceptions.CommandError,
                                  self.run_after, '--wait', '--timeout', '60')
        self.assertIn('Nova has not cached image t1 on h1', str(error))

    def test_wait_for_an_image_that_cannot_be(self):
        self.conductor._precacher._compute = types.SimpleNamespace(
            hosts=lambda aggregates, zones: {'h9'} if aggregates else set())
        error = self.assertRaises(osc_exceptions.CommandError,
                                  self.run_after, '--wait')
        self.assertIn('1 of 1 targets', str(error))

    def test_command_that_failed(self):
        hook, arguments = self.hook(hooks.AggregateCacheImage, '--wait')
        self.assertEqual(1, hook.after(arguments, 1))
