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
"""Base images in Nova's own backends: from the agent, and without it."""

import errno
import hashlib
import os
import pathlib
import struct
import subprocess
import threading
from unittest import mock
import uuid

from tests.unit.nova import fakes
from tests.unit.nova import needs  # Before Nova itself, which may be missing.

from nova import exception
from nova.objects import trusted_certs
from nova.virt import images
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt import utils as libvirt_utils

from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.common import stand_ins
from diffcache_openstack.nova import backends
from diffcache_openstack.nova import checks
from diffcache_openstack.nova import fetching
from diffcache_openstack.nova import lazy
from diffcache_openstack.nova import options
from diffcache_openstack.nova import sources
from diffcache_openstack.nova import tallies

IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
NAME = 'base'
MIB = 2 ** 20
DOWNLOADED = b'\x02' * MIB


class FetchingTest(needs.NovaTest):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client(IMAGE)
        self.client.content_bytes = fakes.CONTENT.ljust(MIB, b'\0')
        self.tally = tallies.Tally(self.directory / 'images.json')
        self.context = object()
        self.meta = {'id': IMAGE, 'status': 'active', 'disk_format': 'qcow2',
                     'os_hash_algo': 'sha512', 'os_hash_value': fakes.DIGEST}
        self.glance = self.patch(images, 'get_info', return_value=self.meta)
        self.downloads = []
        for name in ('fetch_to_raw', 'fetch'):
            self.patch(images, name, side_effect=self.download)
        self.instance = mock.Mock(uuid=str(uuid.uuid4()))
        (self.instances / self.instance.uuid).mkdir()
        self.make_backend()

    def patch(self, *args, **kwargs):
        patcher = mock.patch.object(*args, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def make_backend(self, fallback=options.DOWNLOAD):
        source = sources.Source(
            self.client, None, 60.0,
            image_records.Verifier(signatures.Security()),
            restarts.Restarts(0.0))
        self.bases = lazy.LazyBases(self.client, source, self.tally, False)
        self.fetcher = fetching.Fetcher(needs.CONF, source, self.tally,
                                        fallback, self.bases)
        self.backend = imagebackend.Backend(True)
        backends.install(self.backend, checks.IMAGES_TYPES, self.fetcher,
                         None)

    def have_served(self, content=None):
        """Have the agent serve the image while it arrives."""
        arriving = str(self.write_file('arriving', content
                                       or self.client.content_bytes))
        self.rates = []

        def open_lazy(image_id, rate):
            self.rates.append(rate)
            return {'path': arriving, 'reason': None}

        self.client.open_lazy = open_lazy
        self.meta['properties'] = {'diffcache_boot_mode': 'lazy'}
        self.instance.metadata, self.instance.flavor.extra_specs = {}, {}
        return arriving

    def download(self, context, image_id, path, trusted_certs=None):
        self.downloads.append((image_id, trusted_certs))
        pathlib.Path(path).write_bytes(DOWNLOADED)

    def make_disk(self, images_type='qcow2', name='disk', size=None,
                  own=libvirt_utils.fetch_image, **more):
        disk = self.backend.by_name(self.instance, name, images_type)
        disk.cache(fetch_func=own, context=self.context, filename=NAME,
                   size=size, **{'image_id': IMAGE, **more})
        return disk

    @property
    def base(self):
        return self.instances / '_base' / NAME

    def assertSameBytes(self, expected, path):
        # By their hash: nobody wants to read megabytes after a failure.
        self.assertEqual(hashlib.sha256(expected).hexdigest(),
                         hashlib.sha256(path.read_bytes()).hexdigest())

    def assertDelivered(self):
        self.assertSameBytes(self.client.content_bytes, self.base)
        self.assertEqual([], self.downloads)
        self.assertEqual([NAME], os.listdir(self.base.parent))

    def assertDownloaded(self):
        self.assertSameBytes(DOWNLOADED, self.base)
        self.assertEqual([NAME], os.listdir(self.base.parent))

    def assertFellBack(self, reason):
        self.assertDownloaded()
        self.assertEqual({reason: 1}, self.tally.summary()['fallbacks'])

    def assertPassed(self, reason):
        self.assertDownloaded()
        summary = self.tally.summary()
        self.assertEqual({reason: 1}, summary['passed'])
        self.assertEqual({}, summary['fallbacks'])


class TestDelivery(FetchingTest):

    def test_an_overlay_on_the_delivered_base(self):
        disk = self.make_disk(size=3 * MIB)
        self.assertDelivered()
        info = images.qemu_img_info(disk.path)
        self.assertEqual(('qcow2', 3 * MIB, str(self.base)),
                         (info.file_format, info.virtual_size,
                          info.backing_file))
        self.assertEqual({'build': 1, 'wan_bytes': 77},
                         self.tally.summary()['delivered'])

    def test_a_raw_disk_copied_from_the_delivered_base(self):
        disk = self.make_disk('raw', size=3 * MIB)
        self.assertDelivered()
        self.assertSameBytes(self.client.content_bytes.ljust(3 * MIB, b'\0'),
                             pathlib.Path(disk.path))

    def test_the_agent_may_use_the_base(self):
        self.make_disk()
        self.assertEqual([(IMAGE, self.client.content_bytes)],
                         self.client.lent)

    def test_the_user_is_whom_glance_is_asked_for(self):
        self.make_disk()
        self.glance.assert_called_once_with(self.context, IMAGE)

    def test_a_base_that_is_there_is_used(self):
        self.base.parent.mkdir()
        self.base.write_bytes(DOWNLOADED)
        self.make_disk()
        self.assertEqual([], self.client.asked)
        self.assertEqual([], self.downloads)

    def test_a_disk_smaller_than_the_image(self):
        self.assertRaises(exception.FlavorDiskSmallerThanImage,
                          self.make_disk, size=MIB // 2)

    def test_what_a_delivery_that_was_cut_off_left_is_replaced(self):
        self.base.parent.mkdir()
        pathlib.Path(f'{self.base}{fetching.SUFFIX}').write_bytes(b'half')
        self.make_disk()
        self.assertDelivered()

    def test_swap_is_no_image(self):
        disk = self.backend.by_name(self.instance, 'disk.swap', 'qcow2')

        def create(target, swap_mb):
            pathlib.Path(target).write_bytes(b'\0' * swap_mb * MIB)

        disk.cache(fetch_func=create, filename='swap_1', size=MIB, swap_mb=1,
                   safe=True)
        self.assertEqual([], self.client.asked)
        self.assertTrue(os.path.exists(disk.path))

    def test_two_servers_at_once_have_one_delivery(self):
        others = [mock.Mock(uuid=str(uuid.uuid4())) for _ in range(3)]
        failed = []

        def boot(instance):
            try:
                (self.instances / instance.uuid).mkdir()
                self.backend.by_name(instance, 'disk', 'qcow2').cache(
                    fetch_func=libvirt_utils.fetch_image, filename=NAME,
                    context=self.context, image_id=IMAGE)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=boot, args=(instance,))
                   for instance in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], failed)
        self.assertEqual(1, sum(question[0] == 'content'
                                for question in self.client.asked))
        self.assertDelivered()

    def test_fallbacks_are_reported_when_the_agent_is_back(self):
        self.client.error = exceptions.ServiceUnavailable('nobody there')
        self.make_disk()
        self.assertFellBack('ServiceUnavailable')
        self.base.unlink()
        self.client.error = None
        self.make_disk()
        self.assertEqual(
            ('fallback', 'nova-compute', 'ServiceUnavailable', 1),
            self.client.asked[-1])


