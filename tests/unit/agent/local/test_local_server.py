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

import contextlib
import errno
import grp
import io
import os
import pwd
import socket
import stat
import threading
import uuid

import fixtures

from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.local import local_api
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.agent.local import long_work
from diffcache_openstack.agent.versions import server_images
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing
from tests import base
from tests import traces
from tests.unit.agent.local import rooms
from tests import waiting


class LocalApiCase(base.TestCase):
    """Has a client of a server with rooms that note what is asked."""

    def setUp(self):
        super().setUp()
        self.worker = rooms.Rooms()
        self.path = self.directory / 'agent.sock'
        self.server = rooms.new_server(self.path, None, self.worker)
        self.server.start()
        self.addCleanup(self.server.stop)
        self.client = local_client.LocalClient(str(self.path))


class LocalApiTest(LocalApiCase):

    def test_plain_answers(self):
        self.assertEqual(
            {'host': 'h1', 'data_plane': {'sent': 1}, 'counters': {'sent': 1},
             'fallbacks': {}, 'files_used': 5}, self.client.status())
        self.assertEqual({'id': rooms.IMAGE}, self.client.image(rooms.IMAGE))
        self.assertEqual(['one', 'two'],
                         [image['id'] for image in self.client.images()])

    def test_work_has_the_request_id_of_its_client(self):
        request_id = f'req-{uuid.uuid4()}'
        client = local_client.LocalClient(str(self.path),
                                          request_id=lambda: request_id)
        client.image(rooms.IMAGE)
        client.save_server('s', {'project_id': 'p', 'trigger': 'delete'})
        self.assertEqual([request_id] * 2, self.worker.requests)
        self.worker.requests.clear()
        self.client.image(rooms.IMAGE)
        self.assertNotIn(request_id, self.worker.requests)

    def test_work_is_part_of_the_trace_of_its_client(self):
        collected = self.useFixture(traces.Traces())
        path = self.directory / 'traced.sock'
        traced = local_server.LocalServer(
            path, local_server.Access('socket'),
            tracing.traced(local_api.LocalApi(*[self.worker] * 6)))
        traced.start()
        self.addCleanup(traced.stop)
        begun = tracing.Origin(str(uuid.uuid4()), str(uuid.uuid4()),
                               traces.KEY)
        self.worker.let_go.set()
        client = local_client.LocalClient(str(path))
        with tracing.continued(begun):
            client.content(rooms.IMAGE, '/out')
        wsgi, work = (collected.one(name) for name in ('wsgi', 'work'))
        self.assertEqual(begun[:2], (wsgi['base_id'], wsgi['parent_id']))
        self.assertEqual(wsgi['trace_id'], work['parent_id'])
        # Without a trace there are no more of them.
        client.content(rooms.IMAGE, '/out')
        for name in ('wsgi', 'work'):
            collected.one(name)

    def test_images_that_are_served_while_they_arrive(self):
        self.assertEqual({'path': f'/mount/{rooms.IMAGE}', 'reason': None},
                         self.client.open_lazy(rooms.IMAGE))
        self.client.open_lazy(rooms.IMAGE, 1000)
        self.assertEqual([('rate', 1000)], self.worker.asked)
        self.worker.asked.clear()
        for rate in (0, 'fast', 1.5):
            self.assertRaises(exceptions.InvalidInput, self.client.open_lazy,
                              rooms.IMAGE, rate)
        self.assertEqual([{'content_id': 'c'}], self.client.lazy())
        self.client.release_lazy('c')
        self.client.add_lazy_server('s', {
            'project_id': 'p', 'image_id': rooms.IMAGE, 'label': 'm1.small'})
        self.client.add_lazy_server('t', {
            'project_id': 'p', 'image_id': rooms.IMAGE, 'hydrate_by': 60})
        self.client.remove_lazy_server('s')
        self.assertEqual([
            ('released', 'c'),
            ('server',
             lazy_servers.LazyServer('s', 'p', rooms.IMAGE, 'm1.small'),
             None),
            ('server', lazy_servers.LazyServer('t', 'p', rooms.IMAGE),
             lazy_servers.Wish(60)),
            ('left', 's')], self.worker.asked)
        self.assertRaises(exceptions.InvalidInput,
                          self.client.add_lazy_server, 's', {})
        self.worker.error = exceptions.NoSpace('full')
        self.assertRaises(exceptions.NoSpace, self.client.open_lazy,
                          rooms.IMAGE)

    def test_ids_are_quoted(self):
        self.assertEqual({'id': 'a/b ?c%'}, self.client.image('a/b ?c%'))

    def serve(self, access, application=None):
        """Return a client of another socket."""
        path = self.directory / f'{uuid.uuid4()}.sock'
        another = local_server.LocalServer(
            path, access,
            application or local_api.LocalApi(*[self.worker] * 6))
        another.start()
        self.addCleanup(another.stop)
        return path, local_client.LocalClient(str(path))

    def test_without_a_group_the_owner_alone_may_connect(self):
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))

    def test_a_group_may_connect(self):
        group = grp.getgrgid(os.getegid()).gr_name
        path, _client = self.serve(local_server.Access('socket', group))
        found = os.stat(path)
        self.assertEqual((0o660, os.getegid()),
                         (stat.S_IMODE(found.st_mode), found.st_gid))

    def test_a_member_of_the_group_that_is_not_nova_is_refused(self):
        _path, client = self.serve(
            local_server.Access('socket', None, frozenset([os.geteuid() + 1])))
        wanted = {'origin': '/dev/sda', 'mode': 'write-through'}
        for call in (client.status, lambda: client.image(rooms.IMAGE),
                     lambda: client.attach_volume('v', wanted),
                     lambda: client.content(rooms.IMAGE, '/out')):
            error = self.assertRaises(exceptions.Forbidden, call)
            self.assertIn('[agent] nova_user', str(error))
        self.assertEqual([], self.worker.asked)

    def test_users_of_novas_socket(self):
        name = pwd.getpwuid(os.geteuid()).pw_name
        for user in (name, 'no-such-user'):
            self.assertEqual({0, os.geteuid()}, local_server.users_with(user))
        other = next(each for each in pwd.getpwall() if each.pw_uid)
        self.assertIn(other.pw_uid, local_server.users_with(other.pw_name))
        _path, client = self.serve(
            local_server.Access('socket', None, local_server.users_with(name)))
        self.assertEqual('h1', client.status()['host'])

    def test_glance_has_files_of_images_and_nothing_else(self):
        _path, client = self.serve(
            local_server.Access('glance_socket'),
            local_api.LocalApi(*[self.worker] * 6).for_glance)
        self.assertEqual({'files_used': 5}, client.status())
        self.assertEqual({'id': rooms.IMAGE}, client.image(rooms.IMAGE))
        self.assertTrue(client.enqueue(rooms.IMAGE))
        with client.file(rooms.IMAGE) as file:
            self.assertEqual(rooms.DATA[:9], file.read(9))
        for call in (
                lambda: client.content(rooms.IMAGE, '/out'),
                lambda: client.lend(rooms.IMAGE, '/etc/shadow'),
                lambda: client.open_lazy(rooms.IMAGE), client.lazy,
                lambda: client.save_server('s', {}),
                lambda: client.version_content('v', {}), client.ssd_cache,
                lambda: client.attach_volume('v', {'origin': '/dev/sda'}),
                lambda: client.detach_volume('v')):
            self.assertRaises(exceptions.NotFound, call)

    def test_takes_over_from_one_that_was_killed(self):
        leftover = self.directory / 'other.sock'
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(leftover))
        another = rooms.new_server(leftover, None, self.worker)
        another.start()
        self.addCleanup(another.stop)
        self.assertEqual('h1', local_client.LocalClient(
            str(leftover)).status()['host'])

    def test_sockets_that_cannot_be_made(self):
        for name, group, told in (
                ('x' * 120, None, 'socket'), ('no/such', None, 'socket'),
                ('file', None, 'socket'), ('s', 'nosuchgroup', 'group')):
            self.write_file('file', b'precious')
            another = rooms.new_server(self.directory / name, group,
                                       self.worker)
            error = self.assertRaises(exceptions.InvalidInput, another.start)
            self.assertIn(told, str(error))
        self.assertEqual(b'precious',
                         (self.directory / 'file').read_bytes())

    def test_errors_come_back_as_what_they_are(self):
        for kind in (exceptions.NotFound, exceptions.InvalidInput,
                     exceptions.Conflict, exceptions.NoSpace,
                     exceptions.IntegrityError,
                     exceptions.ServiceUnavailable):
            self.worker.error = kind('what and why')
            error = self.assertRaises(kind, self.client.image, rooms.IMAGE)
            self.assertEqual((kind, 'what and why'),
                             (type(error), str(error)))

    def test_own_mistakes_are_told_without_their_details(self):
        self.worker.error = ZeroDivisionError('secret')
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  self.client.status)
        self.assertIn('ZeroDivisionError', str(error))
        self.assertNotIn('secret', str(error))

    def test_nothing_there(self):
        self.assertRaises(exceptions.NotFound, self.client._ask, 'GET',
                          '/v2/images')

    def test_expecting_lasts_as_long_as_the_connection(self):
        with self.client.expecting(rooms.IMAGE):
            self.assertEqual([(rooms.IMAGE, 'expected')], self.worker.asked)
            self.assertFalse(self.worker.ended.is_set())
        self.assertTrue(self.worker.ended.wait(60))

    def test_nothing_is_expected_that_is_unknown(self):
        self.worker.error = exceptions.NotFound('no such image')
        with self.assertRaises(exceptions.NotFound):
            with self.client.expecting(rooms.IMAGE):
                self.fail('began')

    def test_content(self):
        seen = []
        self.worker.let_go.clear()

        def progress(done, total):
            seen.append((done, total))
            self.worker.let_go.set()

        request = self.client.content(rooms.IMAGE, '/out', 'on_the_fly',
                                      progress=progress)
        self.assertEqual([(rooms.IMAGE, '/out', 'on_the_fly')],
                         self.worker.asked)
        self.assertEqual((3, 7), seen[0])
        self.assertEqual(('build', 1.5, rooms.IMAGE),
                         (request['way'], request['seconds'],
                          request['image_id']))

    def test_content_that_fails(self):
        self.worker.error = exceptions.NoSpace('full')
        self.assertRaises(exceptions.NoSpace, self.client.content, rooms.IMAGE,
                          '/out')

    def test_a_client_that_goes_is_noticed(self):
        self.worker.let_go.clear()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.path))
            body = b'{"output": "/out"}'
            client.sendall(b'POST /v1/images/x/content HTTP/1.1\r\n'
                           b'Content-Length: %d\r\n\r\n%s'
                           % (len(body), body))
            client.recv(100)
        self.assertTrue(self.worker.ended.wait(waiting.SECONDS))

    def test_no_sign_of_life_without_progress(self):
        self.patch(local_api, 'PROGRESS_SECONDS', 0.01)
        self.worker.let_go.clear()
        self.addCleanup(self.worker.let_go.set)
        seen = []
        with self.worker.pulse.transferring():
            self.assertRaises(
                exceptions.ServiceUnavailable, self.client.content,
                rooms.IMAGE,
                '/out', stall_timeout=0.3,
                progress=lambda *progress: seen.append(progress))
        # What there was to tell was told once.
        self.assertLess(len(seen), 3)
        self.assertTrue(self.worker.ended.wait(waiting.SECONDS))

    def test_work_is_bounded_also_where_its_client_has_gone(self):
        self.patch(long_work, 'MOST_WORK', 2)
        path = self.directory / 'busy.sock'
        busy = rooms.new_server(path, None, self.worker)
        busy.start()
        self.addCleanup(busy.stop)
        self.worker.let_go.clear()
        self.worker.notices = False
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(b'POST /v1/images/x/content HTTP/1.1\r\n'
                               b'Content-Length: 18\r\n\r\n'
                               b'{"output": "/out"}')
                client.recv(100)
        client = local_client.LocalClient(str(path))
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  client.content, rooms.IMAGE, '/out')
        self.assertIn('as many requests that take long', str(error))
        self.assertEqual({'id': rooms.IMAGE}, client.image(rooms.IMAGE))
        self.worker.let_go.set()
        while self.worker.running:
            self.worker.ended.wait(0.01)
        client.content(rooms.IMAGE, '/out')

    def test_expectations_are_bounded(self):
        self.patch(local_api, 'MOST_EXPECTATIONS', 1)
        path = self.directory / 'busy.sock'
        busy = rooms.new_server(path, None, self.worker)
        busy.start()
        self.addCleanup(busy.stop)
        client = local_client.LocalClient(str(path))
        with client.expecting(rooms.IMAGE):
            self.assertRaises(exceptions.ServiceUnavailable,
                              client.expecting('x').__enter__)
        self.assertTrue(self.worker.ended.wait(waiting.SECONDS))

    def read(self, *args, **options):
        with self.client.file(rooms.IMAGE, *args, **options) as file:
            return b''.join(file)

    def test_file(self):
        with self.client.file(rooms.IMAGE) as file:
            self.assertEqual(len(rooms.DATA), file.length)
            self.assertEqual(rooms.DATA, b''.join(file))
        self.assertEqual([(rooms.IMAGE, False)], self.worker.asked)

    def test_file_of_the_site_only(self):
        self.worker.error = exceptions.Conflict('the WAN')
        self.assertRaises(exceptions.Conflict, self.read, site_only=True)
        self.assertEqual([(rooms.IMAGE, True)], self.worker.asked)

    def test_ranges(self):
        for first, last in ((0, 0), (5, 2_000_000),
                            (len(rooms.DATA) - 1, None),
                            (0, 10), (7, len(rooms.DATA) + 99)):
            with self.client.file(rooms.IMAGE, first, last) as file:
                end = None if last is None else last + 1
                self.assertEqual(rooms.DATA[first:end], b''.join(file))
                self.assertEqual(len(rooms.DATA), file.total)

    def test_an_empty_file(self):
        self.worker.reader = rooms.Reader(b'')
        with self.client.file(rooms.IMAGE) as file:
            self.assertEqual(b'', file.read())

    def test_ranges_without_a_byte(self):
        for first, last in ((len(rooms.DATA), None), (5, 4)):
            self.assertRaises(exceptions.InvalidInput, self.read, first,
                              last)

    def test_a_file_that_ends_early(self):
        self.worker.reader = rooms.Reader(rooms.DATA, damaged_at=2_000_000)
        with self.client.file(rooms.IMAGE) as file:
            self.assertRaises(exceptions.ServiceUnavailable, list, file)

    def test_prefetch(self):
        self.client.prefetch(rooms.IMAGE, 60.0)
        self.assertEqual([(rooms.IMAGE, 'prefetched')], self.worker.asked)
        self.worker.error = exceptions.NotFound('none')
        self.assertRaises(exceptions.NotFound, self.client.prefetch,
                          rooms.IMAGE,
                          60.0)

    def test_a_file_whose_first_byte_cannot_be_read(self):
        self.worker.reader = rooms.Reader(rooms.DATA, damaged_at=0)
        self.assertRaises(exceptions.IntegrityError, self.read)

    def test_a_disk_that_cannot_be_read_is_not_taken_for_a_client_gone(self):
        logged = self.useFixture(fixtures.FakeLogger())
        self.worker.reader = rooms.Reader(rooms.DATA)
        self.patch(self.worker.reader, 'read', fail_to_read)
        error = self.assertRaises(exceptions.ServiceUnavailable, self.read)
        self.assertIn('OSError', str(error))
        self.assertIn('Input/output error', logged.output)

    def test_give_file(self):
        self.client.give_file(rooms.IMAGE, io.BytesIO(rooms.DATA),
                              len(rooms.DATA))
        self.assertEqual([(rooms.IMAGE, rooms.DATA)], self.worker.asked)

    def test_a_file_that_is_not_wanted(self):
        self.worker.error = exceptions.NotFound('unknown')
        self.assertRaises(exceptions.NotFound, self.client.give_file,
                          rooms.IMAGE,
                          io.BytesIO(rooms.DATA * 4), 4 * len(rooms.DATA))

    def test_queue(self):
        self.assertTrue(self.client.enqueue(rooms.IMAGE))
        self.assertEqual([rooms.IMAGE], self.client.queue())
        self.assertTrue(self.client.dequeue(rooms.IMAGE))
        self.assertFalse(self.client.dequeue('other'))

    def test_save_server(self):
        wanted = {'project_id': 'p', 'trigger': 'delete', 'image_id': None}
        self.assertEqual({'version': 'v', 'required': True, 'error': None},
                         self.client.save_server('s/1', wanted))
        self.assertEqual([('s/1', 'p', 'delete', None)], self.worker.asked)
        self.assertRaises(exceptions.InvalidInput, self.client.save_server,
                          's', {'trigger': 5})

    def test_write_server_image(self):
        wanted = {'project_id': 'p', 'disk': '/d', 'output': '/o',
                  'format': 'qcow2'}
        self.assertEqual({'pause_ms': 1.5},
                         self.client.write_server_image('s/1', wanted))
        self.assertEqual(
            [server_images.NewImage('s/1', 'p', '/d', '/o', 'qcow2')],
            self.worker.asked)
        del wanted['format']
        self.assertRaises(exceptions.InvalidInput,
                          self.client.write_server_image, 's', wanted)

    def test_threads_are_bounded_and_further_requests_wait(self):
        self.patch(local_server, 'MOST_THREADS', 8)
        path = self.directory / 'small.sock'
        small = rooms.new_server(path, None, self.worker)
        small.start()
        self.addCleanup(small.stop)
        client = local_client.LocalClient(str(path), timeout=60)
        self.worker.let_go.clear()
        threads = [threading.Thread(target=client.content,
                                    args=(rooms.IMAGE, f'/out{number}'))
                   for number in range(9)]
        for thread in threads:
            thread.start()
        while len(self.worker.asked) < 8:
            self.worker.ended.wait(0.01)
        answers = []
        threads.append(threading.Thread(
            target=lambda: answers.append(client.status())))
        threads[-1].start()
        self.assertFalse(self.worker.ended.wait(0.2))
        self.assertEqual((8, []), (len(self.worker.asked), answers))
        self.worker.let_go.set()
        for thread in threads:
            thread.join(60)
        self.assertEqual((9, 1), (len(self.worker.asked), len(answers)))

    def test_a_server_stops_while_requests_are_answered(self):
        self.worker.let_go.clear()
        thread = threading.Thread(target=self.failing_content)
        thread.start()
        while not self.worker.asked:
            self.worker.ended.wait(0.01)
        self.server.stop()
        self.assertFalse(self.path.exists())
        self.worker.let_go.set()
        thread.join(60)

    def failing_content(self):
        with contextlib.suppress(exceptions.ServiceUnavailable):
            self.client.content(rooms.IMAGE, '/out')

    def test_drop(self):
        self.client.drop(rooms.IMAGE)
        self.assertEqual([rooms.IMAGE], self.worker.asked)

    def test_names_of_fallbacks_are_short_and_printable(self):
        for name in ('', 'x\nERROR forged', '\x1b[2J', 'x' * 101):
            for names in ((name, 'reason'), ('nova-compute', name)):
                self.assertRaises(exceptions.InvalidInput,
                                  self.client.fallback, *names, 1)
        self.assertEqual({}, self.client.status()['fallbacks'])

    def test_fallbacks(self):
        self.client.fallback('nova-compute', 'unreachable', 3)
        self.assertEqual([('nova-compute', 'unreachable', 3)],
                         self.worker.asked)
        for count in (0, 'many'):
            self.assertRaises(exceptions.InvalidInput, self.client.fallback,
                              'nova-compute', 'unreachable', count)

    def send(self, body):
        with self.client._answer('POST', f'/v1/images/{rooms.IMAGE}/content',
                                 body,
                                 30, {'Content-Length': str(len(body))}):
            self.fail('this was accepted')

    def test_bodies_that_make_no_sense(self):
        for body in (b'', b'[]', b'{', b'[' * 60_000, b'{"output": 5}',
                     b' ' * 70_000,
                     b'{"output": "/out", "own_bytes": true}'):
            error = self.assertRaises(exceptions.InvalidInput, self.send,
                                      body)
            self.assertTrue(str(error))
        self.assertEqual([], self.worker.asked)

    def ask(self, request):
        """What comes back until the agent closes the connection."""
        answer = bytearray()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.path))
            client.settimeout(240)
            # The agent answers and closes before it has read all.
            with contextlib.suppress(BrokenPipeError):
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            # A connection is reset if a part of the request was not read.
            with contextlib.suppress(ConnectionResetError):
                while data := client.recv(1 << 16):
                    answer += data
        return bytes(answer)

    def test_lengths_that_make_no_sense(self):
        body = b'{"output": "/out"' + b' ' * 70_000 + b'}'
        for length in (b'-1', b'1e3', b'x', b'9' * 40):
            answer = self.ask(
                b'POST /v1/images/x/content HTTP/1.1\r\nContent-Length: '
                + length + b'\r\n\r\n' + body)
            self.assertIn(b' 400 ', answer.split(b'\r\n')[0], length)
            self.assertIn(b'Content-Length', answer.split(b'\r\n\r\n')[1])
        self.assertEqual([], self.worker.asked)

    def test_a_body_that_nobody_reads_is_no_request(self):
        inner = b'DELETE /v1/images/x HTTP/1.1\r\n\r\n'
        answer = self.ask(
            b'GET /v1/status HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s'
            % (len(inner), inner))
        self.assertIn(b' 200 ', answer)
        self.assertEqual(1, answer.count(b'HTTP/1.1'))
        self.assertEqual([], self.worker.asked)


