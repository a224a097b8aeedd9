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
"""Precache jobs of a site whose bytes are counted."""

import threading
import time
import uuid

from diffcache_openstack.common import contexts
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db.planning import precache as db
from diffcache_openstack import objects
from diffcache_openstack.objects import precache
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_control_api
from tests.functional.agent import test_embedded
from tests import waiting

HOST = 'host-1'
RATE = 2_000_000
# What a transfer may be ahead of its rate: what it may catch up with, and
# what was read and not yet accounted for.
AHEAD = 0.25 * RATE
EVERYBODY = listing.Viewer(None, True)


class TestRate(test_embedded.EmbeddedTestCase):

    def image_contents(self):
        # None that a plan may place beside those of a job: its bytes would be
        # counted, and no limit of a job holds for it.
        found = super().image_contents()
        return {name: found[name] for name in ('system', 'other')}

    def new_site(self, options=None):
        return super().new_site({
            ('conductor', 'check_interval'): 1,
            ('fill', 'concurrency'): 2, **(options or {})})

    def setUp(self):
        super().setUp()
        conf = self.site._conf(self.site._keys.of(host_keys.CONTROLLER,
                                                  'embedded'))
        bus = buses.open_bus(conf, host_keys.CONTROLLER)
        self.addCleanup(bus.close)
        self.control = conductor_control_api.ControlAPI(bus, conf)
        self.database = engine.Database(conf)
        self.addCleanup(self.database.close)
        self.context = contexts.RequestContext.for_service('test')

    def create(self, *images, **values):
        job = objects.PrecacheJob(
            id=str(uuid.uuid4()), images=list(images), hosts=[HOST],
            pinned=True, **values)
        self.control.create_precache_job(self.context, job)
        return job.id

    def targets(self, job_id):
        return self.database.look(db.list_targets, job_id, {},
                                  listing.Page(100)).entries

    def received(self):
        return self.site.hosts[HOST].plane.stats()['received']['images']

    def watch(self, job_id):
        """Bytes between two times, and targets seen, until it is ready."""
        samples, seen = [], []
        pause = threading.Event()

        def is_ready():
            before = time.monotonic()
            received = self.received()
            samples.append((before, received, time.monotonic()))
            seen.extend(self.targets(job_id))
            pause.wait(0.02)
            return self.database.look(db.get_job, EVERYBODY, job_id)[
                'state'] == precache.READY

        waiting.until(is_ready, 'the job to be ready')
        return samples, seen

    def assertNeverFaster(self, samples, rate):
        """No window of time, whichever, had more bytes than it may have."""
        for number, (start, before, _) in enumerate(samples):
            for _, after, end in samples[number + 1:]:
                self.assertLessEqual(after - before,
                                     rate * (end - start) + AHEAD)

    def test_a_jobs_rate_holds_for_all_it_fetches(self):
        job_id = self.create('system', 'other', rate=RATE)
        samples, seen = self.watch(job_id)
        self.assertNeverFaster(samples, RATE)
        self.assertEqual(14 * 2 ** 20, samples[-1][1])
        # It was told on the way how far it was.
        self.assertTrue([
            target for target in seen
            if 0 < target['bytes_done'] < target['bytes_total']])
        for target in self.targets(job_id):
            self.assertEqual(
                (precache.READY, target['bytes_total']),
                (target['state'], target['bytes_done']))

    def test_another_rate_holds_from_then_on(self):
        # With this rate alone the image would take seven minutes.
        job_id = self.create('system', rate=20_000)
        waiting.until(lambda: self.received() > 0, 'the first bytes')
        self.control.update_precache_job(self.context, job_id, 1,
                                         {'rate': None})
        self.watch(job_id)
        [target] = self.targets(job_id)
        self.assertEqual(target['bytes_total'], target['bytes_done'])

    def test_what_the_source_lost_is_told(self):
        repository = self.site.repository.held
        key = self.image('other')
        repository.path(key).unlink()
        job_id = self.create('other')
        waiting.until(lambda: any(
            target['state'] == precache.FAILED
            for target in self.targets(job_id)), 'the failure')
        [target] = self.targets(job_id)
        self.assertGreaterEqual(target['attempts'], 3)
        self.assertIn(key.id, target['message'])
        self.assertIsNotNone(target['retry_at'])
