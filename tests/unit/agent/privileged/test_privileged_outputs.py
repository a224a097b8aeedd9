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
"""Outputs by a privileged process: entry points, run in this process."""

import os

from diffcache_openstack.agent.privileged import privileged_outputs
from diffcache_openstack.common import exceptions
from tests.unit.agent.images.delivery import test_outputs


class PrivilegedOutputsTest(test_outputs.OutputsTest):
    """They do the same as the rights of a process of its own."""

    def setUp(self):
        super().setUp()
        root = str(self.directory / 'instances')
        self.addCleanup(privileged_outputs.configure, (), '')
        privileged_outputs.configure((root,), str(self.directory))
        self.outputs = privileged_outputs.PrivilegedOutputs([root])

    def test_the_directory_may_be_named_through_a_link(self):
        link = self.directory / 'nova'
        link.symlink_to(self.output.parent)
        privileged_outputs.configure((str(link),), str(self.directory))
        outside = self.directory / 'elsewhere' / 'disk'
        for path in (self.output, link / 'disk'):
            self.assertEqual(path.name, self.outputs.open(str(path)).path.name)
        self.assertRaises(exceptions.InvalidInput, self.outputs.open,
                          str(outside))

    def test_nothing_is_taken_of_another_directory(self):
        output = self.outputs.open(str(self.output))
        self.assertFalse(output.can_take(self.foreign))
        for name in ('../etc/shadow', str(self.foreign), '..', ''):
            self.assertRaises(exceptions.InvalidInput, privileged_outputs.take,
                              str(self.output), name, True)
        self.assertTrue(self.foreign.exists())
        self.assertEqual([], self.names())

    def test_nothing_is_taken_of_a_directory_of_another_user(self):
        self.patch(privileged_outputs.os, 'geteuid', lambda: os.getuid() + 1)
        self.assertRaises(exceptions.InvalidInput, privileged_outputs.take,
                          str(self.output), self.content.name, True)
        self.assertTrue(self.content.exists())

    def test_arguments(self):
        for value in (None, 1, b'/etc/passwd', 'x' * 5000):
            for call in (privileged_outputs.check, privileged_outputs.create,
                         privileged_outputs.clean,
                         privileged_outputs.shares_mount,
                         privileged_outputs.open_readable):
                self.assertRaises(exceptions.InvalidInput, call, value)
        for number in (None, 'x', 10 ** 9, [1]):
            self.assertRaises(exceptions.NotFound, privileged_outputs.publish,
                              number,
                              True)
            privileged_outputs.discard(number)

    def test_so_many_at_a_time(self):
        self.patch(privileged_outputs, '_MOST_PARTS', 1)
        part = self.outputs.open(str(self.output)).create()
        self.assertRaises(exceptions.ServiceUnavailable,
                          privileged_outputs.create,
                          str(self.output))
        self.assertEqual(1, len(self.names()))
        part.discard()
        self.assertEqual([], self.names())
        self.deliver()
