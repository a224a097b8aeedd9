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
"""Strict types of the fields of versioned objects.

Those of oslo.versionedobjects convert what they are given: a number becomes a
text, any text is a UUID, everything is true or false. Objects arrive over the
message bus, so the types here accept only what a field is declared to hold, in
bounded length. Their class names are those of oslo.versionedobjects, so the
fingerprints of objects, and what crosses the wire, are the same.
"""

import collections.abc
import datetime
import math
import re
import typing

from oslo_versionedobjects import fields

from diffcache_openstack.common import exceptions

HASH_PATTERN = r'[0-9a-f]{64}'
UUID_PATTERN = r'[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'
# What is part of a file's or a queue's name.
ID_PATTERN = r'[A-Za-z0-9_][A-Za-z0-9._:@+-]{0,127}'
HOST_PATTERN = r'[A-Za-z0-9][A-Za-z0-9._-]{0,254}'
SITE_PATTERN = r'[A-Za-z0-9][A-Za-z0-9._-]{0,63}'
# Names of disks in guests, such as vda.
DEVICE_PATTERN = r'[A-Za-z0-9_-]{1,64}'
ALPHA_PATTERN = r'auto|0(\.[0-9]{1,6})?|1(\.0+)?'
# The white space of texts of several lines is allowed.
CONTROL_PATTERN = r'[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]'
TEXT_PATTERN = r'[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*'

NAME_LENGTH = 255
TEXT_LENGTH = 65536
RESULT_LENGTH = 2 ** 20
LARGEST_INTEGER = 2 ** 63 - 1
MOST_ELEMENTS = 1_000_000

ObjectField = fields.ObjectField


class String(fields.String):
    """A text that matches a pattern, of bounded length."""

    def __init__(self, pattern: str = TEXT_PATTERN,
                 max_length: int = NAME_LENGTH) -> None:
        self._pattern = re.compile(pattern)
        self._max_length = max_length

    def coerce(self, _obj, attr: str, value: typing.Any) -> str:
        """Return the value, if it is such a text.

        :raises ValueError: it is not
        """
        if not isinstance(value, str) or len(value) > self._max_length \
                or not self._pattern.fullmatch(value):
            raise _refused(attr, value, f'text of at most {self._max_length}'
                                        f' characters in its format')
        return value


class Hash(String):
    """A BLAKE3 hash, 64 lower-case hexadecimal digits."""

    def __init__(self) -> None:
        super().__init__(HASH_PATTERN)


class UUID(String):
    """A UUID in its usual form, with hyphens."""

    def __init__(self) -> None:
        super().__init__(UUID_PATTERN)


class Enum(fields.Enum):
    """One of some texts."""

    def coerce(self, obj, attr: str, value: typing.Any) -> str:
        """Return the value, if it is one of them.

        :raises ValueError: it is not
        """
        if not isinstance(value, str) or value not in self._valid_values:
            raise _refused(attr, value,
                           f'value of {", ".join(self._valid_values)}')
        return value


class Integer(fields.Integer):
    """A whole number that databases can store."""

    def coerce(self, _obj, attr: str, value: typing.Any) -> int:
        """Return the value, if it is such a number.

        :raises ValueError: it is not
        """
        if type(value) is not int or abs(value) > LARGEST_INTEGER:
            raise _refused(attr, value, 'whole number of 64 bits')
        return value


class NonNegativeInteger(Integer):
    """A whole number that is not negative."""

    def coerce(self, obj, attr: str, value: typing.Any) -> int:
        """Return the value, if it is such a number.

        :raises ValueError: it is not
        """
        if super().coerce(obj, attr, value) < 0:
            raise _refused(attr, value, 'number of at least 0')
        return value


class Float(fields.Float):
    """A finite number."""

    def coerce(self, _obj, attr: str, value: typing.Any) -> float:
        """Return the value, if it is such a number.

        :raises ValueError: it is not
        """
        if isinstance(value, bool) or not isinstance(value, (int, float)) \
                or abs(value) > LARGEST_INTEGER or not math.isfinite(value):
            raise _refused(attr, value, 'finite number')
        return float(value)


class NonNegativeFloat(Float):
    """A finite number that is not negative."""

    def coerce(self, obj, attr: str, value: typing.Any) -> float:
        """Return the value, if it is such a number.

        :raises ValueError: it is not
        """
        number = super().coerce(obj, attr, value)
        if number < 0:
            raise _refused(attr, value, 'number of at least 0')
        return number


class Boolean(fields.Boolean):
    """True or false."""

    def coerce(self, _obj, attr: str, value: typing.Any) -> bool:
        """Return the value, if it is one of the two.

        :raises ValueError: it is not
        """
        if not isinstance(value, bool):
            raise _refused(attr, value, 'boolean')
        return value


class DateTime(fields.DateTime):
    """An instant."""

    def coerce(self, obj, attr: str, value: typing.Any) -> datetime.datetime:
        """Return the instant, also from its ISO 8601 form.

        :raises ValueError: it is neither
        """
        if not isinstance(value, (str, datetime.datetime)) \
                or isinstance(value, str) and len(value) > 64:
            raise _refused(attr, value, 'instant')
        return super().coerce(obj, attr, value)