class TestKernels(FetchingTest):

    def make_disk(self, **more):
        return super().make_disk('raw', 'kernel',
                                 own=libvirt_utils.fetch_raw_image, **more)

    def test_a_raw_file_is_its_own_content(self):
        self.meta['disk_format'] = 'raw'
        self.make_disk()
        self.assertDelivered()

    def test_other_files_are_downloaded_as_they_are(self):
        for disk_format in ('qcow2', 'aki'):
            self.meta['disk_format'] = disk_format
            self.make_disk()
            self.base.unlink()
        self.assertEqual({'format': 2}, self.tally.summary()['passed'])
        self.assertEqual(2, len(self.downloads))


class TestNotOurs(FetchingTest):

    def test_signatures_that_the_user_wants_verified(self):
        certs = trusted_certs.TrustedCerts(ids=['c'])
        self.make_disk(trusted_certs=certs)
        self.assertPassed('signature')
        self.assertEqual([(IMAGE, certs)], self.downloads)
        self.assertEqual([], self.client.asked)

    def test_signatures_that_the_operator_wants_verified(self):
        self.set('verify_glance_signatures', True, 'glance')
        self.make_disk(trusted_certs=None)
        self.assertPassed('signature')

    def test_certificates_by_default(self):
        self.set('enable_certificate_validation', True, 'glance')
        self.set('default_trusted_certificate_ids', ['c'], 'glance')
        self.make_disk(trusted_certs=None)
        self.assertPassed('signature')

    def test_an_image_that_the_catalogue_does_not_know(self):
        self.client.error = exceptions.NotFound('unknown')
        self.make_disk()
        self.assertPassed('unknown')

    def test_a_deactivated_image_is_left_to_glance(self):
        self.meta['status'] = 'deactivated'
        self.make_disk()
        self.assertPassed('status')

    def test_an_image_whose_file_takes_fewer_bytes(self):
        self.client.known['file_size'] = 1000
        self.client.content_error = exceptions.DownloadCheaper('65536 bytes')
        self.make_disk()
        self.assertPassed('cheaper')
        self.assertEqual(1000, self.client.own_bytes)
        self.assertEqual([(IMAGE, DOWNLOADED)], self.client.lent)

    def test_no_download_to_compare_with_where_it_is_forbidden(self):
        self.client.known['file_size'] = 1000
        self.make_backend(fallback=options.ERROR)
        self.make_disk()
        self.assertDelivered()
        self.assertIsNone(self.client.own_bytes)

    def test_an_image_that_the_user_may_not_see(self):
        self.glance.side_effect = exception.ImageNotFound(image_id=IMAGE)
        self.assertRaises(exception.ImageNotFound, self.make_disk)
        self.assertEqual([], self.client.asked)
        self.assertEqual([], self.downloads)
        self.assertFalse(self.base.exists())


