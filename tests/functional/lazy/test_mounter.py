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
"""diffcached without capabilities, and the mounter, which has one."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.cmd import lazy_service
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import programs
from diffcache_openstack.conf import opts
from tests.functional.lazy import test_service
from tests import waiting

# Users without a name, of diffcached, of the mounter and of somebody else.
USER, MOUNTER, OTHER = 64001, 64002, 64003
_SYS_ADMIN = 1 << 21
_ID = '0a' * 32


def _capabilities(pid: int) -> int:
    """Return the permitted and ambient capabilities of a process."""
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return sum(int(line.split()[1], 16) for line in status.splitlines()
               if line.startswith(('CapPrm', 'CapAmb')))


@contextlib.contextmanager
def _as_user(uid: int):
    """Connect sockets as another user, whom their peers see."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


class MounterCase(test_service.ServiceCase):
    """diffcached as a user without rights, and a mounter for it."""

    def start(self):
        """Start both; what is to be written belongs to the user."""
        self.mount = self.folder / 'mount'
        self.socket = self.folder / 'mounter.sock'
        for folder in (self.folder, self.folder.parent):
            folder.chmod(0o711)
        self.program = self.folder / 'diffcached'
        shutil.copy(programs.find('diffcached'), self.program)
        for name in ('state', 'mount', 'sockets'):
            (self.folder / name).mkdir(mode=0o711)
            os.chown(self.folder / name, USER, USER)
        os.chown(self.folder / 'key', USER, USER)
        self.daemon = diffcached.Diffcached(
            f'{self.folder}/sockets/diffcached')
        self.addCleanup(self.unmount_all)
        self.listen()
        self.start_mounter()
        return self.start_diffcached()

    def mounts(self):
        """Return the options of the mounts of diffcached here, by path."""
        lines = pathlib.Path('/proc/self/mounts').read_text().splitlines()
        return {words[1]: words[3] for words in map(str.split, lines)
                if words[1].startswith(str(self.folder))
                and words[2] == 'fuse.diffcached'}

    def unmount_all(self):
        for path in self.mounts():
            subprocess.run(['umount', '--lazy', path], check=False)

    def listen(self):
        """Listen as systemd does, for a mounter that is started later."""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(self.listener.close)
        self.listener.bind(str(self.socket))
        self.socket.chmod(0o600)
        os.chown(self.socket, USER, USER)
        self.listener.listen(64)

    def stop_listening(self):
        self.listener.close()
        self.socket.unlink()

    def start_mounter(self, *prefix, most=1024):
        """Start the mounter as its unit does; return its process."""
        sets = [f'--{kind}=-all,+sys_admin' for kind in
                ('bounding-set', 'inh-caps', 'ambient-caps')]
        self.mounter = subprocess.Popen(
            [*prefix, 'setpriv', f'--reuid={MOUNTER}', f'--regid={MOUNTER}',
             '--clear-groups', '--no-new-privs', *sets, self.program, 'mount',
             self.mount, str(most)], stdin=self.listener)
        self.addCleanup(self.mounter.wait)
        self.addCleanup(self.mounter.kill)

    def stop_mounter(self):
        self.mounter.kill()
        self.mounter.wait()

    def start_diffcached(self):
        file = self.write_configuration(self.folder)
        text = (f'[lazy]\nsocket = {self.folder}/sockets/diffcached\n'
                f'mounter = {self.socket}\n')
        with open(file, 'a') as conf:
            conf.write(text)
        found = lazy_service.configuration(
            opts.new_config(['--config-file', file]))
        self.log = self.folder / 'log'
        with open(self.log, 'a') as log:
            process = subprocess.Popen(
                [self.program, 'supervise', json.dumps(found)], user=USER,
                group=USER, extra_groups=(), umask=0o022, stderr=log)
        self.addCleanup(self._end_keepers, self.folder)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_until(lambda: self.answers(self.daemon))
        return process

    def restart_diffcached(self):
        self.service.terminate()
        self.assertEqual(0, self.service.wait(waiting.SECONDS))
        self.service = self.start_diffcached()

    def assert_read(self):
        with open(self.served()['path'], 'rb') as file:
            self.assertEqual(self.content(self.image), file.read())

    def ask(self, message: bytes, uid: int = USER, more=()) -> bytes:
        """Return the answer to a request; descriptors in it are closed."""
        with self.connect(uid) as client:
            client.sendmsg([message], more)
            answer, ancillary, _, _ = client.recvmsg(4096, 1024)
        for _, _, data in ancillary:
            os.close(int.from_bytes(data, 'little'))
        return answer

    def connect(self, uid: int = USER) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(client.close)
        client.settimeout(waiting.SECONDS)
        with _as_user(uid):
            client.connect(str(self.socket))
        return client

    def make_folder(self, name: str = _ID, owner: int = USER) -> pathlib.Path:
        folder = self.mount / name
        folder.mkdir()
        os.chown(folder, owner, owner)
        return folder


