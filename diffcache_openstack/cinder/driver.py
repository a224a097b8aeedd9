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
"""Any volume driver of Cinder, for volumes that hosts cache on their SSDs.

A backend's section of cinder.conf has ``volume_driver =
diffcache_openstack.cinder.driver.load`` and ``diffcache_backend_driver``.
Cinder calls the name with a driver's arguments, and uses what it returns: the
driver of the backend, whose class has ours in front.
"""

import functools
import inspect
import typing

from cinder import exception
from cinder.volume import manager
from oslo_config import cfg
from oslo_utils import importutils

from diffcache_openstack.cinder import capabilities
from diffcache_openstack.cinder import connections
from diffcache_openstack.cinder import options
from diffcache_openstack.cinder import reading

CONF = cfg.CONF

AROUND: dict[str, reading.Around] = {
    **reading.AROUND, **connections.AROUND, **capabilities.AROUND}


def load(**kwargs: typing.Any) -> typing.Any:
    """Return the driver of a backend, as Cinder's manager creates it.

    :param kwargs: those of any driver of Cinder, ``configuration`` among them
    :raises InvalidConfigurationValue: there is no ``diffcache_backend_driver``
    """
    options.register_opts(CONF)
    configuration = kwargs['configuration']
    configuration.append_config_values(options.BACKEND_OPTS)
    name = configuration.safe_get('diffcache_backend_driver')
    if not name:
        raise exception.InvalidConfigurationValue(
            option='diffcache_backend_driver', value=name)
    backend = importutils.import_object(manager.MAPPING.get(name, name),
                                        **kwargs)
    # Factories return drivers of other classes than their own.
    kind: typing.Any = type(backend)
    backend.__class__ = wrapped(kind)
    return backend


@functools.cache
def wrapped(backend: typing.Any) -> typing.Any:
    """Return a class of drivers with ours in front of a backend's class.

    A method that the backend lacks is lacking here, too: Cinder does then
    without it.
    """
    ours: dict[str, typing.Any] = {
        name: _around(getattr(backend, name), around)
        for name, around in AROUND.items()
        if callable(getattr(backend, name, None))}
    # Some drivers ask super() for the methods of the class that they are of,
    # and Cinder logs its name: both mean the backend's.
    ours['__class__'] = property(lambda _self: backend)
    return type(backend)(backend.__name__, (backend,), ours)


def _around(method: typing.Callable, around: reading.Around
            ) -> typing.Callable:
    """Return a method with the name and the signature of a backend's."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        return around(self, functools.partial(method, self, *args, **kwargs),
                      *bound.args[1:])

    return call
