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
import typing

from diffcache_openstack.nova import options

LOG = logging.getLogger(__name__)

# Of servers' metadata and flavors' extra specs, and of images' properties.
KEY = 'diffcache:boot_mode'
PROPERTY = 'diffcache_boot_mode'

_Values = collections.abc.Mapping[str, typing.Any]


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