class TestFallback(FetchingTest):

    def test_an_agent_that_is_down(self):
        self.client.error = exceptions.ServiceUnavailable('nobody there')
        self.make_disk()
        self.assertFellBack('ServiceUnavailable')
        self.assertEqual('nobody there',
                         self.tally.summary()['last_fallback']['message'])

    def test_a_download_is_lent_too(self):
        self.client.content_error = exceptions.NoSpace('full')
        self.make_disk()
        self.assertDownloaded()
        self.assertEqual([(IMAGE, DOWNLOADED)], self.client.lent)

    def test_an_agent_that_fails_half_way(self):
        self.client.content_error = exceptions.PeerUnavailable('gone')
        self.make_disk()
        self.assertFellBack('PeerUnavailable')

    def test_a_hash_that_is_not_glances(self):
        self.meta['os_hash_value'] = 'cd' * 64
        self.make_disk()
        self.assertFellBack('IntegrityError')

    def test_an_error_of_ours(self):
        self.client.error = KeyError('surprise')
        self.make_disk()
        self.assertFellBack('KeyError')

    def test_content_that_looks_like_an_overlay(self):
        # A guest's disk may begin as an image file does; with a backing file
        # that Nova would then open on the host.
        path = self.directory / 'hostile.qcow2'
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-u', '-b',
                        '/etc/passwd', '-F', 'raw', path, '1M'], check=True)
        for deep in (True, False):
            self.set('disable_deep_image_inspection', not deep,
                     'workarounds')
            self.client.content_bytes = path.read_bytes()
            self.make_disk()
            self.assertDownloaded()
            self.base.unlink()
        self.assertEqual({'FormatError': 2},
                         self.tally.summary()['fallbacks'])

    def test_content_with_a_partition_table(self):
        mbr = bytearray(self.client.content_bytes)
        mbr[446:512] = bytes(66)
        mbr[446:462] = struct.pack('<BBHBBHII', 0x80, 0, 2, 0x83, 0, 1, 1, 99)
        mbr[510:512] = b'\x55\xaa'
        self.client.content_bytes = bytes(mbr)
        self.make_disk()
        self.assertDelivered()

    def test_none_is_made_where_the_operator_forbids_it(self):
        self.make_backend(options.ERROR)
        self.client.error = exceptions.ServiceUnavailable('nobody there')
        error = self.assertRaises(exception.CouldNotFetchImage,
                                  self.make_disk)
        self.assertIn(IMAGE, str(error))
        self.assertEqual([], self.downloads)
        self.assertFalse(self.base.exists())
        # What is not ours to deliver is downloaded nevertheless.
        self.client.error = exceptions.NotFound('unknown')
        self.make_disk()
        self.assertDownloaded()


