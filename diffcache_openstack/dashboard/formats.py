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
"""Values as pages show them."""

import typing

from django.utils import dateformat
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon.utils import filters

from diffcache_openstack.common import units

NOTHING = '-'
KINDS = (('images', _('Image')), ('patches', _('Patch')),
         ('manifests', _('Manifest')), ('recipes', _('Recipe')))
# Kinds of objects that plans place; others come with images.
PLACED = ('images', 'patches')
_DIGITS = 12
_BLOCK = 4096
_HOUR = 3600
_LEAST_SECONDS = 0.0001
_SHORT_SECONDS = 0.01


def digits(object_id: str) -> str:
    """Return the first digits of the ID of an object."""
    return object_id[:_DIGITS]


def names(found: list[str] | None) -> str:
    """Format a list of names."""
    return ', '.join(found or ())


def seconds(count: float | None) -> str:
    """Format a duration: two digits after the point, or the first two.

    Shorter ones are in milliseconds, of which a tenth is the least.
    """
    if count is None:
        return NOTHING
    if count and abs(count) < _LEAST_SECONDS:
        return '< 0.1 ms'
    if count and abs(count) < _SHORT_SECONDS:
        return f'{count * 1000:.2g} ms'
    return f'{count:.2g} s' if abs(count) < 1 else f'{round(count, 2):.12g} s'


def duration(count: float | None) -> str:
    """Format a duration that may be hours."""
    if count is None or abs(count) < _HOUR:
        return seconds(count)
    return f'{count / _HOUR:.1f} h'


def instant(text: str | None) -> str:
    """Format an instant of the service in the time zone of the user."""
    found = filters.parse_isotime(text) if text else None
    if not found:
        return NOTHING
    return dateformat.format(timezone.localtime(found), 'Y-m-d H:i:s')


def size(count: int | None) -> str:
    """Format bytes, with a unit of powers of 1000."""
    return NOTHING if count is None else units.format_size(count)


def blocks(count: int | None) -> str:
    """Format blocks of SSD caches as bytes."""
    return size(None if count is None else count * _BLOCK)


def share(part: float | None, whole: float | None) -> str:
    """Format a part of a whole as a percentage."""
    return f'{part / whole:.0%}' if whole and part is not None else NOTHING


def percentage(text: str) -> dict[str, str]:
    """Return the attributes of a cell of which Horizon draws a bar."""
    return {'percent': text} if text.endswith('%') else {}


def bandwidth(mbps: float | None) -> str:
    """Format megabits per second."""
    return NOTHING if mbps is None else f'{round(mbps, 2):g} Mbit/s'


def progress(counts: dict[str, int] | None) -> typing.Any:
    """Format which part of a plan is held."""
    if not counts or not counts['objects']:
        return _('No plan')
    return _('%(held)s of %(all)s objects, %(held_size)s of %(size)s') % {
        'held': counts['held_objects'], 'all': counts['objects'],
        'held_size': size(counts['held_bytes']),
        'size': size(counts['bytes'])}


def ready(counts: dict[str, int]) -> typing.Any:
    """Format how many targets of a precache job are ready."""
    if counts['failed']:
        return _('%(ready)s of %(targets)s, %(failed)s failed') % counts
    return _('%(ready)s of %(targets)s') % counts
