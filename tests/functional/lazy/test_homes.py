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
"""Hosts of a site that fetch an image for one another."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import threading

from tests.functional.lazy import hosts as site_hosts
from tests.functional.lazy import services

_MIB = services.MIB


class HomesTest(services.LazyServicesTest):

    def setUp(self):
        super().setUp()
        self.image = self.make_image('image', 1)
        self.data = sum(
            any(block) * len(block) for block in (
                self.content(self.image)[at:at + 4 * 65536]
                for at in range(0, 13 * _MIB, 4 * 65536)))
        self.repository = self.plane('repository', self.image,
                                     compressed=False)
        self.wan = (self.repository.url, True)

    def hosts(self, count):
        """Hosts of a site that serve the image."""
        found = [site_hosts.Host(self, f'host-{at}') for at in range(count)]
        for host in found:
            host.serve([self.wan], [(each.name, each.url) for each in found])
        return found

    def home_and_other(self):
        """Two hosts, the first of which is home of the first group with data.

        That is the second group, and its home the second in rank.
        """
        hosts = self.hosts(2)
        second = hosts[0].status()['homes'][1]['name']
        home, other = sorted(hosts, key=lambda host: host.name != second)
        # The other announces itself by a look at its first chunk.
        self.wait_until(lambda: home.status()['peers']['requests'])
        return home, other

    def sent(self, plane=None):
        """Bytes of images that a plane has sent, the repository's by default.

        They are counted after the reader has them.
        """
        counts = (plane or self.repository).stats()['sent']
        return counts['images'] + counts['compressed']

    def assert_fetched_once(self):
        self.wait_until(lambda: self.sent() >= self.data)
        self.assertEqual(self.data, self.sent())

    def read_all(self, hosts):
        """Have all hosts read the image at the same time, and check it."""
        with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
            for found in pool.map(site_hosts.Host.read, hosts):
                self.assertEqual(self.content(self.image), found)

    def test_a_site_fetches_one_copy_whoever_reads(self):
        hosts = self.hosts(3)
        self.read_all(hosts)
        self.assert_fetched_once()
        for host in hosts:
            found = host.status()
            self.assertTrue(found['complete'])
            self.assertEqual((0, 0), (found['errors'], found['corrupt']))
            # Each fetched its share, and served it to the others.
            self.assertLess(0, found['sources'][0]['bytes'])
            self.assertLess(0, found['peers']['bytes'])
            [own] = [each for each in found['homes'] if each['own']]
            self.assertEqual((host.name, 0), (own['name'], own['requests']))

    def test_a_read_elsewhere_is_one_request_to_the_home(self):
        home, other = self.home_and_other()
        self.assertEqual(self.content(self.image)[_MIB:2 * _MIB],
                         other.read(_MIB, _MIB))
        # Bytes are counted when all of a request have come.
        self.wait_until(lambda: [
            each['bytes'] for each in other.status()['homes']
            if not each['own']] == [_MIB])
        self.assertEqual(0, other.status()['sources'][0]['requests'])
        self.assertEqual(_MIB, home.status()['sources'][0]['bytes'])
        self.assertEqual(0, home.status()['reads'])

    def test_a_home_that_is_slow_is_waited_for(self):
        """Regression: a connection that had answered before was not."""
        home, other = self.home_and_other()
        worker = home.status()['worker_pid']
        os.kill(worker, signal.SIGSTOP)
        self.addCleanup(self.resume, worker)
        before = self.connections(home)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            read = pool.submit(other.read, _MIB, 65536)
            # Each follows one that got no answer.
            self.wait_until(lambda: self.connections(home) > before + 2)
            self.resume(worker)
            self.assertEqual(self.content(self.image)[_MIB:_MIB + 65536],
                             read.result())
        self.assertEqual(0, other.status()['sources'][0]['requests'])
        [asked] = [each for each in other.status()['homes']
                   if not each['own']]
        self.assertEqual(0, asked['failures'])

    def test_a_host_that_is_slow_to_say_what_it_has_stays_a_home(self):
        """Regression: it was passed over, and its chunks fetched twice."""
        home, other = self.home_and_other()
        worker = home.status()['worker_pid']
        os.kill(worker, signal.SIGSTOP)
        self.addCleanup(self.resume, worker)
        # The other is home of this group, and looks for it at the slow one.
        self.assertEqual(self.content(self.image)[4 * _MIB:4 * _MIB + 9],
                         other.read(4 * _MIB, 9))
        self.resume(worker)
        self.assertEqual(self.content(self.image)[_MIB:_MIB + 9],
                         other.read(_MIB, 9))
        self.assertEqual([1, 1], [host.status()['sources'][0]['requests']
                                  for host in (home, other)])

    def connections(self, host):
        return host.plane.stats()['connections']

    def resume(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def test_what_was_compressed_crosses_the_wan_once(self):
        self.repository.close()
        self.repository = self.plane('compressed', self.image)
        self.wan = (self.repository.url, True)
        hosts = self.hosts(3)
        self.read_all(hosts)
        indexes = sum(1 for host in hosts
                      if host.status()['sources'][0]['requests'])
        # Half of each block compresses well.
        self.assertLess(self.sent(), 0.6 * self.data + indexes * 10_000)

    def test_a_site_of_two_thousand_hosts(self):
        # Regression: its homes were an argument of the worker's program, and
        # longer than the kernel takes one.
        host = site_hosts.Host(self, 'host')
        host.serve([self.wan], [(host.name, host.url)] + [
            (f'compute-{at:04}.a-rather-long-name.of-a-site.example.com',
             'http://127.0.0.1:9') for at in range(1999)])
        self.assertEqual(self.content(self.image)[_MIB:_MIB + 4096],
                         host.read(_MIB, 4096))

    def test_together_hosts_hydrate_one_copy(self):
        hosts = self.hosts(3)
        for host in hosts:
            host.daemon.change(self.image, {'hydrate': 'idle'})
        for host in hosts:
            self.wait_until(lambda host=host: host.status()['complete'])
            self.assertEqual(
                self.content(self.image),
                pathlib.Path(host.status()['data_path']).read_bytes())
        # A change restarts the worker: that may cut a fetch off, and others
        # pass it over meanwhile. Each by itself would fetch three copies.
        self.assertLess(self.sent(), 2 * self.data)

    def test_a_home_that_is_killed_is_passed_over(self):
        hosts = self.hosts(3)
        self.read_all(hosts[:2])
        # Regression: without the wait, bytes of the last read that were
        # counted after it seemed to have crossed a second time.
        self.assert_fetched_once()
        hosts[2].read(0, 6 * _MIB)
        self.assertEqual(self.data, self.sent())
        hosts[0].kill()
        self.read_all(hosts[1:])
        for host in hosts[1:]:
            self.assertEqual(0, host.status()['errors'])
        # All that the killed host was home of is at the one that had read it.
        self.assertEqual(self.data, self.sent())

    def test_a_home_that_is_killed_in_the_middle_costs_what_it_had(self):
        hosts = self.hosts(3)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            reads = [pool.submit(host.read) for host in hosts[1:]]
            self.wait_until(lambda: self.sent() > 2 * _MIB)
            hosts[0].kill()
            for read in reads:
                self.assertEqual(self.content(self.image), read.result())
        self.assertLess(self.sent(), 1.5 * self.data)

    def test_a_host_that_begins_later_fetches_nothing_again(self):
        first, second = (site_hosts.Host(self, f'host-{at}')
                         for at in range(2))
        known = [(host.name, host.url) for host in (first, second)]
        first.serve([self.wan], known)
        self.read_all([first])
        self.assert_fetched_once()
        second.serve([self.wan], known)
        self.read_all([second])
        self.assertEqual(self.data, self.sent())
        self.assertEqual(0, second.status()['sources'][0]['requests'])

    def test_a_host_that_does_not_serve_hides_no_other(self):
        """What it stood before was fetched once more."""
        hosts = [site_hosts.Host(self, f'host-{at}') for at in range(3)]
        known = [(host.name, host.url) for host in hosts]
        hosts[0].serve([self.wan], known)
        self.read_all(hosts[:1])
        self.assert_fetched_once()
        # In rank after the second is one that does not serve the image, and
        # then the first.
        ranked = [each['name'] for each in hosts[0].status()['homes']]
        place = (ranked.index(hosts[0].name) + 1) % 3
        [second] = [host for host in hosts if host.name == ranked[place]]
        second.serve([self.wan], known)
        for start in range(place * _MIB, 13 * _MIB, 3 * _MIB):
            self.assertEqual(self.content(self.image)[start:start + _MIB],
                             second.read(start, _MIB))
        self.assertEqual(self.data, self.sent())

    def test_hosts_that_take_each_other_for_homes_wait_for_no_circle(self):
        hosts = [site_hosts.Host(self, f'host-{at}') for at in range(2)]
        for host, other in zip(hosts, reversed(hosts)):
            # Each believes that the other is home of everything, and holds it.
            host.serve([(other.url, False), self.wan],
                       [(other.name, other.url)])
        self.read_all(hosts)
        for host in hosts:
            self.assertEqual(0, host.status()['errors'])

    def test_without_a_source_a_circle_of_homes_ends(self):
        hosts = [site_hosts.Host(self, f'host-{at}') for at in range(2)]
        self.repository.close()
        for host, other in zip(hosts, reversed(hosts)):
            host.serve([(other.url, False), self.wan],
                       [(other.name, other.url)], wait=2)
        for host in hosts:
            self.assertRaises(OSError, host.read, _MIB, 10)
            self.assertLess(host.status()['peers']['requests'], 50)

    def test_hosts_of_earlier_releases_are_passed_over(self):
        earlier = self.plane('earlier')
        host = site_hosts.Host(self, 'host-0')
        host.serve([self.wan], [('earlier', earlier.url),
                                (host.name, host.url)])
        self.read_all([host])
        self.assertEqual(0, host.status()['errors'])

    def test_a_home_with_wrong_bytes_is_left_alone(self):
        wrong = self.plane('wrong')
        (self.folder / 'wrong' / 'images' / self.image).write_bytes(
            bytes(len(self.content(self.image))))
        host = site_hosts.Host(self, 'host-0')
        host.serve([self.wan], [('wrong', wrong.url), (host.name, host.url)])
        self.read_all([host])
        found = host.status()
        self.assertLess(0, found['corrupt'])
        self.assertEqual(0, found['errors'])
        [bad] = [each for each in found['homes'] if not each['own']]
        # Reads within one another may each have asked in vain.
        self.assertLess(bad['failures'], 9)

    def test_a_home_that_is_silent_does_not_keep_a_read(self):
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)
        accepted = []

        def accept():
            while True:
                try:
                    accepted.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        self.addCleanup(lambda: [each.close() for each in accepted])
        host = site_hosts.Host(self, 'host-0')
        url = f'http://127.0.0.1:{listener.getsockname()[1]}'
        host.serve([self.wan], [('silent', url)], wait=8)
        self.assertEqual(self.content(self.image)[_MIB:_MIB + 9],
                         host.read(_MIB, 9))
        self.assertEqual(0, host.status()['errors'])
        self.assertTrue(accepted)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()

    def test_a_worker_that_is_killed_is_asked_again(self):
        hosts = self.hosts(2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            reads = [pool.submit(host.read) for host in hosts]
            for host in hosts:
                os.kill(host.status()['worker_pid'], signal.SIGKILL)
            for read in reads:
                self.assertEqual(self.content(self.image), read.result())
        for host in hosts:
            self.assertEqual(0, host.status()['errors'])