class TestFullDisk(FetchingTest):

    def setUp(self):
        super().setUp()
        self.client.content_error = exceptions.NoSpace('cache is full')

    def test_only_the_agents_own_disk_is_full(self):
        self.make_disk()
        self.assertFellBack('NoSpace')

    def test_an_image_that_cannot_fit_is_not_downloaded(self):
        self.client.known['data_size'] = 2 ** 62
        error = self.assertRaises(OSError, self.make_disk)
        self.assertEqual(errno.ENOSPC, error.errno)
        for part in (IMAGE, str(self.base.parent), 'instances_path'):
            self.assertIn(part, str(error))
        self.assertEqual([], self.downloads)
        self.assertEqual({'NoSpace': 1}, self.tally.summary()['fallbacks'])


class TestLazyBoot(FetchingTest):

    def test_the_base_of_an_overlay_is_a_link(self):
        arriving = self.have_served()
        disk = self.make_disk()
        self.assertEqual(arriving, os.readlink(self.base))
        self.assertEqual(str(self.base), libvirt_utils.get_disk_backing_file(
            disk.path, basename=False))
        self.assertEqual(([], []), (self.client.lent, self.downloads))
        self.assertEqual({'linked': 1}, self.tally.summary()['lazy'])

    def test_each_server_on_a_link_is_announced(self):
        # The second one finds the base there, and fetches nothing.
        self.have_served()
        self.instance.project_id = 'p'
        self.instance.flavor.name = 'm1.small'
        self.make_disk()
        second = mock.Mock(uuid=str(uuid.uuid4()), metadata={},
                           project_id='q')
        second.flavor.name = 'm1.large'
        (self.instances / second.uuid).mkdir()
        self.instance, first = second, self.instance
        self.make_disk()
        self.assertEqual(
            {first.uuid: ('p', 'm1.small'), second.uuid: ('q', 'm1.large')},
            {server: (found['project_id'], found['label'])
             for server, found in self.client.servers.items()})

    def test_servers_on_files_are_not_announced(self):
        self.make_disk()
        self.assertEqual({}, self.client.servers)

    def test_metadata_of_the_server_decides(self):
        self.have_served()
        self.instance.metadata = {'diffcache:boot_mode': 'full'}
        self.make_disk()
        self.assertFalse(self.base.is_symlink())
        self.assertDelivered()

    def test_disks_without_an_overlay_are_delivered_whole(self):
        self.have_served()
        self.make_disk('raw')
        self.assertFalse(self.base.is_symlink())
        self.assertEqual({'lazy: no overlay': 1},
                         self.tally.summary()['passed'])

    def test_content_that_looks_like_another_format_is_not_linked(self):
        self.have_served(b'QFI\xfb\0\0\0\3'.ljust(MIB, b'\0'))
        self.make_disk()
        self.assertFalse(self.base.is_symlink())
        self.assertDelivered()

    def test_the_rate_holds_from_the_start(self):
        self.have_served()
        self.instance.metadata = {'diffcache:hydrate_rate': '1000'}
        self.make_disk()
        self.assertEqual([1000], self.rates)

    def test_an_agent_that_cannot_serve_delivers(self):
        self.have_served()

        def refuse(image_id, rate):
            raise exceptions.NoSpace('full')

        self.client.open_lazy = refuse
        self.make_disk()
        self.assertDelivered()
        self.assertEqual({'full_NoSpace': 1}, self.tally.summary()['lazy'])
        self.assertEqual({}, self.tally.summary()['fallbacks'])


