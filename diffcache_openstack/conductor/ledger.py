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
"""Which messages any of the conductors accepted."""

import datetime

from diffcache_openstack.common.signing import signatures
from diffcache_openstack.db import engine
from diffcache_openstack.db import senders
from diffcache_openstack.objects import versioned


class DatabaseLedger:
    """A ledger that all conductors share.

    :param lifetime: seconds for which a signature is accepted
    """

    def __init__(self, database: engine.Database, lifetime: float) -> None:
        self._database = database
        self._lifetime = lifetime

    def admit(self, sender: signatures.Sender) -> None:
        """Accept a message that changes state, once.

        :raises Forbidden: it was accepted before, or its signer's key revoked
        """
        self._database.write(senders.admit, sender, versioned.now())

    def check(self, sender: signatures.Sender) -> None:
        """Accept a message that changes nothing.

        :raises Forbidden: its signer's key is revoked
        """
        self._database.read(senders.check, sender)

    def tidy(self) -> int:
        """Forget messages whose signatures are too old to be accepted."""
        kept = datetime.timedelta(seconds=2 * self._lifetime)
        return self._database.write(senders.forget, versioned.now() - kept)
