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
"""What every data plane does with images that diffcached serves."""

import contextlib
import http.client
import json
import random
import shutil
import socket
import struct
import threading
import urllib.parse

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.unit.agent.data_plane import planes

LEAF = planes.LEAF


class TestPartial(planes.DataPlaneTestCase):
    """Images that diffcached serves while they arrive."""

    def setUp(self):
        super().setUp()
        self.content = random.Random(3).randbytes(3 * LEAF)
        self.path = self.directory / 'content'
        self.path.write_bytes(self.content)
        found = _native.manifest_create(self.path, self.directory / 'manifest')
        self.key = views.Key(views.IMAGES, found['content_id'])
        self.folder = self.directory / 'image'
        self.folder.mkdir()
        shutil.copy(self.path, self.folder / f'{self.key.id}.data')
        self.asked = []
        self.answers = {}
        self.serving = self.plane('serving')

    def listen(self):
        """Answer on the socket of the image, as diffcached does."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(self.folder / 'peers'))
        listener.listen()
        threading.Thread(target=self.serve, args=(listener,),
                         daemon=True).start()

    def serve(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile('rwb') as stream:
                while request := stream.read(17):
                    asked = struct.unpack('<BQQ', request)
                    self.asked.append(asked)
                    stream.write(self.answers.get(asked[0], b'\2'))
                    stream.flush()

    def get(self, *fields):
        """Ask for the second leaf; return the status and the body."""
        headers = {'Range': f'bytes={LEAF}-{2 * LEAF - 1}'}
        with contextlib.closing(http.client.HTTPConnection(
                *urllib.parse.urlsplit(self.serving.url).netloc.split(':'),
                timeout=60)) as connection:
            connection.request('GET', f'/v1/objects/images/{self.key.id}',
                               headers=headers | dict(fields))
            response = connection.getresponse()
            return response.status, response.read()

    def plane(self, name, **options):
        return super().plane(name, key=None, **options)

    def get_hints(self, *fields, method='GET'):
        """Ask for the second leaf; return the status and the hints."""
        headers = {'Range': f'bytes={LEAF}-{2 * LEAF - 1}'}
        with contextlib.closing(http.client.HTTPConnection(
                *urllib.parse.urlsplit(self.serving.url).netloc.split(':'),
                timeout=60)) as connection:
            connection.request(
                method, f'/v1/objects/images/{self.key.id}',
                headers=headers | dict(fields))
            response = connection.getresponse()
            response.read()
            return response.status, response.getheader('X-DiffCache-Hints')

    def teach(self, *answers):
        """Answer requests for hints, as diffcached does; return the texts."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(self.folder / 'hints'))
        listener.listen()
        asked = []

        def serve():
            for answer in answers:
                connection, _ = listener.accept()
                with connection, connection.makefile('rwb') as stream:
                    length, = struct.unpack('<H', stream.read(2))
                    asked.append(stream.read(length))
                    stream.write(struct.pack('<H', len(answer)) + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        return asked

    def refer(self, *answers):
        """Answer referable requests, as diffcached does.

        :return: the requests, and what came after each answer
        """
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(self.folder / 'referrals'))
        listener.listen()
        asked = []

        def serve():
            for answer in answers:
                connection, _ = listener.accept()
                with connection, connection.makefile('rwb') as stream:
                    if not answer:
                        continue
                    range_ = struct.unpack('<BQQ', stream.read(17))
                    name = stream.read(stream.read(1)[0])
                    stream.write(answer)
                    stream.flush()
                    is_sent = answer[0] in (0, 3)
                    asked.append((*range_, name,
                                  stream.read(1) if is_sent else None))

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        return asked

    def get_referral(self, *fields):
        """Ask for the second leaf; return the status and three fields."""
        headers = {'Range': f'bytes={LEAF}-{2 * LEAF - 1}'}
        with contextlib.closing(http.client.HTTPConnection(
                *urllib.parse.urlsplit(self.serving.url).netloc.split(':'),
                timeout=60)) as connection:
            connection.request('GET', f'/v1/objects/images/{self.key.id}',
                               headers=headers | dict(fields))
            response = connection.getresponse()
            response.read()
            return (response.status, *map(response.getheader, (
                'X-DiffCache-Refer', 'Location', 'X-DiffCache-Hints')))

    def test_those_who_announce_it_are_referred_to_other_hosts(self):
        self.serving.attach(self.key, self.folder)
        self.listen()
        self.answers = {0: b'\0', 1: b'\0', 2: b'\0'}
        named = ('X-DiffCache-Refer', 'reader')
        # diffcached takes no connections there.
        self.assertEqual((206, None, None, None), self.get_referral(named))
        asked = self.refer(b'\0', b'\4\6host-3', b'\4\6host-3', b'\1',
                           b'\4\3a\nb', b'')
        self.assertEqual((206, None, None, None), self.get_referral(named))
        self.assertEqual((307, 'host-3', None, None),
                         self.get_referral(named))
        self.teach(b'Yg==')
        self.assertEqual((307, 'host-3', None, 'Yg=='), self.get_referral(
            named, ('X-DiffCache-Known', 'YQ==')))
        self.assertEqual(404, self.get_referral(named)[0])
        # No name of a host.
        self.assertEqual(503, self.get_referral(named)[0])
        # diffcached takes no more connections there.
        self.assertEqual((206, None, None, None), self.get_referral(named))
        whole = (1, LEAF, LEAF, b'reader')
        self.assertEqual(
            [(*whole, b'\0'), *4 * [(*whole, None)]], asked)
        # Nobody else is, nor those who were referred here.
        for fields in ((), (('X-DiffCache-Refer', 'a b'),),
                       (named, ('X-DiffCache-Fetch', 'no')),
                       (named, ('X-DiffCache-Fetch', 'arriving'))):
            self.assertEqual((206, None, None, None),
                             self.get_referral(*fields))
        self.assertEqual([1, 1, 1, 1, 0, 2],
                         [each[0] for each in self.asked])

    def test_hints_ride_on_replies_to_those_who_ask_for_them(self):
        self.serving.attach(self.key, self.folder)
        self.listen()
        self.answers = {0: b'\1', 1: b'\0'}
        known = ('X-DiffCache-Known', 'YQ==')
        # diffcached takes no connections there.
        self.assertEqual((206, None), self.get_hints(known))
        self.assertEqual(1, self.serving.stats()['unhinted'])
        asked = self.teach(b'Yg==', b'', b'a\r\nb: c')
        # A reader without hints, one that asks where an object is and no
        # more, and one that may not read it now.
        self.assertEqual((206, None), self.get_hints())
        self.assertEqual((206, None), self.get_hints(known, method='HEAD'))
        self.assertEqual((404, None), self.get_hints(
            known, ('X-DiffCache-Fetch', 'no')))
        self.assertEqual((206, 'Yg=='), self.get_hints(known))
        self.assertEqual((206, None), self.get_hints(known))
        self.assertEqual(1, self.serving.stats()['unhinted'])
        # What would break the answer, on either side.
        self.assertEqual((206, None), self.get_hints(known))
        for text in ('a b', 'x' * 6001):
            self.assertEqual((206, None), self.get_hints(
                ('X-DiffCache-Known', text)))
        self.assertEqual([b'YQ=='] * 3, asked)
        self.assertEqual(4, self.serving.stats()['unhinted'])

    def test_a_range_comes_from_the_file_once_it_is_there(self):
        self.serving.attach(self.key, self.folder)
        self.listen()
        self.answers = {0: b'\1', 1: b'\0'}
        leaf = self.content[LEAF:2 * LEAF]
        self.assertEqual((206, leaf), self.get())
        self.assertEqual([(1, LEAF, LEAF)], self.asked)
        # Only what is there: nothing is fetched for it.
        status, body = self.get(('X-DiffCache-Fetch', 'no'))
        self.assertEqual((404, 'missing'),
                         (status, json.loads(body)['reason']))
        self.assertEqual([(1, LEAF, LEAF), (0, LEAF, LEAF)], self.asked)
        self.answers = {0: b'\0'}
        self.assertEqual((206, leaf), self.get(('X-DiffCache-Fetch', 'no')))
        status, body = self.get(('X-DiffCache-Fetch', 'yes'))
        self.assertEqual((400, 'malformed'),
                         (status, json.loads(body)['reason']))

    def test_bytes_that_the_disk_did_not_take_are_sent_too(self):
        self.serving.attach(self.key, self.folder)
        self.listen()
        self.answers = {1: b'\3' + b'x' * LEAF}
        self.assertEqual((206, b'x' * LEAF), self.get())

    def test_what_cannot_be_fetched_is_a_moment_of_the_host(self):
        self.serving.attach(self.key, self.folder)
        # diffcached does not run.
        for _ in range(2):
            status, body = self.get()
            self.assertEqual((503, 'unfetched'),
                             (status, json.loads(body)['reason']))
            if not self.asked:
                self.listen()
        self.answers = {1: b'\7'}
        self.assertEqual(503, self.get()[0])

    def test_what_is_detached_is_missing_and_what_is_held_comes_first(self):
        self.serving.attach(self.key, self.folder)
        self.serving.detach(self.key)
        self.assertEqual(404, self.get()[0])
        self.serving.attach(self.key, self.folder)
        shutil.copy(self.path, self.directory / 'serving' / 'images'
                    / self.key.id)
        self.assertEqual(206, self.get()[0])
        self.assertEqual([], self.asked)

    def test_what_is_no_image_is_refused(self):
        self.assertRaises(exceptions.DiffCacheError, self.serving.attach,
                          views.Key(views.PATCHES, self.key.id), self.folder)
        for folder in (self.directory, self.directory / 'none'):
            self.assertRaises((exceptions.DiffCacheError, OSError),
                              self.serving.attach, self.key, folder)
