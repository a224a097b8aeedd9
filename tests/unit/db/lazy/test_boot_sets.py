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
"""Boot sets: what hosts are to have, and what they report."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import profiles as profile_table
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.prefetch import profiles
from tests.unit.db import database
from tests.unit.db import test_engine

ONE, TWO = database.content(1), database.content(2)
ROWS = {0: (3, 30), 9: (2, 40)}


class BootSetsTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        for name in ('h1', 'h2'):
            self.write(host_rows.put_host, database.host(name), database.at(0))

    def want(self, *wanted, hosts=('h1', 'h2'), when=1):
        database.put_wanted(self.database, hosts, wanted, database.at(when))

    def wanted(self, host='h1', content_id=ONE, rows=None, **values):
        rows = ROWS if rows is None else rows
        return boot_sets.PlannedSet(**{
            'host': host, 'content_id': content_id,
            'image': boot_sets.BootReads('t1', len(rows) * profiles.CHUNK,
                                         rows),
            'requests': 2.0, 'wait_seconds': 3.0, 'from_peer': False,
            'saved_seconds': 6.0, 'pinned': False, **values})

    def exchange(self, *reports, host='h1', known=None, when=2):
        return self.write(boot_sets.exchange, host, [
            boot_sets.HeldSet(*each) for each in reports], known,
            database.at(when))

    def rows(self):
        return {key: (row.wanted, row.state, row.held_bytes) for key, row
                in self.read(boot_sets.by_object).items()}


class TestImages(BootSetsTest):

    def add_image(self, number, **values):
        self.write(catalogue.put_image, database.image(
            number, size=20 * profiles.CHUNK + 5, **values),
            database.at(0), lambda *_: False)

    def add_profile(self, image, label, rows, project=''):
        self.write(profile_table.report,
                   profile_table.Subject(image, project, label), 'h1',
                   (1, 1), rows, database.at(1))

    def images(self, threshold=0.1):
        return self.read(boot_sets.of_images, threshold)

    def test_all_that_boots_read_often_enough_is_summed(self):
        self.add_image(1)
        self.add_image(2)
        self.add_profile('t1', 'a', [[0, 10, 10], [20, 9, 9]])
        self.add_profile('t1', 'b', [[0, 10, 30], [4, 1, 5]])
        found = self.images()
        self.assertEqual({ONE: boot_sets.BootReads(
            't1', 4 * profiles.CHUNK + 5, {0: (20, 40), 20: (9, 9)})}, found)

    def test_the_threshold_says_what_is_read_often_enough(self):
        self.add_image(1)
        self.add_profile('t1', '', [[0, 10, 10], [9, 5, 9], [20, 2, 9]])
        for threshold, chunks in ((0.2, [0, 9, 20]), (0.5, [0, 9]),
                                  (3, [0, 9]), (6, [0])):
            found = self.images(threshold)[ONE]
            self.assertEqual(chunks, list(found.rows), threshold)
            self.assertEqual(found, self.read(
                boot_sets.of_content, ONE, threshold))

    def test_too_few_instances_tell_nothing_of_boots(self):
        self.add_image(1)
        self.add_profile('t1', '', [[0, 10, 10]])
        self.assertEqual({}, self.images(11))
        self.assertEqual({}, self.read(
            boot_sets.reads, 'edge', boot_sets.BootContent(ONE, 100, 11),
            database.at(1)))

    def test_images_of_one_content_have_one_set(self):
        self.add_image(1)
        self.add_image(2, content_id=ONE)
        self.add_profile('t1', '', [[0, 1, 10]])
        self.add_profile('t2', '', [[0, 1, 10], [1, 1, 1]])
        [(content_id, found)] = self.images().items()
        self.assertEqual((ONE, 't1', {0: (2, 20), 1: (1, 1)}),
                         (content_id, found.image_id, found.rows))

    def test_what_projects_read_of_public_images_is_told_to_nobody(self):
        self.add_image(1)
        self.add_profile('t1', 'a', [[0, 1, 10]], 'p')
        self.assertEqual({}, self.images())
        self.add_profile('t1', 'a', [[1, 1, 10]])
        self.assertEqual({1: (1, 10)},
                         self.images()[ONE].rows)

    def test_what_one_project_reads_of_its_images(self):
        self.add_image(1, visibility='private', owner='p')
        self.add_profile('t1', 'a', [[0, 1, 10]], 'p')
        self.add_profile('t1', 'b', [[0, 1, 10]], 'p')
        self.assertEqual({0: (2, 20)},
                         self.images()[ONE].rows)
        # Another project has an image of the same content.
        self.add_image(2, content_id=ONE, visibility='private', owner='q')
        self.assertEqual({}, self.images())

    def test_a_private_copy_of_a_public_image(self):
        self.add_image(1)
        self.add_image(2, content_id=ONE, visibility='private', owner='q')
        self.add_profile('t2', 'a', [[1, 1, 10]], 'q')
        self.assertEqual({}, self.images())

    def test_withdrawn_images_have_none(self):
        self.add_image(1, status=objects.DEACTIVATED)
        self.add_profile('t1', '', [[0, 1, 10]])
        self.assertEqual({}, self.images())


class TestReads(BootSetsTest):
    """What boots read of an image, and what hosts lack of it."""

    GROUP = profiles.GROUP_CHUNKS * profiles.CHUNK
    SIZE = 10 * GROUP

    def setUp(self):
        super().setUp()
        self.write(catalogue.put_image, database.image(
            1, size=self.SIZE), database.at(0), lambda *_: False)
        self.write(profile_table.report,
                   profile_table.Subject('t1', '', 'a'), 'h1', (1, 1),
                   [[0, 1, 10], [9, 1, 20]], database.at(1))
        self.exchange(host='h1')
        self.exchange(host='h2')
        rows = {0: (1, 10), 9: (1, 20)}
        self.want(self.wanted(rows=rows, image=boot_sets.BootReads(
            't1', 2 * self.GROUP, rows)))

    def reads(self, when=3, site='edge', content_id=ONE):
        """Absent and at peers, in groups, by host."""
        content = boot_sets.BootContent(content_id, self.SIZE, 0.1)
        found = self.read(boot_sets.reads, site, content, database.at(when))
        return {host: (each.absent / self.GROUP, each.at_peers / self.GROUP)
                for host, each in found.items()}

    def test_a_planned_set_is_not_there_yet(self):
        self.assertEqual({'h1': (2, 0), 'h2': (2, 0)}, self.reads())

    def test_a_set_that_is_there_and_one_that_arrives(self):
        self.exchange((ONE, self.GROUP, boot_set.FETCHING))
        self.assertEqual({'h1': (1, 0), 'h2': (2, 0)}, self.reads())
        # What was sent with the chunks counts, too.
        self.exchange((ONE, 5 * self.GROUP, boot_set.READY))
        self.assertEqual({'h1': (0, 0), 'h2': (2, 2)}, self.reads())

    def test_what_the_profile_has_beyond_the_set(self):
        self.exchange((ONE, 2 * self.GROUP, boot_set.READY))
        self.write(profile_table.report,
                   profile_table.Subject('t1', '', 'b'), 'h1', (1, 1),
                   [[20, 1, 10]], database.at(1))
        self.assertEqual({'h1': (1, 0), 'h2': (3, 2)}, self.reads())

    def test_a_set_that_no_plan_described_counts_for_nothing(self):
        self.exchange((ONE, self.GROUP, boot_set.READY), host='h2')
        self.assertEqual({'h1': (2, 0), 'h2': (2, 0)}, self.reads())

    def test_hosts_that_serve_nothing_while_it_arrives(self):
        self.write(host_rows.put_host, database.host('h3'), database.at(0))
        self.assertEqual({'h1', 'h2'}, self.reads().keys())
        self.assertEqual({}, self.reads(site='elsewhere'))

    def test_an_image_that_no_server_has_read(self):
        self.assertEqual({}, self.reads(content_id=TWO))


class TestTwoWriters(BootSetsTest):
    """Two conductors choose the sets of a site."""

    def choose(self, basis, content_id):
        self.write(boot_sets.put_wanted, basis, ('h1', 'h2'),
                   [self.wanted(content_id=content_id)], database.at(1))

    def test_sets_of_an_older_plan_do_not_replace_those_of_a_newer_one(self):
        old = plans.Basis(database.SITE,
                          self.read(plans.generation, database.SITE))
        plan = self.write(plans.put_plan, test_engine.new_plan(1),
                          old.generation)
        self.choose(plans.Basis(database.SITE, plan.generation), ONE)
        error = self.assertRaises(exceptions.Busy, self.choose, old, TWO)
        self.assertIn(database.SITE, str(error))
        self.assertEqual([('h1', ONE)], list(self.rows()))

    def test_sets_of_one_plan_may_be_chosen_again(self):
        basis = plans.Basis(database.SITE, 0)
        self.choose(basis, ONE)
        self.choose(basis, TWO)
        self.assertEqual([('h1', TWO)], list(self.rows()))


class TestExchange(BootSetsTest):

    def test_a_host_learns_its_sets_once(self):
        first = self.exchange()
        self.assertEqual([], first['sets'])
        self.assertIsNone(self.exchange(known=first['generation']))
        self.want(self.wanted(), self.wanted('h2', TWO))
        second = self.exchange(known=first['generation'])
        self.assertEqual([{
            'content_id': ONE, 'image_id': 't1',
            'bytes': 2 * profiles.CHUNK,
            'rows': [[0, 3, 30], [9, 2, 40]]}], second['sets'])
        self.assertGreater(second['generation'], first['generation'])
        self.assertIsNone(self.exchange(known=second['generation']))
        # The same again is no news.
        self.want(self.wanted(saved_seconds=7.0), when=9)
        self.assertIsNone(self.exchange(known=second['generation']))

    def test_a_first_report_makes_the_site_due(self):
        self.write(plans.set_planned, database.SITE, database.at(1))
        self.exchange()
        self.assertEqual([database.SITE], self.read(
            plans.due_sites, database.at(0)))
        self.write(plans.set_planned, database.SITE, database.at(1))
        self.exchange()
        self.assertEqual([], self.read(plans.due_sites, database.at(0)))

    def test_reports_replace_each_other(self):
        self.want(self.wanted())
        self.assertEqual({('h1', ONE): (True, 'waiting', 0)}, self.rows())
        self.exchange((ONE, 5, boot_set.FETCHING),
                      (TWO, 7, boot_set.USED))
        self.assertEqual({('h1', ONE): (True, 'fetching', 5),
                          ('h1', TWO): (False, 'used', 7)}, self.rows())
        self.exchange((ONE, 0, boot_set.FAILED, 'The disk is full.'))
        self.assertEqual({('h1', ONE): (True, 'failed', 0)}, self.rows())

    def test_what_is_no_longer_wanted_goes_when_the_host_has_dropped_it(self):
        self.exchange()
        self.want(self.wanted())
        self.exchange((ONE, 5, boot_set.READY))
        self.want()
        self.assertEqual({('h1', ONE): (False, 'ready', 5)}, self.rows())
        self.assertEqual([], self.exchange(
            (ONE, 5, boot_set.READY))['sets'])
        self.exchange()
        self.assertEqual({}, self.rows())

    def test_hosts_that_are_not_planned_keep_theirs(self):
        self.want(self.wanted(), self.wanted('h2'))
        self.want(hosts=['h1'])
        self.assertEqual({('h2', ONE)}, set(self.rows()))

    def test_little_news_of_boots_replaces_no_set(self):
        many = {chunk: (1, 1) for chunk in range(20)}
        self.exchange()
        self.want(self.wanted(rows=many))
        known = self.exchange()['generation']
        self.want(self.wanted(rows={**many, 50: (1, 1)}), when=3)
        self.assertIsNone(self.exchange(known=known))
        self.want(self.wanted(rows=ROWS), when=4)
        self.assertEqual(2 * profiles.CHUNK,
                         self.exchange(known=known)['sets'][0]['bytes'])

    def test_where_sets_are_is_known_while_hosts_report(self):
        self.exchange((ONE, 5, boot_set.READY))
        found = self.read(boot_sets.standing, database.SITE, database.at(60))
        self.assertEqual(({'h1'}, {('h1', ONE)}), found)
        later = self.read(boot_sets.standing, database.SITE,
                          database.at(7200))
        self.assertEqual((frozenset(), frozenset()), later)
        self.assertEqual({'h1'}, self.read(boot_sets.serving,
                                           database.at(60)))
        self.assertEqual(frozenset(), self.read(boot_sets.serving,
                                                database.at(7200)))

    def test_a_host_that_is_removed_takes_its_sets_along(self):
        self.want(self.wanted())
        self.exchange((ONE, 5, boot_set.READY))
        self.write(host_rows.remove_host, 'h1')
        self.assertEqual({}, self.rows())
        self.assertRaises(exceptions.NotFound, self.exchange)
        self.assertEqual(frozenset(), self.read(boot_sets.serving,
                                                database.at(2)))