class TestVersions(FetchingTest):
    """An image that stands for a version."""

    def setUp(self):
        super().setUp()
        self.meta |= {
            'disk_format': 'raw', 'owner': 'p',
            'os_hash_value': hashlib.sha512(
                stand_ins.content('v')).hexdigest(),
            'properties': {'diffcache_lazy_version': 'v',
                           'diffcache_boot_mode': 'lazy'}}
        self.instance.metadata, self.instance.flavor.extra_specs = {}, {}

    def have_served_version(self):
        arriving = str(self.write_file('arriving', self.client.content_bytes))
        self.client.version_answer = {'path': arriving, 'reason': None}
        return arriving

    def test_the_base_is_a_link_to_the_version(self):
        arriving = self.have_served_version()
        self.make_disk()
        self.assertEqual(arriving, os.readlink(self.base))
        self.assertIn(('open_version', 'v',
                       {'project_id': 'p', 'image_id': IMAGE}, None),
                      self.client.asked)
        self.assertEqual([], self.downloads)

    def test_its_rate_holds_from_the_start(self):
        self.have_served_version()
        self.instance.metadata = {'diffcache:hydrate_rate': '1000'}
        self.make_disk()
        self.assertIn(('open_version', 'v',
                       {'project_id': 'p', 'image_id': IMAGE}, 1000),
                      self.client.asked)

    def test_one_that_cannot_be_served_is_restored(self):
        self.make_disk()
        self.assertDelivered()
        self.assertIn(('version_content', 'v', 'p'), self.client.asked)
        self.assertEqual({'full_no_manifest': 1},
                         self.tally.summary()['lazy'])

    def test_disks_without_an_overlay_get_all_of_it(self):
        self.have_served_version()
        self.make_disk('raw')
        self.assertFalse(self.base.is_symlink())
        self.assertDelivered()

    def test_what_glance_has_in_its_place_is_never_booted(self):
        for error, raised in (
                # Nova then copies the base of a server that it moves.
                (exceptions.NotFound('deleted'), exception.ImageNotFound),
                (exceptions.ServiceUnavailable('down'),
                 exception.CouldNotFetchImage),
                (ValueError('a fault'), exception.CouldNotFetchImage)):
            self.client.error = error
            self.assertRaises(raised, self.make_disk)
        self.assertEqual([], self.downloads)
        self.assertFalse(self.base.exists())
        self.assertEqual({'NotFound': 1, 'ServiceUnavailable': 1,
                          'ValueError': 1}, self.tally.summary()['fallbacks'])

    def test_a_snapshot_with_its_properties_is_an_image_of_its_own(self):
        # Regression: the server had the version's disk, not the snapshot's.
        self.meta['os_hash_value'] = fakes.DIGEST
        self.have_served_version()
        self.client.open_lazy = lambda image_id, rate: {
            'path': None, 'reason': 'held'}
        self.make_disk()
        self.assertDelivered()
        self.assertNotIn('open_version',
                         [question[0] for question in self.client.asked])

    def test_its_hash_is_not_that_of_the_stand_in(self):
        needs.CONF.set_override('hash_raw_images', True, 'diffcache')
        self.addCleanup(needs.CONF.clear_override, 'hash_raw_images',
                        'diffcache')
        self.make_disk()
        self.assertDelivered()