class List(fields.List):
    """A list of bounded length."""

    def __init__(self, element_type: fields.FieldType, max_items: int,
                 **options: typing.Any) -> None:
        super().__init__(element_type, **options)
        self._max_items = max_items

    def coerce(self, obj, attr: str, value: typing.Any) -> list:
        """Return the list, with each element checked.

        :raises ValueError: it is none, or too long
        """
        self._check(attr, value)
        return super().coerce(obj, attr, value)

    def from_primitive(self, obj, attr: str, value: typing.Any) -> list:
        """Return the list that was sent.

        :raises ValueError: it is none, or too long
        """
        self._check(attr, value)
        return super().from_primitive(obj, attr, value)

    def _check(self, attr, value):
        if not isinstance(value, collections.abc.Sequence) \
                or isinstance(value, (str, bytes)) \
                or len(value) > self._max_items:
            raise _refused(attr, value,
                           f'list of at most {self._max_items} elements')


class InvalidValue(exceptions.InvalidInput, ValueError):
    """A field cannot hold a value."""


def _refused(attr: str, value: typing.Any, wanted: str) -> InvalidValue:
    return InvalidValue(f'{attr}: {shortened(value)} is not a {wanted}')


def shortened(value: typing.Any) -> str:
    """Return the beginning of a value, as Python writes it, for a message."""
    if isinstance(value, (str, bytes)):
        value = value[:60]
    elif not isinstance(value, (bool, int, float, type(None))) \
            or abs(value or 0) > 10 ** 60:
        return f'a value of type {type(value).__name__}'
    return repr(value)[:80]


class StringField(fields.AutoTypedField):
    """A field that holds a text."""

    def __init__(self, pattern: str = TEXT_PATTERN,
                 max_length: int = NAME_LENGTH, **options: typing.Any
                 ) -> None:
        self.AUTO_TYPE = String(pattern, max_length)
        super().__init__(**options)


class EnumField(fields.BaseEnumField):
    """A field that holds one of some texts."""

    def __init__(self, valid_values: collections.abc.Collection[str],
                 **options: typing.Any) -> None:
        self.AUTO_TYPE = Enum(valid_values)
        super().__init__(**options)


class IdField(StringField):
    """A field that holds an id: of an image, a server, a project."""

    def __init__(self, **options: typing.Any) -> None:
        super().__init__(ID_PATTERN, 128, **options)


class HostField(StringField):
    """A field that holds the name of a host."""

    def __init__(self, **options: typing.Any) -> None:
        super().__init__(HOST_PATTERN, **options)


class SiteField(StringField):
    """A field that holds the name of a site."""

    def __init__(self, **options: typing.Any) -> None:
        super().__init__(SITE_PATTERN, **options)


class TextField(StringField):
    """A field that holds a long text."""

    def __init__(self, **options: typing.Any) -> None:
        super().__init__(TEXT_PATTERN, TEXT_LENGTH, **options)


class HashField(fields.AutoTypedField):
    """A field that holds a BLAKE3 hash."""

    AUTO_TYPE = Hash()


class UUIDField(fields.AutoTypedField):
    """A field that holds a UUID."""

    AUTO_TYPE = UUID()


class NonNegativeIntegerField(fields.AutoTypedField):
    """A field that holds a whole number that is not negative."""

    AUTO_TYPE = NonNegativeInteger()


class FloatField(fields.AutoTypedField):
    """A field that holds a finite number."""

    AUTO_TYPE = Float()


class NonNegativeFloatField(fields.AutoTypedField):
    """A field that holds a finite number that is not negative."""

    AUTO_TYPE = NonNegativeFloat()


class BooleanField(fields.AutoTypedField):
    """A field that holds true or false."""

    AUTO_TYPE = Boolean()


class DateTimeField(fields.AutoTypedField):
    """A field that holds an instant."""

    AUTO_TYPE = DateTime()


class ListOfStringsField(fields.AutoTypedField):
    """A field that holds texts."""

    def __init__(self, pattern: str = TEXT_PATTERN,
                 max_items: int = MOST_ELEMENTS, **options: typing.Any
                 ) -> None:
        self.AUTO_TYPE = List(String(pattern), max_items)
        super().__init__(**options)


class ListOfCountsField(fields.AutoTypedField):
    """A field that holds whole numbers that are not negative."""

    def __init__(self, max_items: int = MOST_ELEMENTS, **options: typing.Any
                 ) -> None:
        self.AUTO_TYPE = List(NonNegativeInteger(), max_items)
        super().__init__(**options)


class ListOfObjectsField(fields.AutoTypedField):
    """A field that holds versioned objects of one class."""

    def __init__(self, name: str, max_items: int = MOST_ELEMENTS,
                 **options: typing.Any) -> None:
        self.AUTO_TYPE = List(fields.Object(name), max_items)
        super().__init__(**options)
