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
"""Having the agent save servers that Nova shuts down or removes."""

import logging
import pathlib
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.nova import options
from diffcache_openstack.nova import tallies

LOG = logging.getLogger(__name__)

SHUTDOWN = 'shutdown'
DELETE = 'delete'
# What a disk has beside it while it is rolled back.
_ROLLBACK = '.rollback'


class NotSaved(Exception):
    """A server was not saved, and its policy requires it, or might."""


class Saver:
    """Saves servers through the agent, which knows the policies.

    :param stall_timeout: seconds without a sign of life from the agent
    :param unknown: what ``[diffcache] unknown_policy`` says
    """

    def __init__(self, client: local_client.LocalClient,
                 tally: tallies.Tally, stall_timeout: float,
                 unknown: str) -> None:
        self._client = client
        self._tally = tally
        self._stall_timeout = stall_timeout
        self._unknown = unknown

    def save_before(self, instance: typing.Any, trigger: str) -> None:
        """Save a server before it ends, if its policy says so.

        Whatever goes wrong is logged and counted, and no more than that
        unless the policy requires the version, or the policy is unknown
        and the operator wants servers to stay then.

        :param instance: Nova's
        :raises NotSaved: it was not saved, and has to be
        """
        try:
            saved = self._client.save_server(instance.uuid, {
                'project_id': instance.project_id, 'trigger': trigger,
                'image_id': instance.image_ref or None},
                self._stall_timeout)
        except Exception as error:
            # The edge to another project's code: it must not cost a user
            # the server's end.
            self._count(instance, trigger, type(error).__name__, str(error))
            if trigger == DELETE and self._unknown == options.STAY:
                raise NotSaved(
                    f'Whether the version policy of server {instance.uuid}'
                    f' wants it saved is not known ({error}); try again once'
                    ' the DiffCache agent of its host and the conductor'
                    ' run.') from error
            return
        if saved['error']:
            self._count(instance, trigger, 'Failed', saved['error'])
            if saved['required']:
                raise NotSaved(
                    f'Server {instance.uuid} was not saved, which its version'
                    f' policy requires: {saved["error"]}')
        elif saved['version']:
            LOG.info('Server %s was saved as version %s before its %s',
                     instance.uuid, saved['version'], trigger)

    def _count(self, instance, trigger, reason, message):
        number = self._tally.unsaved(reason)
        LOG.warning('Could not save server %s before its %s (%s: %s);'
                    ' failure number %d of this kind', instance.uuid, trigger,
                    reason, message, number)


def unfinished_rollback(folder: pathlib.Path) -> pathlib.Path | None:
    """Return a disk of a server with an unfinished rollback, or None."""
    for journal in sorted(folder.glob(f'*{_ROLLBACK}')):
        return journal.with_name(journal.name.removesuffix(_ROLLBACK))
    return None