class MounterTest(MounterCase):

    def test_images_are_served_without_capabilities(self):
        path = self.add_image()['path']
        self.assert_read()
        found = self.status()
        for pid in (self.service.pid, found['pid'], found['worker_pid']):
            self.assertEqual(0, _capabilities(pid))
            self.assertEqual(USER, os.stat(f'/proc/{pid}').st_uid)
        self.assertEqual(2 * _SYS_ADMIN, _capabilities(self.mounter.pid))
        options = self.mounts()[os.path.dirname(path)].split(',')
        self.assertLessEqual({'nosuid', 'nodev', 'noexec', 'allow_other'},
                             set(options))

    def test_an_image_that_is_open_is_not_removed(self):
        path = self.add_image()['path']
        with open(path, 'rb'):
            self.assertRaises(exceptions.Conflict, self.daemon.remove,
                              self.image)
            self.assertIn(os.path.dirname(path), self.mounts())
        self.daemon.remove(self.image)
        self.assertFalse(os.path.exists(os.path.dirname(path)))
        self.add_image()
        self.assert_read()

    def test_the_mount_of_a_keeper_that_died_is_replaced(self):
        self.add_image()
        first = self.served()
        os.kill(first['pid'], signal.SIGKILL)
        self.wait_until(lambda: self.served()['pid'] != first['pid'])
        self.assert_read()
        self.assertEqual([str(self.mount / self.image)], list(self.mounts()))

    def test_a_keeper_that_ends_unmounts(self):
        self.add_image()
        keeper = self.served()['pid']
        self.service.kill()
        self.service.wait()
        os.kill(keeper, signal.SIGTERM)
        self.wait_until(lambda: not self.mounts())
        self.assertEqual([], list(self.mounts()))

    def test_kills_of_service_and_mounter_are_not_seen_by_a_reader(self):
        reader, end = self.open_reader(self.add_image()['path'])
        keeper = self.served()['pid']
        self.stop_mounter()
        self.restart_diffcached()
        self.start_mounter()
        self.assertEqual(keeper, self.served()['pid'])
        reads = self.served()['reads']
        self.wait_until(lambda: self.served()['reads'] > reads + 20)
        self.finish(reader, end)

    def test_a_keeper_of_another_program_unmounts_through_the_mounter(self):
        self.add_image()
        keeper = self.served()['pid']
        fresh = self.program.with_suffix('.new')
        shutil.copy(programs.find('diffcached'), fresh)
        fresh.rename(self.program)
        self.restart_diffcached()
        self.wait_until(lambda: os.path.samefile(f'/proc/{keeper}/exe',
                                                 self.program))
        self.served()
        self.daemon.remove(self.image)
        self.assertNotIn(str(self.mount / self.image), self.mounts())

    def test_without_a_mounter_the_error_names_it_and_the_next_step(self):
        self.stop_mounter()
        self.stop_listening()
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  self.add_image)
        self.assertIn(f'{self.socket}: No such file', str(error))
        self.assertIn('start diffcache-lazy-mount.socket', str(error))
        self.assertEqual([], self.daemon.images())
        self.listen()
        self.start_mounter()
        self.add_image()
        self.assert_read()

    def test_an_image_waits_for_a_mounter_that_is_not_there_at_the_start(self):
        self.add_image()
        keeper = self.served()['pid']
        self.service.kill()
        self.service.wait()
        os.kill(keeper, signal.SIGKILL)
        self.stop_mounter()
        self.stop_listening()
        self.service = self.start_diffcached()
        wanted = f'cannot detach {self.mount / self.image}: no answer'
        self.wait_until(lambda: wanted in self.log.read_text())
        self.listen()
        self.start_mounter()
        self.assert_read()

    def test_a_request_waits_while_the_mounter_is_started_again(self):
        self.stop_mounter()
        client = self.connect()
        self.make_folder()
        client.send(f'mount {_ID}'.encode())
        self.start_mounter()
        self.assertTrue(client.recv(4096).startswith(b'done '))

    def test_a_mounter_whose_mounts_nobody_sees_is_named(self):
        self.stop_mounter()
        self.start_mounter('unshare', '--mount', '--propagation', 'private')
        self.assertRaises(exceptions.ServiceUnavailable, self.add_image)
        self.assertIn('have no mount namespace of its own',
                      self.log.read_text())
        self.assertEqual([], self.daemon.images())

    def test_a_mounter_of_another_folder_is_named(self):
        self.stop_mounter()
        self.mount = self.folder / 'elsewhere'
        self.mount.mkdir(mode=0o711)
        os.chown(self.mount, USER, USER)
        self.make_folder(self.image)
        self.start_mounter()
        self.assertRaises(exceptions.ServiceUnavailable, self.add_image)
        self.assertIn('give [lazy] mount and diffcache-lazy-mount.service'
                      ' the same folder', self.log.read_text())


