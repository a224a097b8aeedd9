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
"""What every test of this project shares."""

import pathlib

import fixtures
import hypothesis
from oslotest import base

# A property that fails must fail again on the next run and on any machine:
# the same examples each time, and no limit on how long one may take, or their
# generation.
hypothesis.settings.register_profile(
    'diffcache', deadline=None, derandomize=True, max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile('diffcache')


class TestCase(base.BaseTestCase):
    """A test with a directory of its own, removed when it ends."""

    @property
    def directory(self) -> pathlib.Path:
        """The test's own directory, made when first asked for."""
        if self._directory is None:
            self._directory = pathlib.Path(
                self.useFixture(fixtures.TempDir()).path)
        return self._directory

    def setUp(self):
        super().setUp()
        self._directory: pathlib.Path | None = None

    def write_file(self, name: str, content: bytes) -> pathlib.Path:
        """Write a file below the test's directory.

        :param name: the file's path, relative to :attr:`directory`; missing
            directories are made
        :param content: all that the file is to hold
        :returns: the file's path
        """
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path
