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
"""The API over HTTP, as the files in gabbits/ say."""

import pathlib

from gabbi import driver

from testing import server
from tests.functional.api import fixture


def load_tests(loader, tests, pattern):
    """A test for each request of each file."""
    fixture.ApiFixture.port = server.free_port()
    return driver.build_tests(
        str(pathlib.Path(__file__).with_name('gabbits')), loader,
        host=fixture.HOST, port=fixture.ApiFixture.port,
        fixture_module=fixture, test_loader_name=__name__,
        # No TLS is used. Each test would load the system's authorities, even
        # when tests are only listed.
        cert_validate=False)
