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
"""Guest agents: what they say, and what they may do wrong."""

import json
import pathlib
import socket
import threading

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.guests import guest_agent
from tests import base


class ScriptedAgent:
    """Speaks the guest agent's protocol on a socket, by a script.

    No guest is behind it: it stands for one in what the host can see.

    :param answers: what commands other than the synchronization return
    """

    def __init__(self, path: pathlib.Path, answers: dict[str, object]
                 ) -> None:
        self.path = path
        self.asked: list[str] = []
        self._answers = answers
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection, connection.makefile('rb') as lines:
                # What the client before left behind.
                connection.sendall(b'{"return": 1}\n')
                for line in lines:
                    answer = self._answer(line)
                    if answer is None:
                        break  # It hangs up.
                    connection.sendall(answer)

    def _answer(self, line: bytes) -> bytes | None:
        request = json.loads(line.rpartition(b'\xff')[2])
        if request['execute'] == 'guest-sync-delimited':
            answer = {'return': request['arguments']['id']}
            return b'\xff' + json.dumps(answer).encode() + b'\n'
        self.asked.append(request['execute'])
        answer = self._answers.get(request['execute'], {
            'error': {'desc': 'The command is disabled'}})
        if answer is None or isinstance(answer, bytes):
            return answer
        return json.dumps(answer).encode() + b'\n'

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


class TestGuestAgent(base.TestCase):

    def agent(self, **answers: object) -> ScriptedAgent:
        agent = ScriptedAgent(self.directory / 'agent', {
            f'guest-fsfreeze-{name}': answer
            for name, answer in answers.items()})
        self.addCleanup(agent.close)
        return agent

    def test_filesystems_are_still_within_the_block_only(self):
        agent = self.agent(freeze={'return': 2}, thaw={'return': 2})
        with guest_agent.frozen(agent.path) as found:
            self.assertEqual(['guest-fsfreeze-freeze'], agent.asked)
        self.assertTrue(found.quiesced)
        self.assertGreater(found.frozen_ms, 0)
        self.assertEqual('guest-fsfreeze-thaw', agent.asked[-1])

    def test_a_block_that_fails_thaws_too(self):
        agent = self.agent(freeze={'return': 2}, thaw={'return': 2})
        with self.assertRaises(ValueError):
            with guest_agent.frozen(agent.path):
                raise ValueError
        self.assertEqual('guest-fsfreeze-thaw', agent.asked[-1])

    def test_a_guest_that_refuses_is_told_as_not_quiesced(self):
        agent = self.agent(thaw={'return': 0})
        with guest_agent.frozen(agent.path) as found:
            pass
        self.assertFalse(found.quiesced)
        # It may be still for somebody else.
        self.assertEqual(['guest-fsfreeze-freeze'], agent.asked)

    def test_a_guest_that_hangs_up_may_be_frozen(self):
        agent = self.agent(freeze=None, thaw={'return': 2})
        with guest_agent.frozen(agent.path) as found:
            pass
        self.assertFalse(found.quiesced)
        self.assertEqual('guest-fsfreeze-thaw', agent.asked[-1])

    def test_a_guest_that_still_freezes_is_thawed_later(self):
        class Busy:
            """Answers nothing while it writes what is dirty."""

            def __init__(self):
                self.asked = []

            def count(self, name):
                self.asked.append(name)
                if len(self.asked) < 4:
                    raise exceptions.ServiceUnavailable('no answer')
                return 1

        self.patch(guest_agent, '_THAW_PAUSE_S', 0)
        agent = Busy()
        with guest_agent.frozen(agent) as found:
            pass
        self.assertFalse(found.quiesced)
        self.assertEqual(
            ['guest-fsfreeze-freeze', *['guest-fsfreeze-thaw'] * 3],
            agent.asked)

    def test_a_guest_that_can_freeze_nothing_is_not_quiesced(self):
        agent = self.agent(freeze={'return': 0}, thaw={'return': 0})
        with guest_agent.frozen(agent.path) as found:
            pass
        self.assertFalse(found.quiesced)

    def test_nonsense_is_no_answer(self):
        agent = self.agent(freeze={'return': 'yes'})
        with guest_agent.Agent(agent.path) as channel:
            self.assertRaises(exceptions.PermanentError, channel.count,
                              'guest-fsfreeze-freeze')

    def test_an_answer_that_is_nested_deeply_keeps_no_save_from_being_made(
            self):
        agent = self.agent(freeze=b'[' * 100_000 + b'\n', thaw={'return': 2})
        with guest_agent.frozen(agent.path) as found:
            pass
        self.assertFalse(found.quiesced)
        self.assertEqual('guest-fsfreeze-thaw', agent.asked[-1])

    def test_nobody_there_is_not_quiesced(self):
        with guest_agent.frozen(self.directory / 'none') as found:
            pass
        self.assertFalse(found.quiesced)
        self.assertEqual(0.0, found.frozen_ms)
