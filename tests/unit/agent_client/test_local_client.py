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
"""The agent's local socket, from the side of those who ask."""

import http.server
import json
import os
import socket
import socketserver
import threading

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from tests import base

LONG = 60.0


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with what the test says; keeps what it was asked."""

    protocol_version = 'HTTP/1.1'

    def answer(self):
        length = int(self.headers.get('Content-Length') or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        agent = self.server.agent
        agent.asked.append((self.command, self.path, body,
                            self.headers.get('Range')))
        agent.script(self)

    do_GET = do_POST = do_DELETE = do_PUT = answer

    def send(self, status, body=b'', **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if body:
            self.wfile.write(body)

    def send_lines(self, *lines):
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        for line in lines:
            data = json.dumps(line).encode() + b'\n'
            self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
            self.wfile.flush()

    def end_lines(self):
        self.wfile.write(b'0\r\n\r\n')

    def address_string(self):
        return 'local'

    def log_message(self, *_args):
        pass


class Server(socketserver.ThreadingUnixStreamServer):

    daemon_threads = True
    agent: 'Agent'

    def handle_error(self, _request, _client_address):
        """Clients may go away before they read everything."""


class Agent:
    """An agent that does what a test says.

    :ivar script: called with the handler of each request
    """

    def __init__(self, path):
        self.asked = []
        self.script = lambda handler: handler.send(204)
        self.server = Server(str(path), Handler)
        self.server.agent = self
        threading.Thread(target=self.server.serve_forever, daemon=True,
                         kwargs={'poll_interval': 0.01}).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def answers(self, status, body):
        self.script = lambda handler: handler.send(
            status, json.dumps(body).encode())

    def streams(self, *lines):
        def script(handler):
            handler.send_lines(*lines)
            handler.end_lines()

        self.script = script


class LocalClientTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'agent.sock'
        self.agent = Agent(self.path)
        self.addCleanup(self.agent.stop)
        self.client = local_client.LocalClient(str(self.path), timeout=LONG)


class TestAnswers(LocalClientTest):

    def test_questions_and_answers(self):
        self.agent.answers(200, {'host': 'h1'})
        self.assertEqual({'host': 'h1'}, self.client.status())
        self.assertEqual({'host': 'h1'}, self.client.image('a/b ?'))
        self.agent.answers(200, [{'id': 'i'}])
        self.assertEqual([{'id': 'i'}], self.client.images())
        self.agent.script = lambda handler: handler.send(204)
        self.client.drop('i')
        self.client.fallback('nova-compute', 'NoSpace', 3)
        self.assertEqual([
            ('GET', '/v1/status', None, None),
            ('GET', '/v1/images/a%2Fb%20%3F', None, None),
            ('GET', '/v1/images', None, None),
            ('DELETE', '/v1/images/i', None, None),
            ('POST', '/v1/fallbacks', {'service': 'nova-compute',
                                       'reason': 'NoSpace', 'count': 3},
             None)], self.agent.asked)

    def test_volumes_in_the_ssd_cache(self):
        self.agent.answers(200, {'export': 'e'})
        self.assertEqual({'export': 'e'},
                         self.client.attach_volume('v/w', {'origin': '/d'}))
        self.assertEqual({'export': 'e'}, self.client.ssd_cache())
        self.agent.script = lambda handler: handler.send(204)
        self.client.set_volume_mode('v', 'write-around')
        self.client.resize_volume('v')
        self.client.disconnect_volume('v')
        self.client.drain_volume('v', 2.5, True)
        self.client.give_volume_back('v')
        self.client.forget_volume('v')
        self.client.detach_volume('v')
        self.assertEqual([
            ('PUT', '/v1/ssd-cache/volumes/v%2Fw', {'origin': '/d'}, None),
            ('GET', '/v1/ssd-cache', None, None),
            ('PUT', '/v1/ssd-cache/volumes/v/mode',
             {'mode': 'write-around'}, None),
            ('POST', '/v1/ssd-cache/volumes/v/resize', None, None),
            ('POST', '/v1/ssd-cache/volumes/v/disconnect', None, None),
            ('PUT', '/v1/ssd-cache/volumes/v/leave',
             {'seconds': 2.5, 'leaves': True}, None),
            ('DELETE', '/v1/ssd-cache/volumes/v/leave', None, None),
            ('POST', '/v1/ssd-cache/volumes/v/forgotten', None, None),
            ('DELETE', '/v1/ssd-cache/volumes/v', None, None)],
            self.agent.asked)

    def test_errors_are_those_that_the_agent_names(self):
        self.agent.answers(404, {'error': {'type': 'NotFound',
                                           'message': 'no image i'}})
        error = self.assertRaises(exceptions.NotFound, self.client.image, 'i')
        self.assertEqual('no image i', str(error))
        self.agent.answers(503, {'error': {'type': 'IntegrityError',
                                           'message': 'damaged'}})
        self.assertRaises(exceptions.IntegrityError, self.client.image, 'i')

    def test_errors_without_a_class_of_ours_go_by_their_status(self):
        for status, kind in ((400, exceptions.InvalidInput),
                             (404, exceptions.NotFound),
                             (409, exceptions.Conflict),
                             (418, exceptions.PermanentError),
                             (500, exceptions.ServiceUnavailable),
                             (507, exceptions.NoSpace)):
            for body in ({'error': {'type': 'os', 'message': 'x'}}, ['x'],
                         {'error': {'type': 'DiffCacheError.x'}}):
                self.agent.answers(status, body)
                self.assertRaises(kind, self.client.image, 'i')

    def test_nonsense_is_no_answer(self):
        self.agent.script = lambda handler: handler.send(200, b'<html>')
        self.assertRaises(exceptions.ServiceUnavailable, self.client.status)

        def no_http(handler):
            handler.wfile.write(b'\0' * 99)
            handler.close_connection = True

        self.agent.script = no_http
        self.assertRaises(exceptions.ServiceUnavailable, self.client.status)


class TestAbsence(LocalClientTest):

    def test_nobody_there(self):
        absent = local_client.LocalClient(str(self.directory / 'absent'))
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  absent.status)
        self.assertTrue(local_client.is_gone(error))
        self.assertIn('absent', str(error))

    def test_a_socket_that_nobody_listens_at(self):
        path = str(self.directory / 'left.sock')
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.close()
        self.assertRaises(exceptions.ServiceUnavailable,
                          local_client.LocalClient(path).status)

    def test_an_agent_that_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.agent.script = lambda handler: done.wait(LONG)
        hasty = local_client.LocalClient(str(self.path), timeout=0.05)
        self.assertRaises(exceptions.ServiceUnavailable, hasty.image, 'i')

    def test_a_list_that_takes_long(self):
        def answer_late(handler):
            threading.Event().wait(0.3)
            handler.send(200, b'[]')

        self.agent.script = answer_late
        hasty = local_client.LocalClient(str(self.path), timeout=0.05)
        self.assertEqual([], hasty.images())

    def test_content_of_an_agent_that_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.agent.script = lambda handler: done.wait(LONG)
        hasty = local_client.LocalClient(str(self.path), timeout=0.05)
        error = self.assertRaises(
            exceptions.ServiceUnavailable, hasty.content, 'i', '/output',
            stall_timeout=0.05)
        self.assertFalse(local_client.is_gone(error))


class TestContent(LocalClientTest):

    REQUEST = {'way': 'build', 'wan_bytes': 5, 'seconds': 0.5}

    def test_progress_and_the_request(self):
        self.agent.streams({'progress': {'done': 1, 'total': 3}}, {},
                           {'progress': {'done': 3, 'total': 3}},
                           {'request': self.REQUEST})
        seen = []
        served = self.client.content(
            'i', '/base/x', 'on_the_fly', LONG,
            lambda done, total: seen.append((done, total)))
        self.assertEqual(self.REQUEST, served)
        self.assertEqual([(1, 3), (3, 3)], seen)
        self.assertEqual([('POST', '/v1/images/i/content',
                           {'output': '/base/x', 'mode': 'on_the_fly'},
                           None)], self.agent.asked)

    def test_a_download_to_compare_with(self):
        self.agent.streams(
            {'error': {'type': 'DownloadCheaper', 'retryable': False,
                       'message': '9 bytes'}})
        self.assertRaises(exceptions.DownloadCheaper, self.client.content,
                          'i', '/base/x', own_bytes=7)
        self.assertEqual(
            {'output': '/base/x', 'mode': None, 'own_bytes': 7},
            self.agent.asked[0][2])

    def test_an_error_within_the_stream(self):
        self.agent.streams(
            {'progress': {'done': 1, 'total': 3}},
            {'error': {'type': 'NoSpace', 'retryable': True,
                       'message': 'No space left for /base/x'}})
        error = self.assertRaises(exceptions.NoSpace, self.client.content,
                                  'i', '/base/x')
        self.assertIn('/base/x', str(error))

    def test_an_error_of_another_kind_within_the_stream(self):
        self.agent.streams({'error': {'type': 'New', 'retryable': True,
                                      'message': 'x'}})
        self.assertRaises(exceptions.RetryableError, self.client.content,
                          'i', '/base/x')

    def test_a_stream_that_ends_early(self):
        self.agent.streams({'progress': {'done': 1, 'total': 3}})
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  self.client.content, 'i', '/base/x')
        self.assertTrue(local_client.is_gone(error))

    def test_an_agent_that_dies_while_it_delivers(self):
        def script(handler):
            handler.send_lines({'progress': {'done': 1, 'total': 3}})
            handler.close_connection = True

        self.agent.script = script
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  self.client.content, 'i', '/base/x')
        self.assertTrue(local_client.is_gone(error))

    def test_lines_that_are_no_objects(self):
        self.agent.streams([1, 2])
        self.assertRaises(exceptions.ServiceUnavailable, self.client.content,
                          'i', '/base/x')

    def test_an_error_of_the_caller_stays_the_callers(self):
        self.agent.streams({'progress': {'done': 1, 'total': 3}},
                           {'request': self.REQUEST})

        def full(_done, _total):
            raise OSError('the caller\'s disk is full')

        self.assertRaises(OSError, self.client.content, 'i', '/base/x',
                          progress=full)


class TestFile(LocalClientTest):

    def setUp(self):
        super().setUp()
        self.agent.script = lambda handler: handler.send(
            206 if handler.headers.get('Range') else 200, b'abcdef')

    def read(self, *args, **kwargs):
        with self.client.file('i', *args, **kwargs) as reader:
            return reader.length, reader.read()

    def test_whole_and_in_part(self):
        self.assertEqual((6, b'abcdef'), self.read())
        self.read(2)
        self.read(2, 4)
        self.read(0, 4, site_only=True)
        self.assertEqual(
            [('/v1/images/i/file', None), ('/v1/images/i/file', 'bytes=2-'),
             ('/v1/images/i/file', 'bytes=2-4'),
             ('/v1/images/i/file?site_only=1', 'bytes=0-4')],
            [(path, span) for _, path, _, span in self.agent.asked])

    def test_only_over_the_wan(self):
        self.agent.answers(409, {'error': {'type': 'Conflict',
                                           'message': 'not at this site'}})
        self.assertRaises(exceptions.Conflict, self.read, site_only=True)

    def test_an_error_of_the_reader_stays_the_readers(self):
        def read():
            with self.client.file('i'):
                raise OSError('the reader\'s disk is full')

        self.assertRaises(OSError, read)

    def test_connections_are_closed(self):
        before = len(os.listdir('/proc/self/fd'))
        for _ in range(20):
            self.read()
        # Those of the server's threads may be about to be closed.
        self.assertLess(len(os.listdir('/proc/self/fd')), before + 20)
