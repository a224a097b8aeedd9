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
"""What all versioned objects of the suite share."""

import typing

from oslo_utils import timeutils
from oslo_versionedobjects import base
from oslo_versionedobjects import exception as ovo_exception

from diffcache_openstack.common import exceptions

PROJECT = 'diffcache'


class DiffCacheObjectRegistry(base.VersionedObjectRegistry):
    """All versioned objects, by name and version."""


class DiffCacheObject(base.VersionedObject):
    """A value that crosses RPC.

    Fields with a default have it unless they are given, also when the sender
    does not know the field.
    """

    OBJ_SERIAL_NAMESPACE = 'diffcache_object'
    OBJ_PROJECT_NAMESPACE = PROJECT
    VERSION = '1.0'

    if typing.TYPE_CHECKING:
        # Fields are attributes that the registry makes.
        def __getattr__(self, name: str) -> typing.Any: ...
        def __setattr__(self, name: str, value: typing.Any) -> None: ...

    def __init__(self, **values: typing.Any):
        super().__init__(**values)
        self.obj_set_defaults()

    def __eq__(self, other: object) -> bool:
        # The parent class has no notion of equality; what was assigned when,
        # which it does remember, is none of a value's matter.
        return (type(self) is type(other)
                and self._values() == other._values())

    def _values(self):
        return {name: getattr(self, name) for name in self.fields
                if self.obj_attr_is_set(name)}

    __hash__ = None  # type: ignore[assignment]

    def obj_to_primitive(self, target_version: str | None = None,
                         version_manifest: dict[str, str] | None = None
                         ) -> dict[str, typing.Any]:
        """Return plain values, without the names of what was assigned."""
        found = super().obj_to_primitive(target_version, version_manifest)
        found.pop(self._obj_primitive_key('changes'), None)
        return found

    @classmethod
    def load(cls, primitive: dict) -> typing.Self:
        """Return the object that ``obj_to_primitive`` was called on.

        :raises oslo_versionedobjects.exception.IncompatibleObjectVersion: it
            is of a version that this code does not know
        """
        return cls.obj_from_primitive(primitive)

    @classmethod
    def parse_kept(cls, document: typing.Any) -> typing.Self:
        """Parse the object of a state file.

        :raises FormatError: this code cannot read it
        """
        try:
            return cls.load(document)
        except (ovo_exception.VersionedObjectsException, KeyError, TypeError,
                ValueError) as error:
            raise exceptions.FormatError(
                f'This is no {cls.__name__} that can be read: {error}'
            ) from error


class Serializer(base.VersionedObjectSerializer):
    """Carries versioned objects over RPC."""

    OBJ_BASE_CLASS: type[base.VersionedObject] = DiffCacheObject


def now():
    """Return the present in UTC, with its time zone, to the microsecond."""
    return timeutils.utcnow(with_timezone=True)