class HostileClientTest(MounterCase):
    """Whatever a client sends, no more than its own folders is mounted at."""

    def setUp(self):
        super().setUp()
        self.before = set(self.mounts())

    def assert_refused(self, why: str, message: str | bytes, uid: int = USER,
                       more=()) -> None:
        sent = message.encode() if isinstance(message, str) else message
        answer = self.ask(sent, uid, more).decode()
        self.assertIn(why, answer)
        self.assertTrue(answer.startswith('failed '), answer)
        self.assertEqual(self.before, set(self.mounts()))
        self.assertIsNone(self.mounter.poll())

    def test_what_is_no_request(self):
        self.make_folder()
        (self.folder / 'outside').mkdir()
        for bad in (b'\0', b'mount', b'mount ', os.urandom(100),
                    b'mount ' + b'a' * 65, b'mount ../outside',
                    f'mount {self.mount}/{_ID}', f'mount {_ID}/..',
                    f'mount {_ID}\n', f'mount {_ID.upper()}',
                    f'mount {_ID[:-1]}/', 'x' * 100_000, f'umount {_ID}',
                    f'mount {_ID} rw,suid', f'unmount {"." * 64}'):
            self.assert_refused('that is no request', bad)
        self.assertTrue(self.ask(f'mount {_ID}'.encode()).startswith(
            b'done '))

    def test_folders_that_are_none_or_links(self):
        self.assert_refused('No such file', f'mount {_ID}')
        place = self.mount / _ID
        outside = self.make_folder('outside')
        place.symlink_to('outside')
        os.chown(place, USER, USER, follow_symlinks=False)
        self.assert_refused('links are not followed', f'mount {_ID}')
        place.unlink()
        place.symlink_to('/etc')
        self.assert_refused('links are not followed', f'mount {_ID}')
        self.assert_refused('links are not followed', f'unmount {_ID}')
        place.unlink()
        place.write_bytes(b'')
        self.assert_refused('is no directory', f'mount {_ID}')
        self.assertEqual([], list(outside.iterdir()))

    def test_the_folder_of_all_mounts_is_a_link(self):
        self.make_folder()
        self.mount.rename(self.folder / 'real')
        self.mount.symlink_to('real')
        for verb in ('mount', 'unmount', 'detach'):
            self.assert_refused('links are not followed', f'{verb} {_ID}')

    def test_another_user(self):
        self.make_folder()
        self.socket.chmod(0o666)
        for uid in (OTHER, 0):
            self.assert_refused(f'belongs to user {USER}, not to user {uid}',
                                f'mount {_ID}', uid)
        self.socket.chmod(0o600)
        self.assertRaises(PermissionError, self.connect, OTHER)

    def test_a_folder_of_another_user(self):
        self.make_folder(owner=0)
        self.assert_refused('belongs to user 0', f'mount {_ID}')

    def test_a_mount_that_is_not_of_diffcached_is_not_unmounted(self):
        place = self.make_folder()
        subprocess.run(['mount', '-t', 'tmpfs', 'x', place], check=True)
        self.addCleanup(subprocess.run, ['umount', place], check=False)
        for verb in ('unmount', 'detach'):
            self.assert_refused('not of diffcached', f'{verb} {_ID}')
        self.assert_refused('a file system is mounted', f'mount {_ID}')
        self.assertTrue(place.is_mount())

    def test_what_is_not_mounted_is_not_unmounted(self):
        self.assertTrue(self.ask(f'detach {_ID}'.encode()).startswith(
            b'absent '))
        self.make_folder()
        self.assertTrue(self.ask(f'unmount {_ID}'.encode()).startswith(
            b'absent '))

    def test_a_client_that_leaves_before_the_answer(self):
        self.make_folder()
        self.stop_mounter()
        client = self.connect()
        client.send(f'mount {_ID}'.encode())
        client.close()
        self.start_mounter()
        # The next request is answered after it.
        self.assertTrue(self.ask(f'unmount {_ID}'.encode()).startswith(
            b'absent '))
        self.assertEqual(self.before, set(self.mounts()))

    def test_descriptors_of_a_client_are_not_kept(self):
        folder = f'/proc/{self.mounter.pid}/fd'

        def open_files():
            # Its client's connection is closed after the answer.
            self.wait_until(lambda: len(os.listdir(folder)) == 3)
            return len(os.listdir(folder))

        before = open_files()
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                  b'\0\0\0\0' * 8)]
        for _ in range(5):
            self.assert_refused('no request', b'x', more=given)
        self.assertEqual(before, open_files())

    def test_silent_clients_are_left_after_a_while(self):
        # As many as wait in the socket's queue; others come after them.
        clients = [self.connect() for _ in range(64)]
        self.assert_refused('no request', b'x')
        for client in clients:
            self.assertEqual(b'', client.recv(1))

    def test_a_file_system_that_does_not_answer_delays_nobody(self):
        self.make_folder()
        client = self.connect()
        client.send(f'mount {_ID}'.encode())
        # It is held, and no process reads its requests.
        _, [(_, _, data)], _, _ = client.recvmsg(4096, 64)
        held = int.from_bytes(data, 'little')
        self.addCleanup(os.close, held)
        self.before = set(self.mounts())
        self.assert_refused('a file system is mounted', f'mount {_ID}')
        for verb, outcome in (('unmount', b'done '), ('unmount', b'absent ')):
            self.assertTrue(self.ask(f'{verb} {_ID}'.encode()).startswith(
                outcome))

    def test_no_more_is_mounted_than_may_be(self):
        self.make_folder()
        self.stop_mounter()
        self.start_mounter(most=0)
        self.assert_refused('the most that may be', f'mount {_ID}')
