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
"""Files that an operator names."""

import errno
import os

from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions
from tests import base


class TranslationTest(base.TestCase):

    def test_errors_of_the_system_are_translated(self):
        for number, expected in (
                (errno.ENOSPC, exceptions.NoSpace),
                (errno.EDQUOT, exceptions.NoSpace),
                (errno.EFBIG, exceptions.NoSpace),
                (errno.ENOENT, exceptions.NotFound),
                (errno.EACCES, exceptions.InvalidInput)):
            with self.assertRaisesRegex(expected, 'the/output'):
                with operands.translate_os_errors('the/output'):
                    raise OSError(number, os.strerror(number))


class CheckTest(base.TestCase):

    def test_a_pipe_is_refused_before_it_is_opened(self):
        path = self.directory / 'pipe'
        os.mkfifo(path)
        # So that opening it would not wait, should it be opened.
        self.addCleanup(os.close, os.open(path, os.O_RDWR))
        for name in (str(path), '/dev/zero'):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        f'base {name} is neither'):
                operands.check_readable(name, 'base')

    def test_less_than_a_sector_is_no_disk(self):
        for size in (0, 6, 511):
            path = str(self.write_file('small', bytes(size)))
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        f'{path} has {size} bytes'):
                operands.check_disk(path, 'disk')
        operands.check_disk(str(self.write_file('disk', bytes(512))), 'disk')

    def test_an_output_that_is_an_input_is_refused(self):
        image = str(self.write_file('image', b'image'))
        link = self.directory / 'link'
        link.symlink_to(image)
        for name in (image, str(link)):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'is the base itself'):
                operands.check_output(name, base=image)
        operands.check_output(image, base=str(self.directory / 'missing'))
        operands.check_output('new-file-here')

    def test_an_output_without_a_directory_is_refused(self):
        error = self.assertRaises(
            exceptions.NotFound, operands.check_output,
            str(self.directory / 'missing' / 'out'))
        self.assertIn('create it first', str(error))

    def test_an_output_that_is_no_file_is_refused(self):
        for name, why in ((str(self.directory), 'is a directory'),
                          ('/dev/zero', 'is no regular file')):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        f'output {name} {why}'):
                operands.check_output(name)

    def test_a_file_that_changes_is_told(self):
        image = str(self.write_file('image', b'image'))
        with operands.unchanged(image):
            pass
        with self.assertRaisesRegex(exceptions.RetryableError, image):
            with operands.unchanged(image):
                os.utime(image, (1, 1))
