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
"""Where the agent writes for others, and whose files it leaves alone."""

import os
import stat

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from tests import base
from tests.unit.agent.images.delivery import test_serving


class OutputsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.outputs = outputs.Outputs([str(self.directory / 'instances')])
        self.foreign = self.write_file('etc/shadow', b'secret')
        self.foreign.chmod(0o600)
        self.output = self.directory / 'instances' / 'disk'
        self.output.parent.mkdir()
        self.content = self.write_file('content', b'image')
        self.content.chmod(0o600)

    def deliver(self, durable=True):
        with outputs.unfinished(self.outputs.open(str(self.output))) as part:
            files.copy_to(self.content, part.fd)
            part.publish(durable)

    def names(self):
        return sorted(os.listdir(self.output.parent))

    def test_handed_over(self):
        for durable in (True, False):
            self.deliver(durable)
            self.assertEqual(b'image', self.output.read_bytes())
            self.assertEqual(0o644, stat.S_IMODE(self.output.stat().st_mode))
            self.assertEqual(['disk'], self.names())

    def test_taken(self):
        output = self.outputs.open(str(self.output))
        self.assertTrue(output.can_take(self.content))
        output.take(self.content, durable=True)
        self.assertEqual(b'image', self.output.read_bytes())
        self.assertEqual(0o644, stat.S_IMODE(self.output.stat().st_mode))
        self.assertFalse(self.content.exists())
        self.assertEqual(['disk'], self.names())

    def test_read_again_if_all_users_may(self):
        self.deliver()
        output = self.outputs.open(str(self.output))
        with open(output.open(), 'rb') as stream:
            self.assertEqual(b'image', stream.read())
        self.output.chmod(0o640)
        self.assertRaises(exceptions.InvalidInput, output.open)
        self.output.unlink()
        self.assertRaises(FileNotFoundError, output.open)
        os.symlink(self.content, self.output)
        for path in (self.output, self.foreign):
            self.assertRaises(exceptions.DiffCacheError,
                              self.outputs.find(path).open)

    def test_only_what_is_solely_ours_is_taken(self):
        for link in (os.symlink, os.link):
            name = self.directory / f'planted-{link.__name__}'
            link(self.foreign, name)
            self.assertRaises(
                directories.NotAFile,
                self.outputs.open(str(self.output)).take, name, True)
            self.assertEqual(0o600,
                             stat.S_IMODE(self.foreign.stat().st_mode))
            self.assertEqual([], self.names())

    def test_given_to_the_owner_of_the_directory(self):
        given = []
        self.patch(outputs.os, 'fchown',
                   lambda fd, *owner: given.append(owner))
        self.patch(directories.Directory, 'owner',
                   lambda _self: os.stat_result([0o755] + [7] * 9))
        self.deliver()
        self.assertEqual([(7, 7)], given)

    def test_stays_ours_without_the_right_to_give_it_away(self):
        def refuse(fd, uid, gid):
            raise PermissionError

        self.patch(outputs.os, 'fchown', refuse)
        self.patch(directories.Directory, 'owner',
                   lambda _self: os.stat_result([0o755] + [7] * 9))
        self.deliver()
        self.assertEqual(0o644, stat.S_IMODE(os.stat(self.output).st_mode))

    def test_unpublished_parts_are_removed(self):
        with outputs.unfinished(self.outputs.open(str(self.output))) as part:
            files.copy_to(self.content, part.fd)
            self.assertEqual(1, len(self.names()))
        self.assertEqual([], self.names())

    def test_what_is_no_file_is_not_replaced(self):
        for plant in (os.mkfifo, os.mkdir,
                      lambda path: os.symlink(self.foreign, path)):
            plant(self.output)
            self.assertRaises(exceptions.InvalidInput, self.outputs.open,
                              str(self.output))
            self.output.rename(self.directory / f'{plant}'.replace('/', ''))

    def test_only_below_the_directories(self):
        os.symlink(self.foreign.parent, self.output.with_name('out'))
        for path in (self.foreign, self.output.with_name('out') / 'x',
                     self.output.parent / '..' / 'x', 'disk',
                     self.output.parent / '..',
                     self.output.parent / 'none' / 'disk'):
            self.assertRaises(exceptions.InvalidInput, self.outputs.open,
                              str(path))

    def test_the_directory_may_be_named_through_a_link(self):
        link = self.directory / 'nova'
        link.symlink_to(self.output.parent)
        found = outputs.Outputs([str(link)]).open(str(self.output))
        self.assertEqual(self.output, found.path)
        self.outputs.open(str(link / 'disk'))

    def test_leftovers_behind_a_link_are_left_alone(self):
        leftover = self.write_file('etc/.disk.0123456789ab.part', b'theirs')
        os.symlink(leftover.parent, self.output.with_name('out'))
        self.outputs.find(self.output.with_name('out') / 'disk').clean()
        self.assertTrue(leftover.exists())


class ExchangedDirectoryTest(test_serving.ServeTestCase):
    """An output's directory becomes a link while its image is fetched."""

    def setUp(self):
        super().setUp()
        self.base = self.directory / 'instances' / '_base'
        self.base.mkdir(parents=True)
        self.foreign = self.directory / 'root'
        self.foreign.mkdir()
        self.host = self.hosts['h1']
        self.patch(self.host.plane, 'fetch', self.exchange_and_fetch)

    def exchange_and_fetch(self, *order):
        if not self.base.is_symlink():
            self.base.rename(self.base.with_name('gone'))
            self.base.symlink_to(self.foreign)
        return type(self.host.plane).fetch(self.host.plane, *order)

    def assert_refused(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.host.server.deliver_image, 'target',
            str(self.base / 'image'), None, contents.Watch())
        self.assertIn(str(self.base / 'image'), str(error))
        self.assertEqual([], os.listdir(self.foreign))

    def test_nothing_is_renamed_into_anothers_directory(self):
        self.assert_refused()

    def test_nothing_is_copied_into_anothers_directory(self):
        self.patch(single_flight.Membership, 'take', lambda _self: False)
        self.assert_refused()


class GoneTest(test_serving.ServeTestCase):

    def test_nothing_is_written_for_a_client_that_has_gone(self):
        host = self.hosts['h1']
        host.put(test_serving.TARGET)
        watch = contents.Watch()
        watch.gone.set()
        self.assertRaises(
            exceptions.Cancelled, host.server.deliver,
            host.view.image('target'), outputs.LocalOutput(self.output),
            None, watch)
        self.assertFalse(self.output.exists())
