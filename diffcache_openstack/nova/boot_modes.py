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
"""Whether a server waits for its whole image. Nothing here knows Nova."""

import collections.abc
import logging
import re
import typing

from diffcache_openstack.nova import options

LOG = logging.getLogger(__name__)

# Of servers' metadata and flavors' extra specs, and of images' properties.
KEY = 'diffcache:boot_mode'
PROPERTY = 'diffcache_boot_mode'
# Of servers' metadata: the label of the profile that they boot with.
PROFILE_KEY = 'diffcache:profile'
# Of servers' metadata: the deadline of their image's hydration in seconds, and
# bytes per second that are fetched at most besides what guests read.
HYDRATE_BY_KEY = 'diffcache:hydrate_by'
HYDRATE_RATE_KEY = 'diffcache:hydrate_rate'
_LONGEST_LABEL = 128
_MOST = {HYDRATE_BY_KEY: 10 ** 8, HYDRATE_RATE_KEY: 10 ** 12}

_Values = collections.abc.Mapping[str, typing.Any]


def label(instance: typing.Any) -> str:
    """Return the label of what a server reads: chosen, or its flavor.

    :param instance: Nova's
    """
    flavor = getattr(instance, 'flavor', None)
    chosen = (instance.metadata or {}).get(PROFILE_KEY) \
        or getattr(flavor, 'name', None) or ''
    return re.sub(r'[^A-Za-z0-9 ._:@+-]', '_', str(chosen))[:_LONGEST_LABEL]


def hydration(instance: typing.Any) -> dict[str, int]:
    """Return the hydration that a server's metadata asks for.

    :param instance: Nova's
    :returns: ``hydrate_by`` in seconds and ``hydrate_rate`` in bytes per
        second; without those that are not given, or cannot be used
    """
    found = {}
    for key, most in _MOST.items():
        value = (instance.metadata or {}).get(key)
        if value is None:
            continue
        if re.fullmatch('[0-9]{1,15}', str(value)) \
                and 1 <= int(value) <= most:
            found[key.removeprefix('diffcache:')] = int(value)
        else:
            LOG.warning('Ignoring %s=%s of server %s: it is no number of 1 to'
                        ' %d', key, value, instance.uuid, most)
    return found


def choose(instance: typing.Any, properties: _Values, default: str) -> str:
    """Return the boot mode of a server.

    Its metadata comes before its flavor, its flavor before its image, and its
    image before the option.

    :param instance: Nova's; None for none, which boots nothing
    :param properties: of the image
    :param default: the option ``[diffcache] boot_mode``
    :returns: options.FULL or options.LAZY
    """
    if instance is None:
        return options.FULL
    flavor = getattr(instance, 'flavor', None)
    for values, key in ((instance.metadata, KEY),
                        (getattr(flavor, 'extra_specs', None), KEY),
                        (properties, PROPERTY)):
        value = (values or {}).get(key)
        if value in options.BOOT_MODES:
            return str(value)
        if value is not None:
            LOG.warning('Ignoring %s=%s of server %s: it is none of %s', key,
                        value, instance.uuid, ', '.join(options.BOOT_MODES))
    return default
