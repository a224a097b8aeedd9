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
"""diffcached while system calls take long, as on a host that is busy."""

import shutil

from tests.functional.lazy import test_service
from tests.functional.versions import failing


class SlowCase(test_service.ServiceCase):
    """System calls of the service and its keepers take long.

    :ivar delay: in strace's words
    """

    delay: str

    def setUp(self):
        if not failing.is_possible():
            self.skipTest('strace delays no system calls here')
        super().setUp()

    def launch(self, folder, *words):
        # As a grandchild: signals are for the service.
        return super().launch(
            folder, 'strace', '-D', '-f', '-qq', '-o', '/dev/null',
            '-e', f'trace={self.delay.partition(":")[0]}',
            '-e', f'inject={self.delay}', *words)


class SlowStartTest(SlowCase):
    """Each thread of a process takes a while to start."""

    delay = 'clone3:delay_exit=100000'

    def test_a_key_that_changes_while_a_worker_starts_is_used(self):
        # The worker missed it, and used the former key for ever.
        self.add_image()
        worker = self.served()['worker_pid']
        key = self.folder / 'key.new'
        shutil.copy(self.folder / 'key', key)
        key.rename(self.folder / 'key')
        self.wait_until(lambda: self.served()['worker_pid'] != worker)


class SlowMountTest(SlowCase):
    """A keeper takes twenty seconds to mount its image."""

    delay = 'mount:delay_enter=20000000'

    def test_an_image_that_begins_late_is_served(self):
        # It was given up after fifteen.
        with open(self.add_image()['path'], 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())
