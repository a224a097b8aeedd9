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
"""Blobs and versions in real object servers, through glance_store.

S3 is that of versitygw, which keeps its objects in a directory of the test;
Swift is Swift.
Any other server is told by two variables of the environment:
``DIFFCACHE_TEST_STORE``, a store's URI, and ``DIFFCACHE_TEST_STORE_CONFIG``,
a file with the options of ``[glance_store]``. In both ``{container}`` stands
for a container, or a bucket, that each test makes anew.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse
import uuid

from diffcache_openstack.versions.blobs import registry
from testing import server
from tests import base
from tests.functional.fixtures import swift
from tests.unit.versions.blobs import conformance
from tests import waiting

_SERVER = 'versitygw'
_NEEDS = (f'needs the program {_SERVER} (go install github.com/versity/'
          'versitygw/cmd/versitygw@latest) and boto3')


@unittest.skipUnless('DIFFCACHE_TEST_STORE' in os.environ,
                     'needs DIFFCACHE_TEST_STORE')
class TestGiven(conformance.KeepsVersions, base.TestCase):

    def make_store(self):
        container = f'diffcache-test-{uuid.uuid4().hex}'
        options = pathlib.Path(os.environ['DIFFCACHE_TEST_STORE_CONFIG'])
        config = self.write_file('glance.conf', options.read_text().replace(
            '{container}', container).encode())
        uri = os.environ['DIFFCACHE_TEST_STORE']
        return registry.open_store(uri.replace('{container}', container),
                                   [str(config)])


@unittest.skipUnless(shutil.which(_SERVER)
                     and importlib.util.find_spec('boto3'), _NEEDS)
class TestS3(conformance.KeepsVersions, base.TestCase):

    def make_store(self):
        # The server keeps extended attributes, which tmpfs may not have.
        objects = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(objects.cleanup)
        port = server.free_port()
        process = subprocess.Popen(
            [_SERVER, '--access', 'key', '--secret', 'secret', '--port',
             f'127.0.0.1:{port}', '--quiet', 'posix', objects.name],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        waiting.until_listening(process, port)
        pathlib.Path(objects.name, 'versions').mkdir()
        config = self.write_file('glance.conf', (
            '[glance_store]\n'
            f's3_store_host = http://127.0.0.1:{port}\n'
            's3_store_region_name = us-east-1\n'
            's3_store_access_key = key\n'
            's3_store_secret_key = secret\n'
            's3_store_bucket = versions\n'
            's3_store_bucket_url_format = path\n').encode())
        return registry.open_store('glance:s3', [str(config)])


@unittest.skipUnless(swift.is_there() and importlib.util.find_spec(
    'swiftclient'), swift.NEEDS)
class TestSwift(conformance.KeepsVersions, base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = swift.Swift()
        cls.server.setUp()
        cls.addClassCleanup(cls.server.cleanUp)

    def make_store(self):
        container = f'diffcache-test-{uuid.uuid4().hex}'
        config = self.write_file('glance.conf', (
            '[glance_store]\n'
            f'swift_store_auth_address = http://{self.server.address}\n'
            f'swift_store_user = {swift.USER}\n'
            f'swift_store_key = {swift.KEY}\n'
            f'swift_store_container = {container}\n'
            'swift_store_create_container_on_put = true\n').encode())
        user = urllib.parse.quote(swift.USER, safe='')
        return registry.open_store(
            f'glance:swift:swift+http://{user}:{swift.KEY}@'
            f'{self.server.address}/{container}', [str(config)])
