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
from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import in_process
from tests import base
from tests.unit.agent.data_plane import conformance
from tests.unit.agent.data_plane import conformance_partial


class InProcess:
    """Opens data planes in this process."""

    def open_plane(self, root, name, key, **options):
        return in_process.InProcessDataPlane(root, name, '127.0.0.1:0', key,
                                             **options)


class TestFetch(InProcess, conformance.FetchTests, base.TestCase):

    def test_an_option_that_does_not_exist(self):
        self.assertRaises(TypeError, _native.DataPlane,
                          str(self.directory), 'x', '127.0.0.1:0', rat=1.0)


class TestPartial(InProcess, conformance_partial.PartialTests,
                  base.TestCase):
    pass


class TestSourceList(InProcess, conformance.SourceListTests, base.TestCase):
    pass


class TestBuild(InProcess, conformance.BuildTests, base.TestCase):
    pass


class TestSharedBlocks(InProcess, conformance.SharedBlocksTests,
                       base.TestCase):
    pass


class TestServer(InProcess, conformance.ServerTests, base.TestCase):
    pass


class TestInterruptions(InProcess, conformance.InterruptionTests,
                        base.TestCase):

    SCRIPT = """
import pathlib
import signal
import sys
from diffcache_openstack.agent.data_plane import in_process
from diffcache_openstack.agent.data_plane import interface
from diffcache_openstack.sites import view
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def progress(done, total, over_wan):
    print(done, flush=True)
root, key, *fetch = sys.argv[1:]
plane = in_process.InProcessDataPlane(
    pathlib.Path(root), 'victim', '127.0.0.1:0', key.encode(), rate=1e6)
print(plane.url, flush=True)
if fetch:
    url, kind, object_id, dest, manifest = fetch
    plane.deliver(interface.Order(
        view.Key(kind, object_id), pathlib.Path(dest),
        (interface.HostSource(interface.Host('a', url), interface.Link.LAN),),
        pathlib.Path(manifest), rate=1e6), plane.new_handle(), progress)
sys.stdin.read()
"""


class TestFullDisk(InProcess, conformance.FullDiskTests, base.TestCase):
    pass


class TestAnyImage(InProcess, conformance.AnyImageTests, base.TestCase):
    pass


class TestTls(InProcess, conformance.TlsTests, base.TestCase):
    pass
