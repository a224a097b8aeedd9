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
"""Projects take turns, each with a share."""

import types
import uuid

from diffcache_openstack.conductor.versions import project_shares
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from tests import base


def task(project, kind=versions.EXPORT, server=None):
    return objects.VersionTask(id=str(uuid.uuid4()), kind=kind,
                               project_id=project, server_id=server)


class TestTurns(base.TestCase):

    def test_long_queue_of_a_project_delays_no_other(self):
        tasks = [task('a') for _number in range(5)] + [task('b'), task('c')]
        found = project_shares.Turns().order(tasks)
        self.assertEqual(list('abcaaaa'), [each.project_id for each in found])
        self.assertEqual([each for each in tasks if each.project_id == 'a'],
                         [each for each in found if each.project_id == 'a'])

    def test_task_that_was_postponed_is_behind_the_others(self):
        turns, tasks = project_shares.Turns(), [task('a'), task('a')]
        turns.attempt(tasks[0])
        self.assertEqual(tasks[::-1], turns.order(tasks))
        turns.attempt(tasks[1])
        self.assertEqual(tasks, turns.order(tasks))

    def test_tasks_that_ended_are_forgotten(self):
        turns, ended = project_shares.Turns(), task('a')
        turns.attempt(ended)
        turns.order([])
        self.assertEqual({}, turns._attempts)


class TestShares(base.TestCase):

    def shares(self, *running, hooked=(), limit=4):
        return project_shares.Shares(running, set(hooked), limit)

    def test_running_tasks_and_attempts_count(self):
        shares = self.shares(task('a'), limit=2)
        self.assertTrue(shares.admits(task('a')))
        shares.attempt(task('a'))
        self.assertFalse(shares.admits(task('a')))
        self.assertTrue(shares.admits(task('b')))

    def test_writers_of_other_servers_and_a_prune_run_side_by_side(self):
        shares = self.shares(task('a', versions.SAVE, 's1'))
        self.assertFalse(shares.admits(task('a', versions.SAVE, 's1')))
        self.assertFalse(shares.admits(task('a', versions.RESTORE, 's1')))
        self.assertTrue(shares.admits(task('b', versions.SAVE, 's1')))
        for other in (task('a', versions.RESTORE, 's2'),
                      task('a', versions.PRUNE)):
            self.assertTrue(shares.admits(other))
            shares.start(other)
            self.assertFalse(shares.admits(other))

    def test_a_version_is_saved_before_it_is_deleted(self):
        save = task('a', versions.SAVE)
        save.volume_id = save.version_id = str(uuid.uuid4())
        forget = task('a', versions.FORGET)
        forget.version_id = save.version_id
        self.assertFalse(self.shares(save).admits(forget))

    def test_what_replaces_keys_has_its_turn_and_runs_alone(self):
        save = task('a', versions.SAVE, 's1')
        shares = self.shares(save)
        self.assertFalse(shares.admits(task('a', versions.REKEY)))
        # Else there might always be another one.
        self.assertFalse(shares.admits(task('a', versions.SAVE, 's2')))
        self.assertTrue(shares.admits(task('a')))
        self.assertTrue(shares.admits(task('b', versions.SAVE, 's2')))
        shares = self.shares(task('a', versions.REKEY))
        self.assertFalse(shares.admits(save))

    def test_beside_an_inbox_deletions_and_prunes_run_alone(self):
        def conf(hosts):
            return types.SimpleNamespace(versions=types.SimpleNamespace(
                maintenance_hosts=hosts))

        save = task('a', versions.SAVE, 's1')
        for hosts, is_beside in (([], True), (['keeper'], False)):
            alone = project_shares.alone(conf(hosts))
            for kind in (versions.FORGET, versions.PRUNE):
                shares = project_shares.Shares([save], set(), 4, alone)
                self.assertEqual(is_beside, shares.admits(task('a', kind)))
                # Hooks and backups of volumes ask so.
                self.assertEqual(not is_beside, project_shares.excludes(
                    task('a', kind), save, alone))

    def test_hook_that_waits_is_next(self):
        shares = self.shares(hooked=[('a', 's1'), ('a', '')])
        self.assertFalse(shares.admits(task('a', versions.SAVE, 's1')))
        self.assertTrue(shares.admits(task('a', versions.SAVE, 's2')))
        self.assertTrue(shares.admits(task('a')))
        self.assertTrue(shares.admits(task('b', versions.SAVE, 's1')))
        self.assertFalse(shares.admits(task('a', versions.ACCEPT)))
