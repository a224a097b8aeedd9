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
"""What monitoring reads of an agent."""

import pathlib
import time
from unittest import mock
import uuid

import prometheus_client

from diffcache_openstack.agent import agent_metrics
from diffcache_openstack.agent.repository import carrying
from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.runtime import metrics
from diffcache_openstack.sites import views
from tests import base
from tests import certificates

_MOST = agent_metrics._MOST_REASONS


class RequestMetricsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.registry = prometheus_client.CollectorRegistry()
        self.metrics = agent_metrics.RequestMetrics(self.registry)

    def observe(self, **values):
        request = objects.Request(
            id=str(uuid.uuid4()), image_id='t', host='h1',
            started_at=versioned.now(), **values)
        self.metrics.observe(request, views.ImageRef(
            't', 'Image', 'f' * 64, size=100, data_size=50,
            compressed_size=20))

    def value(self, name, **labels):
        return self.registry.get_sample_value(f'diffcache_{name}', labels)

    def test_ways(self):
        self.observe(way='build', seconds=2.0, wan_bytes=5, lan_bytes=7,
                     fallbacks=1)
        self.observe(way='build', seconds=20.0, wan_bytes=1)
        self.assertEqual(2, self.value('request_seconds_count', way='build'))
        self.assertEqual(1, self.value('request_seconds_bucket', way='build',
                                       le='3.0'))
        self.assertEqual(6, self.value('request_wan_bytes_total'))
        self.assertEqual(7, self.value('request_lan_bytes_total'))
        self.assertEqual(1, self.value('request_fallbacks_total'))
        self.assertEqual(40, self.value('request_whole_bytes_total'))

    def test_a_first_failure_is_an_increase(self):
        self.assertEqual(0, self.value('request_seconds_count', way='none'))

    def test_failures_save_nothing(self):
        self.observe(way='none', error='no source', wan_bytes=9)
        self.assertEqual(1, self.value('request_seconds_count', way='none'))
        self.assertEqual(9, self.value('request_wan_bytes_total'))
        self.assertEqual(0, self.value('request_whole_bytes_total'))


class BoundedTest(base.TestCase):

    def test_rare_reasons_are_one(self):
        reasons = [('nova', f'reason {number}', number + 1)
                   for number in range(_MOST + 2)]
        found = agent_metrics._bounded(reasons)
        self.assertEqual(_MOST + 1, len(found))
        self.assertEqual(1 + 2, found['other', 'other'])
        self.assertEqual(_MOST + 2, found['nova', f'reason {_MOST + 1}'])


class MoveValuesTest(base.TestCase):

    def test_volumes_that_came_and_their_bytes(self):
        found = mock.create_autospec(volume_moves.Moves, instance=True,
                                     warmed=3)
        found.counts.return_value = {'received': 2, 'failed': 0}
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.move_values(values, found)))
        self.assertEqual((2, 0, 3 * 4096), tuple(
            registry.get_sample_value(f'diffcache_ssd_cache_{name}', labels)
            for name, labels in (
                ('moves_total', {'outcome': 'received'}),
                ('moves_total', {'outcome': 'failed'}),
                ('warmed_bytes_total', {}))))


class ScrubValuesTest(base.TestCase):

    def test_values(self):
        found = mock.Mock()
        found.report.return_value = {
            'rate': 10, 'needed_rate': 0.5, 'unread': 1, 'overdue_bytes': 7,
            'read_bytes': 20, 'damaged': 2, 'damages': ['one']}
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.scrub_values(values, found)))
        for name, value in (
                ('scrub_rate_bytes_per_second', 10),
                ('scrub_needed_bytes_per_second', 0.5),
                ('scrub_unread_objects', 1), ('scrub_overdue_bytes', 7),
                ('scrub_read_bytes_total', 20),
                ('scrub_damaged_objects_total', 2),
                ('damaged_delivered_objects', 1)):
            self.assertEqual(value, registry.get_sample_value(
                f'diffcache_{name}'), name)


class CertificateValuesTest(base.TestCase):

    def value(self, **files):
        conf = opts.new_config()
        for name, path in files.items():
            conf.set_override(name, path, 'data_plane')
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.certificate_values(values, conf)))
        return registry.get_sample_value(
            'diffcache_cert_expiry_timestamp_seconds')

    def test_its_end(self):
        files = certificates.Authority(self.directory).issue('h1', days=3)
        end = self.value(**files) - time.time()
        self.assertEqual(3, round(end / 86400))

    def test_what_is_not_there_has_none(self):
        files = certificates.Authority(self.directory).issue('h1')
        pathlib.Path(files['tls_cert_file']).write_text('-')
        self.assertEqual([None, None], [self.value(), self.value(**files)])


class VersionValuesTest(base.TestCase):

    def test_indexes_by_outcome(self):
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.version_values(
                values, {'checked': 3, 'refused': 1})))
        self.assertEqual((3, 1), tuple(registry.get_sample_value(
            'diffcache_version_base_indexes_total', {'outcome': outcome})
            for outcome in ('checked', 'refused')))

    def test_reads_of_copies(self):
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.copy_values(values, {'blobs': 2})))
        self.assertEqual(2, registry.get_sample_value(
            'diffcache_version_copy_reads_total', {'what': 'blobs'}))


class FlushValuesTest(base.TestCase):

    def test_flushes_by_outcome(self):
        found = mock.Mock(flushes={'done': 2, 'failed': 1})
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.flush_values(values, found)))
        self.assertEqual([2, 1], [registry.get_sample_value(
            'diffcache_ssd_cache_flushes_total', {'outcome': outcome})
            for outcome in ('done', 'failed')])


class CarryValuesTest(base.TestCase):

    def test_profiles_by_outcome(self):
        found = mock.create_autospec(carrying.Carrying, instance=True,
                                     without_files=3)
        found.counts.return_value = {'carried': 2, 'failed': 0}
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics.Collector(
            lambda values: agent_metrics.carry_values(values, found)))
        self.assertEqual((2, 0), tuple(registry.get_sample_value(
            'diffcache_carried_profiles_total', {'outcome': outcome})
            for outcome in ('carried', 'failed')))
        self.assertEqual(3, registry.get_sample_value(
            'diffcache_carried_without_files_total'))