def fail_to_read(offset, length):
    raise OSError(errno.EIO, 'Input/output error')


class VersionsTest(LocalApiCase):

    def get(self, path, **headers):
        """(status, headers, body) of an answer."""
        connection = local_client.UnixConnection(str(self.path), 10.0)
        with contextlib.closing(connection):
            connection.request('GET', path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def test_one_is_served(self):
        wanted = {'project_id': 'p', 'image_id': rooms.IMAGE}
        self.assertEqual({'path': '/mount/v', 'reason': None},
                         self.client.open_version('v', wanted))
        self.client.open_version('v', wanted, 1000)
        self.assertEqual([('v', 'p', rooms.IMAGE, None),
                          ('v', 'p', rooms.IMAGE, 1000)],
                         self.worker.asked)
        self.assertRaises(exceptions.InvalidInput, self.client.open_version,
                          'v', wanted, 0)

    def test_one_is_delivered(self):
        wanted = {'project_id': 'p', 'output': '/out'}
        self.client.version_content('v', wanted)
        self.assertEqual([('v', 'p', '/out')], self.worker.asked)

    def test_what_is_missing_is_refused(self):
        for method in (self.client.open_version,
                       self.client.version_content):
            error = self.assertRaises(exceptions.InvalidInput, method, 'v',
                                      {'project_id': 5})
            self.assertIn('The body needs project_id', str(error))

    def test_errors_are_the_agents(self):
        self.worker.error = exceptions.NotFound('no such version')
        for method in (self.client.open_version,
                       self.client.version_content):
            self.assertRaises(exceptions.NotFound, method, 'v', {
                'project_id': 'p', 'image_id': 'i', 'output': '/out'})
        self.assertEqual(404, self.get('/v1/version-contents/c',
                                       Range='bytes=0-1')[0])

    def test_a_range(self):
        data = self.worker.reader.read(0, self.worker.reader.size)
        status, headers, body = self.get('/v1/version-contents/c',
                                         Range='bytes=1-5')
        self.assertEqual((206, data[1:6], f'bytes 1-5/{len(data)}'),
                         (status, body, headers['Content-Range']))

    def test_all_of_it_is_not_sent_in_one_piece(self):
        self.assertEqual(400, self.get('/v1/version-contents/c')[0])
        self.assertEqual(416, self.get('/v1/version-contents/c',
                                       Range='bytes=999999999-')[0])
