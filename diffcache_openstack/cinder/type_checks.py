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
"""Volume types are checked where they are made: in Cinder's API.

Cinder stores any key. What it stores of types goes through some functions of
its module ``cinder.db.api``, and what uses a type through one of
``cinder.volume.volume_types``; these are replaced by ones that check before.
Errors reach the user as answers 400.
"""

import collections.abc
import functools
import typing

from cinder.db import api as db
from cinder import exception
from cinder.volume import volume_types

from diffcache_openstack.objects import volume_specs

_HINT = ('Accepted are diffcache:ssd_cache (write-through, write-around,'
         ' write-back, off) and diffcache:ssd_cache:KEY with KEY of min, max,'
         ' weight, priority, sla, sequential, admission, required.')
_REACHES_HOSTS = ('front-end', 'both')

Specs = collections.abc.Mapping[str, str]
Check = collections.abc.Callable[..., None]


def check(qos_specs: Specs, extra_specs: Specs) -> None:
    """Check what a volume type says about the SSD cache.

    :raises InvalidInput: it cannot be used; the reason has the key
    """
    try:
        volume_specs.check(volume_specs.merged(qos_specs, extra_specs))
    except volume_specs.SpecsError as error:
        raise exception.InvalidInput(reason=f'{error}. {_HINT}') from error


def of_type(context: typing.Any, type_id: str) -> tuple[Specs, Specs]:
    """Return QoS specs of a type that reach hosts, and its extra specs."""
    found = db.volume_type_qos_specs_get(context, type_id)['qos_specs'] or {}
    reaches = found.get('consumer') in _REACHES_HOSTS
    return (found.get('specs') or {}) if reaches else {}, \
        db.volume_type_extra_specs_get(context, type_id)


def install() -> None:
    """Have Cinder check types; once, whatever is called how often."""
    for module, name, checks in (
            (db, 'volume_type_create', _created),
            (db, 'volume_type_extra_specs_update_or_create', _extra_changed),
            (db, 'qos_specs_create', _qos_created),
            (db, 'qos_specs_update', _qos_changed),
            (db, 'qos_specs_associate', _associated),
            (volume_types, 'provision_filter_on_size', _used)):
        function = getattr(module, name)
        if not hasattr(function, 'diffcache_checks'):
            setattr(module, name, _checking(function, checks))


def _checking(function: collections.abc.Callable, checks: Check
              ) -> collections.abc.Callable:
    @functools.wraps(function)
    def call(context, *args, **kwargs):
        checks(context, *args, **kwargs)
        return function(context, *args, **kwargs)

    call.diffcache_checks = True  # type: ignore[attr-defined]
    return call


def _created(_context: typing.Any, values: dict[str, typing.Any],
             projects: typing.Any = None) -> None:
    check({}, values.get('extra_specs') or {})


def _extra_changed(context: typing.Any, volume_type_id: str,
                   extra_specs: Specs) -> None:
    if any(map(volume_specs.is_ours, extra_specs)) \
            or volume_specs.MULTIATTACH in extra_specs:
        qos_specs, before = of_type(context, volume_type_id)
        check(qos_specs, {**before, **extra_specs})


def _qos_created(_context: typing.Any, values: dict[str, typing.Any]) -> None:
    specs = values.get('specs') or {}
    check(specs, {})
    _check_consumer(specs, values.get('consumer'))


def _qos_changed(context: typing.Any, qos_specs_id: str,
                 values: dict[str, typing.Any]) -> None:
    before = db.qos_specs_get(context, qos_specs_id)
    specs = {**before['specs'], **(values.get('specs') or {})}
    check(specs, {})
    _check_consumer(specs, values.get('consumer') or before['consumer'])
    for each in db.qos_specs_associations_get(context, qos_specs_id):
        check(specs, db.volume_type_extra_specs_get(context, each['id']))


def _associated(context: typing.Any, qos_specs_id: str, type_id: str) -> None:
    check(db.qos_specs_get(context, qos_specs_id)['specs'],
          db.volume_type_extra_specs_get(context, type_id))


def _check_consumer(specs: Specs, consumer: str | None) -> None:
    """Check that keys of ours reach hosts.

    :raises InvalidInput: they do not
    """
    if any(map(volume_specs.is_ours, specs)) \
            and consumer not in _REACHES_HOSTS:
        raise exception.InvalidInput(reason=(
            f'QoS specs with keys of the SSD cache and the consumer'
            f' {consumer} reach no host. Set the consumer to front-end or'
            f' both.'))


def _used(context: typing.Any, volume_type: typing.Any,
          size: typing.Any) -> None:
    """Check a type with which a volume is created, or that it is given."""
    if volume_type:
        check(*of_type(context.elevated(), volume_type['id']))
