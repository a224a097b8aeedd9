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
"""Users, roles and the catalogue, through Keystone's API."""

from keystoneauth1.identity import v3
import keystoneauth1.session
from openstack import connection

from onemachine import layout

_REGION = 'RegionOne'
_ROLES = ('admin', 'service', 'member')


def connect(where: layout.Layout) -> connection.Connection:
    """Return a connection with the administrator's rights."""
    session = keystoneauth1.session.Session(v3.Password(
        auth_url=f'{where.url("keystone")}/v3', username='admin',
        password=where.password('admin'), project_name='admin',
        user_domain_id='default', project_domain_id='default'))
    return connection.Connection(session=session, region_name=_REGION)


def services(where: layout.Layout) -> list[tuple[str, str, str, str]]:
    """Name, type, public and internal URL of what the catalogue lists."""
    swift = 'http://{}:%d/v1/AUTH_%%(project_id)s' % (
        layout.PORTS['swift-proxy'])
    plain = [
        ('glance', 'image', where.url('glance')),
        ('placement', 'placement', where.url('placement')),
        ('nova', 'compute', f'{where.url("nova")}/v2.1'),
        ('neutron', 'network', where.url('neutron')),
        ('diffcache', 'diffcache', where.url('diffcache')),
    ]
    return [
        *((name, kind, url, url) for name, kind, url in plain),
        # What reads by the internal URL reads over the WAN.
        ('swift', 'object-store', swift.format(where.centre),
         swift.format(where.wan_centre)),
    ]


def ensure(where: layout.Layout) -> None:
    """Add what is missing."""
    cloud = connect(where)
    identity = cloud.identity
    if not identity.find_project('service', domain_id='default'):
        identity.create_project(name='service', domain_id='default')
    for name in _ROLES:
        if not identity.find_role(name):
            identity.create_role(name=name)
    for name in layout.SERVICE_USERS:
        _ensure_user(where, identity, name)
    _ensure_services(identity, services(where))


def ensure_volumes(where: layout.Layout) -> None:
    """Add what Cinder needs."""
    identity = connect(where).identity
    _ensure_user(where, identity, layout.VOLUME_USER)
    url = f'{where.url("cinder")}/v3'
    _ensure_services(identity, [('cinder', 'block-storage', url, url)])


def _ensure_user(where, identity, name: str) -> None:
    project = identity.find_project('service', domain_id='default')
    user = (identity.find_user(name, domain_id='default')
            or identity.create_user(
                name=name, domain_id='default',
                password=where.password(name)))
    for role in ('admin', 'service'):
        identity.assign_project_role_to_user(project, user,
                                             identity.find_role(role))


def _ensure_services(identity, wanted: list[tuple[str, str, str, str]]
                     ) -> None:
    known = {service.type for service in identity.services()}
    for name, kind, public, internal in wanted:
        if kind in known:
            continue
        service = identity.create_service(name=name, type=kind)
        for interface, url in (('public', public), ('internal', internal),
                               ('admin', public)):
            identity.create_endpoint(
                service_id=service.id, interface=interface, url=url,
                region_id=_REGION)


def ensure_flavors(where: layout.Layout) -> None:
    """Add the flavors that the guests of tests need."""
    compute = connect(where).compute
    known = {flavor.name for flavor in compute.flavors()}
    for name, memory, disk in (('tiny', 128, 1), ('small', 256, 2),
                               ('medium', 256, 4)):
        if name not in known:
            compute.create_flavor(name=name, ram=memory, vcpus=1, disk=disk)
