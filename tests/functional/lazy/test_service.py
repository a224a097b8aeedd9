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
"""diffcached with several images, sources on data planes, and kills."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.cmd import lazy_service
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import programs
from diffcache_openstack.conf import opts
from tests.functional.lazy import services
from tests import waiting

_MIB = services.MIB
# Reads past the page cache until a file is there, and checks every byte.
_READER = '''
import os, random, sys
path, image, end = sys.argv[1:]
expected = open(image, 'rb').read()
numbers = random.Random(5)
descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
print('open', flush=True)
while not os.path.exists(end):
    offset = numbers.randrange(len(expected))
    got = os.pread(descriptor, 65537, offset)
    assert got and got == expected[offset:offset + len(got)], offset
'''


class ServiceCase(services.LazyServicesTest):
    """A service, an image, and a repository that has it."""

    def setUp(self):
        super().setUp()
        self.image = self.make_image('image', 1)
        self.repository = self.plane('repository', self.image)
        self.daemon = diffcached.Diffcached(f'{self.folder}/socket')
        self.service = self.start()

    def start(self):
        return self.start_service(self.folder)

    def add(self, image, *planes, **more):
        return self.daemon.add(image, {
            'manifest': str(self.manifest(image)), 'wait': 30,
            'sources': [{'peer': url, 'wan': wan} for url, wan in planes],
            **more})

    def add_image(self, **more):
        return self.add(self.image, (self.repository.url, True), **more)

    def status(self, image=None):
        return self.answered(self.daemon, image or self.image)

    def served(self, image=None):
        """The status of an image, once a worker serves it."""
        def find():
            found = self.status(image)
            return found['worker_pid'] and found

        return self.wait_until(find)

    def assert_hydration(self, *wanted):
        """There is soon a worker with this deadline in seconds, and this rate.

        A change replaces the worker, which takes a moment.
        """
        def found():
            plan = self.served()['hydration']
            return plan['deadline_s'], plan['rate']
        self.wait_until(lambda: found() == wanted)
        self.assertEqual(wanted, found())

    def open_reader(self, path):
        end = self.folder / 'end'
        reader = subprocess.Popen(
            [sys.executable, '-c', _READER, path,
             str(self.folder / self.image), str(end)],
            stdout=subprocess.PIPE)
        self.addCleanup(reader.kill)
        self.assertEqual(b'open\n', reader.stdout.readline())
        return reader, end

    def finish(self, reader, end):
        end.touch()
        self.assertEqual(0, reader.wait(waiting.SECONDS))
        reader.stdout.close()


class LazyServiceTest(ServiceCase):

    def test_an_image_is_read_compressed_from_the_repository(self):
        path = self.add_image()['path']
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())
        found = self.status()
        self.assertTrue(found['complete'])
        # 8 MiB that are not zeros, half of which compress to nothing.
        self.assertLess(found['sources'][0]['bytes'], 5 * _MIB)
        self.assertEqual((0, 0), (found['errors'], found['corrupt']))
        self.assertEqual(
            self.content(self.image),
            pathlib.Path(found['data_path']).read_bytes())

    def test_one_small_read_brings_one_frame(self):
        path = self.add_image(prefetch=False)['path']
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(os.close, descriptor)
        self.assertEqual(self.content(self.image)[_MIB:_MIB + 4096],
                         os.pread(descriptor, 4096, _MIB))
        # The rest of the frame comes after the read was answered.
        self.wait_until(lambda: self.status()['present'] == 4)
        # The index of the form, then one request.
        self.assertEqual(1, self.status()['sources'][0]['requests'])

    def test_without_a_compressed_form_leaves_cross_as_they_are(self):
        plain = self.plane('plain', self.image, compressed=False)
        path = self.add(self.image, (plain.url, True))['path']
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())
        self.wait_until(
            lambda: self.status()['sources'][0]['bytes'] > 8 * _MIB)

    def test_a_damaged_compressed_form_is_not_used(self):
        form = self.folder / 'repository' / 'compressed' / self.image
        damaged = bytearray(form.read_bytes())
        damaged[-100_000:] = bytes(100_000)
        form.write_bytes(damaged)
        path = self.add_image()['path']
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())
        self.assertEqual(0, self.status()['errors'])

    def test_a_peer_is_asked_before_the_repository(self):
        peer = self.plane('peer', self.image)
        path = self.add(self.image, (peer.url, False),
                        (self.repository.url, True))['path']
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())
        self.wait_until(
            lambda: self.status()['sources'][0]['bytes'] > 8 * _MIB)
        self.assertEqual(0, self.status()['sources'][1]['requests'])

    def test_peers_that_fail_are_passed_over(self):
        absent = self.plane('absent')
        gone = self.plane('gone', self.image)
        gone.close()
        wrong = self.plane('wrong')
        (self.folder / 'wrong' / 'images' / self.image).write_bytes(
            bytes(len(self.content(self.image))))
        path = self.add(
            self.image, (absent.url, False), (gone.url, False),
            (wrong.url, False), (self.repository.url, True),
            prefetch=False)['path']
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())
        found = self.status()
        self.assertTrue(found['complete'])
        self.assertEqual(0, found['errors'])
        # Reads within one another may each have asked a host in vain.
        for source in found['sources'][:3]:
            self.assertTrue(0 < source['failures'] <= source['requests'])
            self.assertLess(source['requests'],
                            found['sources'][3]['requests'] + 9)
        self.assertLess(0, found['corrupt'])

    def test_a_source_that_comes_back_is_used_again(self):
        path = self.add(self.image, ('http://127.0.0.1:9', False),
                        hydrate='idle')['path']
        self.wait_until(lambda: self.status()['sources'][0]['failures'])
        self.daemon.change(self.image, {'sources': [
            {'peer': self.repository.url, 'wan': True}]})
        self.wait_until(lambda: self.status()['complete'])
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())

    def test_another_key_is_refused(self):
        (self.folder / 'key').write_text(bytes(32).hex())
        path = self.add_image(wait=0)['path']
        with open(path, 'rb') as file:
            file.seek(_MIB)
            self.assertRaises(OSError, file.read, 1)
        # The worker takes the right one when it finds the file changed.
        (self.folder / 'key').write_text(services.KEY.hex())

        def reads():
            try:
                with open(path, 'rb') as file:
                    file.seek(_MIB)
                    return file.read(4096)
            except OSError:
                return None

        self.assertEqual(self.content(self.image)[_MIB:_MIB + 4096],
                         self.wait_until(reads))

    def test_without_a_usable_key_what_has_arrived_is_served(self):
        # Regression: no worker could start, and reads waited for ever.
        path = self.add_image(wait=0)['path']
        with open(path, 'rb') as file:
            wanted = file.read(4096)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        worker = self.served()['worker_pid']
        (self.folder / 'key').chmod(0o640)
        os.kill(worker, signal.SIGKILL)
        self.wait_until(lambda: self.served()['worker_pid'] != worker)
        with open(path, 'rb') as file:
            self.assertEqual(wanted, file.read(4096))
            file.seek(_MIB)
            self.assertRaises(OSError, file.read, 1)
        worker = self.served()['worker_pid']
        (self.folder / 'key').chmod(0o600)
        self.wait_until(lambda: self.served()['worker_pid'] != worker)
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())

    def test_a_key_that_is_replaced_by_one_of_the_same_time_is_used(self):
        # As by a tool that preserves times: the former was used for ever.
        self.add_image()
        worker = self.served()['worker_pid']
        shutil.copy2(self.folder / 'key', self.folder / 'key.new')
        (self.folder / 'key.new').rename(self.folder / 'key')
        self.wait_until(lambda: self.served()['worker_pid'] != worker)

    def test_images_do_not_touch_each_other(self):
        other = self.make_image('other', 2)
        plane = self.plane('second', other)
        self.add_image()
        path = self.add(other, (plane.url, True))['path']
        first = self.status()
        os.kill(first['pid'], signal.SIGKILL)
        with open(path, 'rb') as file:
            self.assertEqual(self.content(other), file.read())
        # Its keeper is started again, and goes on with what is there.
        again = self.wait_until(
            lambda: self.served()['pid'] != first['pid'] and self.served())
        with open(again['path'], 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())

    def test_kills_of_worker_and_service_are_not_seen_by_a_reader(self):
        reader, end = self.open_reader(self.add_image()['path'])
        keeper = self.status()['pid']
        for _ in range(5):
            worker = self.served()['worker_pid']
            os.kill(worker, signal.SIGKILL)
            self.wait_until(
                lambda: self.served()['worker_pid'] != worker)
            self.service.kill()
            self.service.wait()
            self.service = self.start()
            self.assertEqual(keeper, self.served()['pid'])
        self.finish(reader, end)
        self.assertEqual(0, self.status()['errors'])
        self.assertEqual(5, self.status()['worker_restarts'])

    def test_all_is_served_again_after_everything_was_killed(self):
        path = self.add_image()['path']
        with open(path, 'rb') as file:
            file.read(_MIB * 2)
        keeper = self.status()['pid']
        self.service.kill()
        self.service.wait()
        os.kill(keeper, signal.SIGKILL)
        self.repository.close()
        self.service = self.start()
        self.assertNotEqual(keeper, self.served()['pid'])
        # What had arrived is there without a source.
        with open(path, 'rb') as file:
            self.assertEqual(self.content(self.image)[:_MIB * 2],
                             file.read(_MIB * 2))

    def test_hydration_is_changed_while_the_image_is_read(self):
        reader, end = self.open_reader(
            self.add_image(hydrate='none', prefetch=False)['path'])
        changed = self.daemon.change(self.image, {'hydrate': 'idle'})
        self.assertEqual(self.image, changed['content_id'])
        found = self.wait_until(
            lambda: self.status()['complete'] and self.status())
        self.assertEqual('idle', found['hydration']['mode'])
        self.finish(reader, end)
        # A worker that was replaced on purpose is no fault.
        self.assertEqual(0, self.status()['worker_restarts'])

    def test_a_change_is_answered_when_it_holds(self):
        self.add_image(hydrate='none', prefetch=False)
        for rate in range(4096, 4106):
            for mode in ('idle', 'none'):
                found = self.daemon.change(
                    self.image, {'hydrate': mode, 'rate': rate})['hydration']
                self.assertEqual((mode, rate), (found['mode'], found['rate']))

    def test_another_server_of_an_image_does_not_reset_its_deadline(self):
        self.add_image(hydrate='none')
        self.daemon.change(self.image, {'hydrate': {'seconds': 3600.0},
                                        'rate': 4096})
        self.assert_hydration(3600.0, 4096.0)
        self.add_image(hydrate='idle', rate=8192)
        self.daemon.change(self.image, {'wait': 20})
        self.assert_hydration(3600.0, 4096.0)

    def test_the_same_deadline_again_counts_from_then(self):
        self.add_image(hydrate='none')
        deadline = {'hydrate': {'seconds': 3600.0}, 'rate': 4096}
        self.daemon.change(self.image, deadline)
        self.assert_hydration(3600.0, 4096.0)
        before = self.served()['worker_pid']
        self.daemon.change(self.image, deadline)
        # Only what is a change replaces the worker, and sets the time anew.
        found = self.wait_until(lambda: self.served()['worker_pid'] != before
                                and self.served())
        self.assertAlmostEqual(3600.0, found['hydration']['deadline_s'])

    def test_a_rate_is_removed(self):
        self.add_image(hydrate='none', rate=4096)
        self.daemon.change(self.image, {'wait': 20})
        self.assert_hydration(None, 4096.0)
        self.daemon.change(self.image, {'rate': None})
        self.assert_hydration(None, None)

    def test_what_handles_read_is_learned_and_outlives_workers(self):
        path = self.add_image(prefetch=False)['path']
        for chunks in ((4, 5, 4), (4,), ()):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
            self.addCleanup(os.close, descriptor)
            for chunk in chunks:
                os.pread(descriptor, 4096, chunk << 18)
                worker = self.served()['worker_pid']
                os.kill(worker, signal.SIGKILL)
                self.wait_until(
                    lambda: self.served()['worker_pid'] != worker)
        found = self.daemon.profile(self.image)
        self.assertEqual((262144, 2), (found['chunk'], found['instances']))
        self.assertEqual([[4, 2], [5, 1]],
                         [row[:2] for row in found['profile']])
        self.assertTrue(all(row[2] > 0 for row in found['profile']))
        self.assertEqual(2, self.served()['instances'])
        self.assertRaises(exceptions.NotFound, self.daemon.profile, '0' * 64)

    def test_a_profile_is_taken_without_a_new_worker(self):
        path = self.add_image()['path']
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(os.close, descriptor)
        os.pread(descriptor, 4096, 4 << 18)
        worker = self.served()['worker_pid']
        profile = self.folder / 'profile'
        for text in ('{"format": 1, "chunk": 262144, "profile": [[4, 0, 0]]}',
                     '{"format": 1, "chunk": 262144, "profile":'
                     ' [[99999, 1, 1]]}',
                     '{"profile": [[4, 1, 0]]}', '[', '{}'):
            profile.write_text(text)
            self.assertRaises(exceptions.InvalidInput, self.daemon.change,
                              self.image, {'profile': str(profile)})
        self.assertRaises(exceptions.DiffCacheError, self.daemon.change,
                          self.image, {'profile': str(self.folder / 'none')})
        for chunk, present in ((16, 8), (28, 12)):
            profile.write_text(json.dumps(
                {'format': 1, 'chunk': 262144, 'profile': [[chunk, 3, 1.5]]}))
            self.daemon.change(self.image, {'profile': str(profile)})
            # A frame of the compressed form has four chunks.
            self.wait_until(lambda: self.served()['present'] == present)
        self.assertEqual(worker, self.served()['worker_pid'])
        self.assertEqual(0, self.status()['worker_restarts'])

    def test_an_image_that_is_open_is_not_removed(self):
        found = self.add_image()
        with open(found['path'], 'rb'):
            self.assertRaises(exceptions.Conflict, self.daemon.remove,
                              self.image)
        self.daemon.remove(self.image)
        self.assertEqual([], self.daemon.images())
        self.assertFalse(os.path.exists(os.path.dirname(found['path'])))
        self.assertFalse(os.path.exists(os.path.dirname(found['data_path'])))
        self.assertRaises(exceptions.NotFound, self.daemon.remove, self.image)
        # And may be served again.
        with open(self.add_image()['path'], 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())

    def test_times_can_be_set_and_nothing_else(self):
        path = self.add_image()['path']
        os.utime(path)
        self.assertLess(abs(time.time() - os.stat(path).st_mtime), 3600)
        os.utime(path, (1000, 1000))
        self.assertEqual(1000, os.stat(path).st_mtime)
        for change in (lambda: os.chmod(path, 0o777),
                       lambda: os.chown(path, 1, 1),
                       lambda: os.truncate(path, 1),
                       lambda: os.remove(path),
                       lambda: open(path, 'r+b'),
                       lambda: open(f'{path}x', 'w')):
            self.assertRaises(OSError, change)
        self.assertEqual(0o440, os.stat(path).st_mode & 0o777)

    def start_with(self, options):
        """Start the service anew with some lines of ``[lazy]``."""
        self.service.terminate()
        self.service.wait()
        path = pathlib.Path(self.write_configuration(self.folder))
        path.write_text(path.read_text().replace(
            '[lazy]\n', f'[lazy]\n{options}\n'))
        self.service = self.launch(
            self.folder, sys.executable, '-c', services.SERVICE,
            '--config-file', str(path))

    def assert_threads(self, **wanted):
        """The worker soon has as many threads of these names."""
        def found():
            worker = self.served()['worker_pid']
            names = [name.read_text().strip() for name in pathlib.Path(
                f'/proc/{worker}/task').glob('*/comm')]
            return {name: names.count(name) for name in wanted}
        self.wait_until(lambda: found() == wanted)
        self.assertEqual(wanted, found())

    def test_a_worker_has_threads_as_configured(self):
        self.add_image()
        self.assert_threads(fuse=64, prefetch=3)
        self.start_with('in_flight = 9')
        # What is served already stays as it was, with a new worker, too.
        worker = self.served()['worker_pid']
        os.kill(worker, signal.SIGKILL)
        self.wait_until(lambda: self.served()['worker_pid'] != worker)
        self.assert_threads(fuse=64, prefetch=3)
        self.daemon.remove(self.image)
        with open(self.add_image()['path'], 'rb') as file:
            self.assert_threads(fuse=64, prefetch=9)
            self.assertEqual(self.content(self.image), file.read())

    def test_the_threshold_says_which_chunks_are_of_the_profile(self):
        profile = self.folder / 'profile'
        profile.write_text(json.dumps(
            {'format': 1, 'chunk': 262144,
             'profile': [[16, 10, 1], [28, 4, 1]]}))
        for options, chunks in (('', 2), ('threshold = 0.5', 1),
                                ('threshold = 4', 2)):
            self.start_with(options)
            self.add_image(profile=str(profile), hydrate='profile')
            wanted = {'chunks': chunks, 'present': chunks}
            self.wait_until(lambda: self.served()['profile'] == wanted)
            # A frame of the compressed form has four chunks.
            self.wait_until(lambda: self.served()['present'] >= 4 * chunks)
            self.assertEqual(4 * chunks, self.served()['present'], options)
            self.daemon.remove(self.image)

    def test_what_cannot_be_served_leaves_nothing(self):
        (self.folder / 'bad').write_bytes(b'no manifest')
        other = self.make_image('other', 3)
        good = {'manifest': str(self.manifest(self.image)), 'wait': 30,
                'sources': ['/nonexistent']}
        for change in ({'manifest': str(self.folder / 'bad')},
                       {'manifest': str(self.manifest(other))},
                       {'sources': []}, {'sources': [{'peer': 'x'}]},
                       {'wait': -1}, {'rate': 0}, {'unknown': 1},
                       {'profile': str(self.folder / 'bad')}):
            self.assertRaises(
                exceptions.DiffCacheError, self.daemon.add, self.image,
                {**good, **change})
            self.assertEqual([], self.daemon.images(), change)
            self.assertEqual([], os.listdir(self.folder / 'state' / 'images'))
        self.assertRaises(exceptions.DiffCacheError, self.daemon.add,
                          '../../etc', good)
        self.assertRaises(exceptions.NotFound, self.daemon.change,
                          self.image, {'hydrate': 'idle'})

    def test_a_second_service_is_refused(self):
        second = subprocess.run(
            [sys.executable, '-c', services.SERVICE, '--config-file',
             str(self.folder / 'conf')], stderr=subprocess.PIPE, text=True)
        self.assertEqual(1, second.returncode)
        self.assertIn('another diffcached uses', second.stderr)
        self.assertTrue(self.answers(self.daemon))

    def test_the_socket_is_the_service_s_own(self):
        found = os.stat(self.folder / 'socket')
        self.assertEqual(0o600, found.st_mode & 0o777)
        document = json.dumps(self.daemon.images())
        self.assertNotIn(services.KEY.hex(), document)


class ReplacedProgramTest(ServiceCase):
    """Another diffcached is installed while images are read."""

    def start(self):
        self.program = self.folder / 'bin' / 'diffcached'
        if not self.program.exists():
            self.program.parent.mkdir()
            self.install(programs.find('diffcached'))
        conf = opts.new_config(
            ['--config-file', self.write_configuration(self.folder)])
        return self.launch(
            self.folder, self.program, 'supervise',
            json.dumps(lazy_service.configuration(conf)))

    def install(self, source):
        """Put a copy in place of the program, as a package manager does."""
        fresh = self.program.with_suffix('.new')
        shutil.copy(source, fresh)
        fresh.rename(self.program)

    def restart(self):
        self.service.terminate()
        self.assertEqual(0, self.service.wait(waiting.SECONDS))
        self.service = self.start()

    def runs_installed(self, name):
        """Whether a process of the image runs what is installed now."""
        pid = self.status().get(name)
        try:
            return bool(pid) and os.path.samefile(f'/proc/{pid}/exe',
                                                  self.program)
        except FileNotFoundError:
            # It has just ended.
            return False

    def assert_read_on(self, reader):
        """A reader, and the service, notice nothing of the next second."""
        reads = self.served()['reads']
        self.wait_until(lambda: self.served()['reads'] > reads + 20)
        self.assertIsNone(reader.poll())

    def test_workers_are_started_after_the_program_was_replaced(self):
        reader, end = self.open_reader(self.add_image()['path'])
        keeper = self.served()['pid']
        for change in (lambda: self.install(programs.find('diffcached')),
                       self.program.unlink):
            change()
            worker = self.served()['worker_pid']
            os.kill(worker, signal.SIGKILL)
            self.wait_until(lambda: self.served()['worker_pid'] != worker)
            self.assert_read_on(reader)
            self.assertEqual(keeper, self.served()['pid'])
        self.finish(reader, end)

    def test_keepers_are_started_after_the_program_was_replaced(self):
        self.program.unlink()
        with open(self.add_image()['path'], 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())

    def test_keepers_and_workers_are_exchanged_under_a_reader(self):
        reader, end = self.open_reader(self.add_image()['path'])
        keeper = self.served()['pid']
        for _ in range(5):
            self.install(programs.find('diffcached'))
            self.assertFalse(self.runs_installed('pid'))
            self.restart()
            self.wait_until(lambda: self.runs_installed('pid'))
            self.wait_until(lambda: self.runs_installed('worker_pid'))
            self.assert_read_on(reader)
            self.assertEqual(keeper, self.served()['pid'])
        found = self.status()
        self.assertEqual((0, 0), (found['errors'], found['worker_restarts']))
        self.finish(reader, end)
        name = pathlib.Path(f'/proc/{found["worker_pid"]}/comm').read_text()
        self.assertEqual('diffcached\n', name)

    def test_a_program_that_cannot_take_over_is_left_alone(self):
        reader, end = self.open_reader(self.add_image()['path'])
        first = self.served()
        refusing = self.folder / 'refusing'
        refusing.write_text('#!/bin/sh\nexit 1\n')
        refusing.chmod(0o755)
        self.install(refusing)
        os.kill(first['pid'], signal.SIGHUP)
        self.daemon.change(self.image, {'rate': 1 << 30})
        self.wait_until(
            lambda: self.served()['worker_pid'] != first['worker_pid'])
        self.assert_read_on(reader)
        self.assertEqual(first['pid'], self.served()['pid'])
        self.assertFalse(self.runs_installed('worker_pid'))
        self.finish(reader, end)

    def test_a_setting_that_comes_with_the_program_holds(self):
        reader, end = self.open_reader(self.add_image()['path'])
        self.install(programs.find('diffcached'))
        self.daemon.change(self.image, {'rate': 1 << 30})
        self.wait_until(lambda: self.runs_installed('worker_pid'))
        self.assertEqual(1 << 30, self.served()['hydration']['rate'])
        self.assert_read_on(reader)
        self.finish(reader, end)
