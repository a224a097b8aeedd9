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
"""Values of options that give up safety."""

from oslo_config import cfg


def of(conf: cfg.ConfigOpts) -> list[str]:
    """Return what is set to a dangerous value, and what that means."""
    plane, versions = conf.data_plane, conf.versions
    return [text for is_set, text in (
        (conf.messaging.authority_file
         and not conf.messaging.require_signatures,
         '[messaging] require_signatures = false accepts messages without a'
         ' signature'),
        (plane.allow_plain,
         '[data_plane] allow_plain = true sends images without encryption'),
        (plane.tls_plain_peers,
         '[data_plane] tls_plain_peers = true sends images without encryption'
         ' to peers that have no TLS'),
        (not conf.agent.sync_outputs,
         '[agent] sync_outputs = false may lose delivered images with a power'
         ' failure'),
        (versions.store and not versions.key_manager
         and not versions.key_file,
         '[versions] store is not encrypted, and key_manager cannot be set'
         ' once it has versions'),
    ) if is_set]
