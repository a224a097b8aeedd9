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
"""Requests that a busy home refers to hosts which asked before."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal

from diffcache_openstack.cmd import lazy_service
from diffcache_openstack.common import programs
from diffcache_openstack.conf import opts
from diffcache_openstack.sites import views
from tests.functional.lazy import hosts as site_hosts
from tests.functional.lazy import services

_MIB = services.MIB
_CHUNK = 256 << 10
# Bytes per second of a home that sends one chunk for minutes.
_SLOW = 1000


class ReferralsTest(services.LazyServicesTest):
    """A home, and three hosts that it sends chunks to, one at a time.

    :ivar first: the MiB of the image that the first host has
    :ivar second: one more whose home is the home
    """

    def setUp(self):
        super().setUp()
        self.image = self.make_image('image', 1)
        self.repository = self.plane('repository', self.image,
                                     compressed=False)
        hosts = [site_hosts.Host(self, f'host-{at}') for at in range(4)]
        known = [(host.name, host.url) for host in hosts]
        for host in hosts:
            self.serve(host, known)
        ranked = [each['name'] for each in hosts[0].status()['homes']]
        # Groups 1 and 5 have data, and the second in rank is home of both.
        self.first, self.second = _MIB, 5 * _MIB
        [self.home] = [host for host in hosts if host.name == ranked[1]]
        self.holder, self.busy, self.last = (
            host for host in hosts if host is not self.home)
        self.known = known
        self.addCleanup(self.home.plane.set_rate, None)

    def start_service(self, folder):
        conf = opts.new_config(
            ['--config-file', self.write_configuration(folder)])
        found = lazy_service.configuration(conf)
        found['tuning']['fan_out'] = 1
        return self.launch(folder, programs.find('diffcached'), 'supervise',
                           json.dumps(found))

    def serve(self, host, known, **more):
        host.serve([(self.repository.url, True)], known, **more)

    def check_read(self, host, start):
        self.assertEqual(self.content(self.image)[start:start + 4096],
                         host.read(start, 4096))

    @contextlib.contextmanager
    def busy_home(self):
        """Have the holder read a chunk, and the home send another one."""
        self.check_read(self.holder, self.first)
        before = self.home.status()['peers']['requests']
        self.home.plane.set_rate(_SLOW)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            read = pool.submit(self.check_read, self.busy, self.second)
            try:
                self.wait_until(
                    lambda: self.home.status()['peers']['requests'] > before)
                yield
            finally:
                self.home.plane.set_rate(None)
            read.result()

    def check_served_by_home(self, prevent):
        """Read what the holder does not serve, and then the home does.

        :param prevent: keeps the holder from serving
        """
        with concurrent.futures.ThreadPoolExecutor(1) as pool, \
                self.busy_home():
            prevent()
            read = pool.submit(self.check_read, self.last, self.first)
            self.wait_until(lambda: self.referrals(self.last)['failed'])
            self.home.plane.set_rate(None)
            read.result()
        self.assertEqual({'given': 0, 'followed': 0, 'failed': 1},
                         self.referrals(self.last))
        self.assertEqual(1, self.referrals(self.home)['given'])
        self.check_fetched_once()
        for host in (self.home, self.last):
            found = host.status()
            self.assertEqual((0, 0), (found['errors'], found['corrupt']))
        # It stays the home of its chunks.
        self.assertEqual([0], [
            each['failures'] for each in self.last.status()['homes']
            if each['name'] == self.home.name])

    def referrals(self, host):
        return host.status()['referrals']

    def check_fetched_once(self):
        """Check that the two chunks have crossed the WAN once."""
        self.check_sent(2 * _CHUNK)

    def check_sent(self, count):
        """Check that this many bytes have crossed the WAN.

        They are counted after the reader has them.
        """
        self.wait_until(lambda: self.sent() >= count)
        self.assertEqual(count, self.sent())

    def sent(self):
        return self.repository.stats()['sent']['images']


class TestFollowed(ReferralsTest):

    def test_a_busy_home_refers_to_a_host_that_asked_before(self):
        later = [start + at * _CHUNK for start in (self.first, self.second)
                 for at in (1, 2, 3)]
        for start in later:
            self.check_read(self.holder, start)
        with self.busy_home():
            before = self.holder.status()['peers']['requests']
            self.check_read(self.last, self.first)
            self.assertEqual(before + 1,
                             self.holder.status()['peers']['requests'])
        self.assertEqual({'given': 1, 'followed': 0, 'failed': 0},
                         self.referrals(self.home))
        self.assertEqual({'given': 0, 'followed': 1, 'failed': 0},
                         self.referrals(self.last))
        self.check_sent((2 + len(later)) * _CHUNK)
        # It is not busy any more, at the latest soon after it was answered:
        # readers have all bytes before the home knows that they were sent.
        remaining = iter(later)
        self.wait_until(lambda: self.is_answered(next(remaining)))

    def is_answered(self, start):
        """Read with the last host, and say that the home did not refer it."""
        given = self.referrals(self.home)['given']
        self.check_read(self.last, start)
        return self.referrals(self.home)['given'] == given

    def test_a_chunk_that_is_arriving_at_the_other_host_is_waited_for(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool, \
                self.busy_home():
            read = pool.submit(self.check_read, self.last, self.second)
            # The busy host is getting it, and the last one waits there.
            self.wait_until(lambda: self.referrals(self.home)['given'])
            self.home.plane.set_rate(None)
            read.result()
        found = self.referrals(self.last)
        self.assertEqual(1, found['followed'] + found['failed'])
        self.check_fetched_once()

    def test_all_at_once_fetch_one_copy(self):
        hosts = (self.home, self.holder, self.busy, self.last)
        for host in hosts:
            host.plane.set_rate(8e6)
        with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
            for found in pool.map(site_hosts.Host.read, hosts):
                self.assertEqual(self.content(self.image), found)
        data = sum(any(block) * len(block) for block in (
            self.content(self.image)[at:at + _CHUNK]
            for at in range(0, 13 * _MIB, _CHUNK)))
        self.check_sent(data)
        for host in hosts:
            found = host.status()
            self.assertEqual((0, 0), (found['errors'], found['corrupt']))


class TestNotServed(ReferralsTest):
    """The home serves what the host does not that it referred to."""

    def test_a_host_that_is_dead(self):
        self.check_served_by_home(self.holder.kill)

    def test_a_host_that_does_not_answer(self):
        def prevent():
            worker = self.holder.status()['worker_pid']
            os.kill(worker, signal.SIGSTOP)
            self.addCleanup(os.kill, worker, signal.SIGCONT)

        self.check_served_by_home(prevent)

    def test_a_host_without_the_image(self):
        self.check_served_by_home(lambda: self.holder.plane.detach(
            views.Key(views.IMAGES, self.image)))


class TestWithoutReferrals(ReferralsTest):

    def test_a_requester_that_follows_none_is_served(self):
        self.last.daemon.remove(self.image)
        # It cannot announce this name, and so announces none.
        self.serve(self.last, self.known, own='no name of a host')
        self.check_served()

    def test_a_home_that_knows_none_serves(self):
        folder = pathlib.Path(self.home.status()['data_path']).parent
        (folder / 'referrals').unlink()
        self.check_served()

    def check_served(self):
        """Check that the busy home serves what the holder has."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool, \
                self.busy_home():
            before = self.home.status()['peers']['requests']
            read = pool.submit(self.check_read, self.last, self.first)
            self.wait_until(
                lambda: self.home.status()['peers']['requests'] > before)
            self.home.plane.set_rate(None)
            read.result()
        self.assertEqual(0, self.referrals(self.home)['given'])
        self.assertEqual({'given': 0, 'followed': 0, 'failed': 0},
                         self.referrals(self.last))
        self.check_fetched_once()
