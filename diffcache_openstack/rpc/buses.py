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
"""The message bus of a service, with the key that it signs by."""

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.objects import versioned

LOG = log.getLogger(__name__)


def open_bus(conf: cfg.ConfigOpts, role: str, host: str | None = None
             ) -> messaging.Bus:
    """Return the bus that a configuration names.

    :param role: of this service, one of host_keys.ROLES
    :param host: its name; None for services that have none
    :raises InvalidInput: transport_url or a key file cannot be used, or the
        key is that of another host or role
    """
    security = load_security(conf)
    if security.key is not None:
        _check_key(security.key.signer, role, host)
    return messaging.Bus(conf, versioned.Serializer(), security=security)


def load_security(conf: cfg.ConfigOpts) -> signatures.Security:
    """Return how a configuration has messages signed and verified.

    :raises InvalidInput: a file cannot be used, or one is missing
    """
    options = conf.messaging
    if options.authority_file and options.require_signatures \
            and not options.key_file:
        raise exceptions.InvalidInput(
            '[messaging] authority_file is set, so other services refuse what'
            ' this one does not sign; set key_file, too, or require_signatures'
            ' = false while keys are introduced.')
    return signatures.Security(
        host_keys.HostKey(options.key_file) if options.key_file else None,
        host_keys.Authority(options.authority_file)
        if options.authority_file else None,
        options.require_signatures, options.signature_lifetime)


def warn_if_open(security: signatures.Security) -> None:
    """Log a warning if anyone with access to the broker is believed."""
    if security.authority is None:
        LOG.warning('Messages are not verified: any client of the message'
                    ' broker can act as any host. Create keys with'
                    ' "diffcache-manage authority create" and "host-key'
                    ' create", and set [messaging] key_file and'
                    ' authority_file')
    elif not security.required:
        LOG.warning('Messages without a signature are accepted, since'
                    ' [messaging] require_signatures is false')


def _check_key(signer: host_keys.Signer, role: str, host: str | None) -> None:
    if signer.role != role or host not in (None, signer.name):
        raise exceptions.InvalidInput(
            f'[messaging] key_file is that of the {signer}, and this is the'
            f' {role} {host or ""}; issue the right one with "diffcache-manage'
            f' host-key create".')
