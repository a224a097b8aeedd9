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
"""What messages have to pass before a method of an endpoint runs."""

import collections
import threading

from oslo_log import log

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import signatures
from diffcache_openstack import objects
from diffcache_openstack.remote_calls import remote

LOG = log.getLogger(__name__)


class Gate:
    """Admits calls of known methods with usable arguments, by callers who may.

    :param table: the methods of a service
    :param security: says whether callers have to be known
    :param ledger: remembers accepted messages
    """

    def __init__(self, table: remote.Table, security: signatures.Security,
                 ledger: signatures.Ledger) -> None:
        self._table = table
        self._security = security
        self._ledger = ledger
        self._lock = threading.Lock()
        self.unsigned: collections.Counter[str] = collections.Counter()

    def check(self, message: messaging.Message) -> None:
        """Check a message by what it says alone.

        :raises InvalidInput: the method is unknown, or an argument unusable
        :raises Forbidden: the caller is unknown, or may not call it
        """
        method = self._table.get((message.namespace, message.method))
        if method is None:
            raise exceptions.InvalidInput(
                f'There is no method {message.method!r:.80} in the namespace'
                f' {message.namespace!r:.80}.')
        method.check(message.method, message.arguments)
        if not method.callers or self._security.authority is None:
            return
        if message.sender is None:
            self._admit_unsigned(message.method)
        else:
            _check_caller(method, message, message.sender)

    def admit(self, message: messaging.Message) -> None:
        """Return if a message that was checked may be dispatched now.

        :raises Forbidden: the same message was accepted before, or the key of
            its sender is revoked
        """
        method = self._table[message.namespace, message.method]
        if not method.callers or message.sender is None:
            return
        if method.changes:
            self._ledger.admit(message.sender)
        else:
            self._ledger.check(message.sender)

    def _admit_unsigned(self, name: str) -> None:
        if self._security.required:
            raise exceptions.Forbidden(
                f'A message {name} is not signed; give its sender a key,'
                f' [messaging] key_file.')
        with self._lock:
            self.unsigned[name] += 1
            count = self.unsigned[name]
        if count & (count - 1) == 0:
            LOG.warning('Accepted %d messages %s without a signature, since'
                        ' [messaging] require_signatures is false', count,
                        name)


def _check_caller(method: remote.Method, message: messaging.Message,
                  sender: signatures.Sender) -> None:
    """Check that a host may call a method, and speaks for itself only.

    :raises Forbidden: it may not
    """
    signer = sender.signer
    if signer.role not in method.callers:
        raise exceptions.Forbidden(
            f'The {signer} may not call {message.method}; that is for:'
            f' {", ".join(sorted(method.callers))}.')
    if sender.bound_host is None:
        return
    for name in method.speakers(message.arguments):
        if name != sender.bound_host:
            raise exceptions.Forbidden(
                f'The {signer} called {message.method} for host {name}; hosts'
                f' speak for themselves only.')
    host = message.arguments.get('host')
    if isinstance(host, objects.Host):
        _check_registration(host, signer)
    site = message.arguments.get('site')
    if site is not None and site != signer.site:
        raise exceptions.Forbidden(
            f'The {signer} called {message.method} for site {site}; hosts see'
            f' maps and plans of their own site only.')


def _check_registration(host: objects.Host, signer: host_keys.Signer) -> None:
    if host.role != signer.role:
        raise exceptions.Forbidden(
            f'The {signer} cannot register as {host.role}; issue a key for'
            f' that role.')
    if host.site != signer.site:
        raise exceptions.Forbidden(
            f'The {signer} cannot register at site {host.site}: its key is of'
            f' site {signer.site}; correct its [agent] site, or issue a key'
            f' with "diffcache-manage host-key create --site {host.site}".')
