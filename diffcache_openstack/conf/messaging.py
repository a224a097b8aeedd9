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
"""Options of the messages between services: who signs, who is believed."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'messaging',
    title='Messages between services',
    help='Each service signs its messages with the key of its host. The'
         ' broker itself is set by "transport_url" and the groups of'
         ' oslo.messaging.')

OPTS = [
    cfg.StrOpt(
        'key_file',
        help='''
File with the key of this host and its certificate, as "diffcache-manage
host-key create" writes it. It must be readable by the service's user only
(mode 0600). Every service but Nova's scheduler needs one: agents with the role
"compute" or "repository" and the name of ``[agent] host``, the conductor, the
API and "diffcache-manage" with the role "controller". Without it messages are
not signed.
'''),
    cfg.StrOpt(
        'authority_file',
        help='''
File with the certificate of the authority that issued the keys of all hosts,
as "diffcache-manage authority create" writes it. With it the signatures of
messages and of images are verified. The file is no secret and is the same on
all hosts. While an authority is being replaced, the file contains the
certificates of both. Without it any client of the message broker can act as
any host.
'''),
    cfg.BoolOpt(
        'require_signatures',
        default=True,
        advanced=True,
        help='''
Dangerous if false: any client of the message broker can act as any host.
Refuses messages and images without a signature, where ``authority_file`` is
set. If false, unsigned ones are accepted and logged; those with a wrong
signature are always refused. Set it to false only while keys are introduced
host by host.
'''),
    cfg.IntOpt(
        'signature_lifetime',
        default=120,
        min=10,
        max=3600,
        advanced=True,
        help='''
Seconds for which the signature of a message is accepted. The clocks of all
hosts have to agree to within this time, and a message that waits longer in the
broker is refused.
'''),
]
