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
"""Commands about volumes in SSD caches."""

import contextlib
import io
import types
from unittest import mock

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc.volume import caches as volume_caches
from tests.unit.client import cloud
from tests.unit.client.osc import pages
from tests.unit.conductor import fakes
from tests.unit import volume_reports as reports

GIB = 262144


class Volumes:
    """Stands where Cinder would."""

    @staticmethod
    def find_volume(name, ignore_missing):
        assert not ignore_missing
        if name != 'db':
            raise sdk_exceptions.NotFoundException(f'No Volume for {name}')
        return types.SimpleNamespace(id=reports.VOLUME)


class Servers:
    """Stands where Nova would."""

    @staticmethod
    def find_server(name, ignore_missing):
        assert not ignore_missing
        if name not in ('shop', 'running'):
            raise sdk_exceptions.NotFoundException(f'No Server for {name}')
        return types.SimpleNamespace(id='running')


class TestVolumeCaches(cloud.CommandTest):

    def setUp(self):
        super().setUp()
        self.app.client_manager.sdk_connection.block_storage = Volumes()
        self.app.client_manager.sdk_connection.compute = Servers()
        self.nova.volumes = {reports.VOLUME: 'running'}
        self.api.report_volume_caches(self.ctxt, 'h1', reports.cache(), [
            reports.volume()])
        self.api.report_volume_caches(self.ctxt, 'h2', reports.cache(), [
            reports.volume(reports.OTHER_VOLUME, curve=None, hits=0,
                           misses=0)])

    def test_list(self):
        first, second = self.listed(volume_caches.ListVolumes)
        self.assertEqual(
            (reports.VOLUME, 'running', 'h1', 'write-through', 100, 0.75),
            tuple(first[name] for name in ('Volume', 'Server', 'Host', 'Mode',
                                           'Size', 'Hit Ratio')))
        self.assertIsNone(second['Hit Ratio'])
        [found] = self.listed(volume_caches.ListVolumes, '--host', 'h2')
        self.assertEqual(reports.OTHER_VOLUME, found['Volume'])
        self.assertEqual([], self.listed(
            volume_caches.ListVolumes, '--mode', 'write-back', '--server',
            'running'))

    def test_list_of_a_server_by_name(self):
        [found] = self.listed(volume_caches.ListVolumes, '--server', 'shop')
        self.assertEqual(reports.VOLUME, found['Volume'])
        self.assertRaises(sdk_exceptions.NotFoundException, self.listed,
                          volume_caches.ListVolumes, '--server', 'none')

    def test_numbers_are_above_zero(self):
        for option in ('--weight', '--priority'):
            self.assertRaises(SystemExit, self.take, volume_caches.SetVolume,
                              'db', option, '0')

    def test_a_target_is_checked_before_it_is_sent(self):
        for text in ('foo', 'hit=2', 'latency=0ms'):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                self.assertRaises(SystemExit, self.take,
                                  volume_caches.SetVolume, 'db', '--sla', text)
            self.assertIn('such as hit=0.9', err.getvalue())

    def test_show_by_name_and_id(self):
        for name in ('db', reports.VOLUME):
            found = self.shown(volume_caches.ShowVolume, name)
            self.assertEqual((4500, 'hit=0.9', 512), tuple(
                found[name] for name in ('hits', 'sla', 'maximum')))
            self.assertIn('75.0% hits', found['reasons'][1])
        self.assertRaises(sdk_exceptions.NotFoundException, self.shown,
                          volume_caches.ShowVolume, 'none')

    def test_the_help_is_in_sentences(self):
        found = self.command(volume_caches.SetVolume).get_parser(
            'openstack volume cache set').format_help()
        self.assertIn('according to its type. Settings stay on the host',
                      ' '.join(found.split()))
        # Beside the commands that say one thing.
        self.assertEqual(
            'Override how a volume is cached according to its type',
            self.command(volume_caches.SetVolume).get_description()
            .splitlines()[0])

    def test_curve(self):
        found = self.shown(volume_caches.ShowCurve, 'db')
        self.assertEqual((1000, 120, [50, 100, 120]), (
            found['references'], found['working_set'],
            found['curve']['sizes']))
        names, values = self.take(volume_caches.ShowCurve, 'db')
        text = dict(zip(names, values))['curve'].human_readable()
        self.assertIn('410 kB: 75.0%', text)
        self.assertRaises(sdk_exceptions.NotFoundException, self.shown,
                          volume_caches.ShowCurve, reports.OTHER_VOLUME)

    def test_graph(self):
        path = self.directory / 'curve.png'
        self.shown(volume_caches.ShowCurve, 'db', '--graph', str(path))
        self.assertEqual(b'\x89PNG', path.read_bytes()[:4])
        for name, error in (('curve.xyz', SystemExit),
                            ('none/curve.png', exceptions.CommandError)):
            self.assertRaises(error, self.shown, volume_caches.ShowCurve,
                              'db', '--graph', str(self.directory / name))

    def test_explain(self):
        found = self.shown(volume_caches.Explain, 'db')
        self.assertEqual({'size', 'reasons'}, set(found))
        self.assertIn('75.0% hits', found['reasons'][1])

    def test_the_page_shows_the_fields(self):
        for command, kind, words in (
                ('volume cache show', volume_caches.ShowVolume, ()),
                ('volume cache curve show', volume_caches.ShowCurve, ()),
                ('volume cache explain', volume_caches.Explain,
                 ('--add', '1GiB'))):
            names, _ = self.take(kind, 'db', *words)
            pages.assert_are_fields(self, pages.SSD_CACHE, command, names)

    def test_set_unset_and_flush(self):
        cached = reports.cached(self, reports.VOLUME)
        fakes.listen_for_volumes(self, 'h1', cached)
        self.cloud.flush_volume_cache(reports.VOLUME)
        self.take(volume_caches.SetVolume, 'db', '--max', '400KiB',
                  '--weight', '2', '--sla', 'hit=0.5', '--admission', '2')
        found = self.shown(volume_caches.ShowVolume, 'db')
        self.assertEqual((100, 2.0, 'hit=0.5', 2), tuple(
            found[name] for name in ('maximum', 'weight', 'sla',
                                     'admission')))
        err = self.enterContext(mock.patch('sys.stderr', io.StringIO()))
        self.take(volume_caches.SetVolume, 'db', '--mode', 'write-back')
        self.assertIn('is lost with the host', err.getvalue())
        self.assertEqual('write-back', self.shown(
            volume_caches.ShowVolume, 'db')['mode'])
        self.take(volume_caches.UnsetVolume, 'db', '--max', '--sla',
                  '--mode')
        found = self.shown(volume_caches.ShowVolume, 'db')
        self.assertEqual((None, 2.0, ''), tuple(
            found[name] for name in ('maximum', 'weight', 'sla')))
        self.take(volume_caches.FlushVolume, 'db', '--invalidate')
        self.take(volume_caches.FlushVolume, 'db')
        self.take(volume_caches.SetVolume, 'db', '--accept-loss')
        self.assertEqual(['flush', 'invalidate', 'flush', 'accept-loss'], [
            action for action, _name in cached._engine.actions])
        for kind in (volume_caches.SetVolume, volume_caches.UnsetVolume):
            self.assertRaises(exceptions.CommandError, self.take, kind, 'db')

    def test_what_more_would_save(self):
        found = self.shown(volume_caches.Explain, 'db', '--add', '1GiB')
        self.assertEqual(
            (100 + GIB, 0.75, 0.88), (
                found['size_with_more'], found['hit_ratio'],
                found['hit_ratio_with_more']))
        self.assertAlmostEqual(0.13 * 2000.0, found['saved_us'])
        self.assertRaises(SystemExit, self.shown, volume_caches.Explain, 'db',
                          '--add', 'much')

    def test_hosts(self):
        self.assertEqual(['h1', 'h2'], [row['Host'] for row in self.listed(
            volume_caches.ListHosts)])
        found = self.shown(volume_caches.ShowHost, 'h1')
        self.assertEqual((1024, 'latency', 1), tuple(
            found[name] for name in ('capacity', 'policy', 'volumes')))
        names, values = self.take(volume_caches.ShowHost, 'h1')
        text = dict(zip(names, values))['decisions'].human_readable()
        self.assertIn('latency: 412 blocks move', text)
        self.assertRaises(sdk_exceptions.NotFoundException, self.shown,
                          volume_caches.ShowHost, 'hub')
