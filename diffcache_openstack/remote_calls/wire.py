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
"""Types of the arguments that cross the message bus.

What is not of its type is refused before any code of an endpoint runs.
"""

import typing

from oslo_versionedobjects import fields as oslo_fields

from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.objects import catalogue
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import hydration
from diffcache_openstack.objects import volume_cache

Field = oslo_fields.Field

MOST_HOSTS = 100_000


class _Tuple(oslo_fields.FieldType):
    """A list with one element of each of some types."""

    def __init__(self, *elements: Field) -> None:
        self._elements = elements

    def coerce(self, obj, attr: str, value: typing.Any) -> list:
        """Return the list, with each element checked.

        :raises ValueError: it is none, or of another length
        """
        if not isinstance(value, (list, tuple)) \
                or len(value) != len(self._elements):
            raise ValueError(f'{attr}: {fields.shortened(value)} is no list'
                             f' of {len(self._elements)} elements')
        return [element.coerce(obj, attr, each)
                for element, each in zip(self._elements, value)]


class _Record(oslo_fields.FieldType):
    """A mapping with some of certain keys."""

    def __init__(self, **values: Field) -> None:
        self._values = values

    def coerce(self, obj, attr: str, value: typing.Any) -> dict:
        """Return the mapping, with each value checked.

        :raises ValueError: it is none, or has another key
        """
        if not isinstance(value, dict) or not set(value) <= set(self._values):
            raise ValueError(f'{attr}: {fields.shortened(value)} is no mapping'
                             f' with keys of {sorted(self._values)}')
        return {name: self._values[name].coerce(obj, f'{attr}.{name}', each)
                for name, each in value.items()}


class _Within(oslo_fields.FieldType):
    """A number between two limits, these included."""

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most

    def coerce(self, obj, attr: str, value: typing.Any) -> float:
        """Return the number.

        :raises ValueError: it is none, or outside the limits
        """
        number = fields.Float().coerce(obj, attr, value)
        if not self._least <= number <= self._most:
            raise ValueError(f'{attr}: {value} is not within {self._least:g}'
                             f' and {self._most:g}')
        return value


def within(least: float, most: float, nullable: bool = False) -> Field:
    """Return the type of a number between two limits, these included."""
    return Field(_Within(least, most), nullable=nullable)


def record(**values: Field) -> Field:
    """Return the type of a mapping with some of certain keys."""
    return Field(_Record(**values))


def tuples(*elements: Field, most: int = fields.MOST_ELEMENTS,
           nullable: bool = False) -> Field:
    """Return the type of a list of lists with one element of each type."""
    return Field(fields.List(_Tuple(*elements), most), nullable=nullable)


def position(nullable: bool = False) -> Field:
    """Return the type of a catalogue's number and digest."""
    return Field(_Tuple(COUNT, HASH), nullable=nullable)


HOST = fields.HostField()
HOST_NAMES = fields.ListOfStringsField(fields.HOST_PATTERN, MOST_HOSTS)
SITE = fields.SiteField()
ID = fields.IdField()
UUID = fields.UUIDField()
HASH = fields.HashField()
COUNT = fields.NonNegativeIntegerField()
GENERATION = fields.NonNegativeIntegerField(nullable=True)
NUMBER = fields.NonNegativeFloatField()
BOOLEAN = fields.BooleanField()
LABEL = fields.StringField()
TEXT = fields.TextField()
PATH = fields.StringField(r'/[^\x00-\x1f\x7f]+', 4096)
# Of a version store: a hash of its URI.
# Of packs, maps and versions.
THREE_NUMBERS = Field(_Tuple(COUNT, COUNT, COUNT))
PLACE = fields.StringField(r'[0-9a-f]{16}')
KIND = fields.EnumField(catalogue.KINDS)
RATE = fields.NonNegativeIntegerField(nullable=True)
MBPS = within(1e-6, 1e9)
SECONDS = within(0.1, 600)
TERMS = fields.StringField(r'[a-z0-9., ]+', 64)

HYDRATION_SETTINGS = record(
    deadline=within(1, hydration.LONGEST_DEADLINE, nullable=True),
    rate=RATE, paused=BOOLEAN)

VOLUME_SETTINGS = record(
    limit=fields.NonNegativeIntegerField(nullable=True),
    min=fields.NonNegativeIntegerField(nullable=True),
    max=fields.NonNegativeIntegerField(nullable=True),
    weight=fields.NonNegativeFloatField(nullable=True),
    priority=fields.NonNegativeFloatField(nullable=True),
    mode=fields.EnumField(volume_cache.MODES, nullable=True),
    sla=fields.StringField(nullable=True),
    admission=fields.NonNegativeIntegerField(nullable=True))

# All of them, and nothing of one volume alone. Rates that depend on the size
# of a volume are left out.
TYPE_SETTINGS = record(
    min=COUNT,
    max=fields.NonNegativeIntegerField(nullable=True),
    weight=NUMBER,
    priority=fields.NonNegativeFloatField(nullable=True),
    mode=fields.EnumField(volume_cache.MODES),
    sla=fields.StringField(nullable=True),
    sequential=fields.NonNegativeIntegerField(nullable=True),
    admission=fields.NonNegativeIntegerField(nullable=True),
    rates=record(**dict.fromkeys(rates.NAMES, COUNT)))
