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
"""Options of the group [diffcache] in nova.conf."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import units
from diffcache_openstack.remote_calls import options

GROUP = cfg.OptGroup(
    'diffcache', title='Images from DiffCache',
    help='''
Options of DiffCache's driver in nova-compute (diffcache.LibvirtDriver) and of
its weighers in nova-scheduler (BuildCostWeigher, SsdRoomWeigher).
''')

DOWNLOAD = 'download'
ERROR = 'error'

FULL = 'full'
LAZY = 'lazy'
BOOT_MODES = (FULL, LAZY)

STOP = 'stop'
REPORT = 'report'

# Who makes the file of an image of a server.
NOVA = 'nova'
STORE = 'store'
GO = 'go'
STAY = 'stay'

# Of nova-compute, and of nova-scheduler's weigher.
BOOT_MODE = cfg.StrOpt(
    'boot_mode',
    default=FULL,
    choices=[(FULL, 'the whole image is on the host before the server starts'),
             (LAZY, 'the server starts while its image arrives')],
    help='''
When servers start. With ``lazy`` the base image is a link to a file of
diffcached, which fetches what is read, and the rest later; until it is whole,
the server depends on the hosts that have the image. It needs ``[lazy] socket``
in diffcache.conf and an ``images_type`` with overlays (qcow2). Without them,
and where a full delivery is quick, images are delivered whole, which is
counted in ``state_file``. ``diffcache:boot_mode`` in a server's metadata or in
a flavor's extra specs, and ``diffcache_boot_mode`` of an image, come before
the option, in this order. The scheduler's weigher reads the option, too: set
it there as on most compute nodes.
''')

COMPUTE_OPTS = [
    cfg.StrOpt(
        'socket',
        sample_default='/var/lib/diffcache/agent.sock',
        help='''
Socket of this host's agent, the value of its option ``[agent] socket``. The
driver needs it; nova-compute does not start without. Its user has to be in the
group that owns the socket (``[agent] socket_group``).
'''),
    cfg.Opt(
        'connect_timeout',
        type=units.Number(min=0.1),
        default=1.5,
        advanced=True,
        help='''
Seconds to wait for the agent to answer a question, such as whether it knows an
image. After that, the image is fetched as ``fallback`` says. Raise it if the
agent is slow because its host is overloaded; if the agent hangs, each boot
from a new image waits this long.
'''),
    cfg.Opt(
        'stall_timeout',
        type=units.Number(min=5.0),
        default=60.0,
        advanced=True,
        help='''
Seconds without progress of the agent, while it builds or fetches an image,
after which the image is fetched as ``fallback`` says. The duration of the
whole delivery is not limited.
'''),
    cfg.Opt(
        'restart_timeout',
        type=units.Number(min=0.0),
        default=20.0,
        advanced=True,
        help='''
Seconds to wait for an agent that is not running, for example during its
upgrade. A delivery that was interrupted is repeated when the agent runs again,
and a server that boots lazily waits for it, too. If the agent does not come
back within this time, images are fetched as ``fallback`` says, without waiting
again until it is back. 0 does not wait.
'''),
    cfg.StrOpt(
        'authority_file',
        sample_default='/etc/diffcache/authority.pem',
        help='''
File with the certificate of the authority that issued the keys of the
deployment's hosts, the value of the agent's ``[messaging] authority_file``.
With it an image is taken from the agent only if a record that the repository
signed says that the file with Glance's hash has this content. The agent checks
the same; this protects against an agent without that option.
'''),
    cfg.BoolOpt(
        'hash_raw_images',
        default=False,
        advanced=True,
        help='''
Whether to compute Glance's hash of each raw image that the agent delivers, and
compare it. It reads the whole image, at some hundred MB/s. Images in other
formats are delivered as raw content, so there is no file whose hash could be
computed.
'''),
    cfg.StrOpt(
        'mode',
        default='auto',
        choices=[
            ('auto', 'what the agent is configured for'),
            ('fetch_and_patch', 'copy base and patches here, apply them here'),
            ('on_the_fly', 'read base and patches where they are stored'),
        ],
        advanced=True,
        help='''
How images are built from a base and patches.
'''),
    BOOT_MODE,
    cfg.StrOpt(
        'read_error_policy',
        default=STOP,
        choices=[
            (STOP, 'the guest is stopped, and resumes when more of its image'
                   ' arrives'),
            (REPORT, 'the guest sees an input/output error'),
        ],
        advanced=True,
        help='''
What happens to a server whose base image is not whole when a read of it fails,
because no host that has the image answered for ``[lazy] wait`` seconds
(diffcache.conf), or diffcached ended. With ``stop`` users see a server that
hangs; with ``report`` its file systems may become read-only. It is applied
when a server starts, if its base image is not whole then.
'''),
    cfg.StrOpt(
        'fallback',
        default=DOWNLOAD,
        choices=[
            (DOWNLOAD, 'Nova downloads the image from Glance'),
            (ERROR, 'the operation fails; a new server is tried on other'
                    ' hosts'),
        ],
        help='''
What to do when the agent cannot deliver an image that it should be able to
deliver. With ``error``, no image ever crosses the WAN whole because an agent
was down. Images that DiffCache does not deliver are always downloaded: those
that the catalogue does not know (yet), those of other formats than raw and
qcow2, and those whose signature Nova has to verify.
'''),
    cfg.StrOpt(
        'snapshot_images',
        default=NOVA,
        choices=[
            (NOVA, 'Nova copies the disk'),
            (STORE, 'the agent saves the server as a version, and reads the'
                    ' image from that; Nova copies the disk if that fails'),
        ],
        help='''
How ``openstack server image create`` gets the disk of a server. With ``store``
the guest is paused for milliseconds, what changed since the server's last
version is read, and the project's version store keeps it until the next image
of the server; the image itself is the same, and Nova uploads it. The agent
needs ``[libvirt] snapshots_directory`` below its ``output_directories``.
'''),
    cfg.StrOpt(
        'unknown_policy',
        default=GO,
        choices=[(GO, 'it is deleted unsaved, which is logged and counted'),
                 (STAY, 'deleting fails, and can be tried again')],
        advanced=True,
        help='''
Dangerous with ``go`` where policies require versions: a server that is deleted
while the agent, the conductor or the database is down is not saved first.
Decides what to do while a server's policy cannot be read. Set it to ``stay``
if policies with ``--required`` have to hold then, too; no server on this host
can be deleted meanwhile.
'''),
    cfg.StrOpt(
        'write_back_notes',
        sample_default='/var/lib/diffcache/write_back',
        advanced=True,
        help='''
Directory where the agent notes volumes in the mode write-back: ``write_back``
in its ``[agent] state_dir``. Where neither agent nor cache answers,
nova-compute refuses to detach such volumes or to use them without the cache.
Default: beside ``socket``.
'''),
    cfg.StrOpt(
        'state_file',
        default='$state_path/diffcache-images.json',
        advanced=True,
        help='''
File with the number of images that the agent delivered and of fallbacks by
reason. It is replaced atomically with each image.
'''),
]

SCHEDULER_OPTS = [
    *options.broker('Nova'),
    cfg.Opt(
        'build_cost_weight_multiplier',
        type=units.Number(),
        default=2.0,
        help='''
Multiplier of the weight of hosts that get the image at low cost. The weight is
the part of the most expensive host's cost that a host saves, from 0 to 1. With
the default, a host that saves more than half is preferred to one that builds
no other server, for which Nova adds 1; smaller savings leave servers spread
that are created together. Higher values place servers where the image is; 0
disables the weigher and its calls to the conductor; negative values prefer
hosts where the image is expensive. The metadata of a host aggregate can
override it under the same name.
'''),
    cfg.Opt(
        'prefer_cached_factor',
        type=units.Number(min=1.0),
        default=100.0,
        advanced=True,
        help='''
Factor of the multiplier for servers whose scheduler hint
``diffcache:prefer_cached`` is true. For them every saving counts in proportion
to the most expensive host's cost, even savings of a few seconds, which hardly
count without the hint. Nova's own weighers add at most 9 to a host by default:
nine weighers with the multiplier 1 or -1 and a weight from 0 to 1. With 100 a
host that saves a tenth of the cost outweighs them, but not the 1000000 by
which Nova avoids other cells and hosts where builds have just failed. With
lower values the other weighers count, too.
'''),
    cfg.Opt(
        'ssd_room_weight_multiplier',
        type=units.Number(),
        default=1.0,
        help='''
Multiplier of the weight of hosts whose SSD cache has room for the volumes that
a server brings. The weight is the part of their working sets that the cache
can hold, from 0 to 1; hosts without an SSD cache have 0. It counts for servers
that have volumes in the SSD cache of their present host. Higher values prefer
room on the SSD to other resources; 0 disables the weigher and its calls to the
conductor. The metadata of a host aggregate can override it under the same
name.
'''),
    cfg.Opt(
        'cost_timeout',
        type=units.Number(min=0.05, max=30.0),
        default=1.0,
        advanced=True,
        help='''
Seconds that each weigher waits for the conductor when a server is scheduled.
Without an answer all hosts get the same weight.
'''),
]


def register_compute_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of nova-compute in Nova's configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(COMPUTE_OPTS, group=GROUP)


def register_scheduler_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of nova-scheduler."""
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts([BOOT_MODE, *SCHEDULER_OPTS], group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the group and its options, for the sample configuration."""
    return [(GROUP, [*COMPUTE_OPTS, *SCHEDULER_OPTS])]
