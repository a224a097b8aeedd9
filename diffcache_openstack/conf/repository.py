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
"""Options of the repository's agent: ingesting images, creating patches."""

from oslo_config import cfg

from diffcache_openstack.common import units
from diffcache_openstack.conf import fill

GROUP = cfg.OptGroup(
    'repository',
    title='The repository',
    help='How the agent with the role "repository" adds images and creates'
         ' patches.')

OPTS = [
    cfg.StrOpt(
        'image_source',
        default='',
        help='''
Image service whose images are added to the repository: ``glance``, configured
in the group ``[glance]``. Empty adds only images that are registered with
"diffcache-manage image register".
'''),
    cfg.ListOpt(
        'image_directories',
        default=['/var/lib/diffcache/incoming'],
        help='''
Directories whose files "diffcache-manage image register" may name. Any other
path is refused, since every site can read what is registered. An empty list
refuses all paths.
'''),
    cfg.IntOpt(
        'ingest_workers',
        default=2,
        min=1,
        max=64,
        advanced=True,
        help='''
Number of images to add at the same time. Small images come first; with several
workers, one is reserved for images of at most 1 GiB. Each worker may use all
processors, and needs temporary space for one image.
'''),
    cfg.Opt(
        'max_expansion',
        type=units.Number(min=1.0),
        default=50.0,
        advanced=True,
        help='''
Maximum bytes of content for each byte of a qcow2 file. An image that would
expand more is not added, unless its content is at most 256 MiB; only Glance
serves it. Images of operating systems expand to 2 to 10 times the size of
their file. Raise it if legitimate images compress better; lower it to protect
the repository's disk from files that unpack to many times their size. The size
of an image's disk is limited by ``[glance] largest_image``.
'''),
    cfg.Opt(
        'unpack_timeout',
        type=units.Number(min=1.0),
        default=3600.0,
        advanced=True,
        help='''
Maximum seconds to unpack a qcow2 image after its download, and to describe its
file. An image that takes longer is not added. Raise it if large images time
out on a slow disk.
'''),
    cfg.IntOpt(
        'compression_level',
        default=6,
        min=0,
        max=19,
        advanced=True,
        help='''
Compression level (zstd) of the form in which images cross the WAN. The
repository compresses each image once, in the background, and keeps the result:
for images of operating systems a third to a half of their data. Level 6
compresses about 40 MB/s on one processor; level 3 takes a third of that time
and some 6 % more bytes. 0 disables it: images cross the WAN uncompressed.
'''),
    cfg.IntOpt(
        'patch_level',
        default=3,
        min=1,
        max=19,
        advanced=True,
        help='''
Compression level of patches (zstd). Higher levels make patches some percent
smaller and take several times as long to create; the time to apply a patch
hardly changes.
'''),
    cfg.Opt(
        'max_patch_ratio',
        type=units.Number(min=0.0, max=1.0),
        default=0.5,
        advanced=True,
        help='''
Largest patch to keep, as a fraction of its target's data. Larger patches save
too little for the space and the time to apply them. 0 creates no patches.
'''),
    cfg.IntOpt(
        'patches_on_demand',
        default=20,
        min=0,
        advanced=True,
        help='''
Maximum number of patches per hour that are created on demand. A host that
needs an image for which no patch exists yet requests one from an image of its
site, if that is predicted to be faster than the whole image; it waits at most
half of the time that the whole image would take. ``windows`` does not delay
these patches. Creating a patch uses a processor for some 15 seconds per
gigabyte of the image's data. 0 disables it.
'''),
    cfg.ListOpt(
        'windows',
        default=[],
        help='When patches may be created.' + fill.WINDOWS_HELP + '''
Adding an image and reading its content once is not limited by it.
'''),
    cfg.IntOpt(
        'scan_interval',
        default=60,
        min=1,
        advanced=True,
        help='''
Seconds between two searches for missing patches, also after ``windows`` paused
the creation of patches. A new image starts a search at once.
'''),
]
