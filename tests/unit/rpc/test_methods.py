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
"""Every method of every endpoint refuses junk in each of its arguments."""

import inspect
import json
import types
import uuid

import fixtures
import oslo_messaging

from diffcache_openstack.agent.endpoints import agent_endpoint
from diffcache_openstack.agent.endpoints import lazy_endpoint
from diffcache_openstack.agent.endpoints import versions_endpoint
from diffcache_openstack.agent.endpoints import volumes_endpoint
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.conductor.endpoints import agents
from diffcache_openstack.conductor.endpoints import costs
from diffcache_openstack.conductor.endpoints import heartbeats
from diffcache_openstack.conductor.endpoints import lazy
from diffcache_openstack.conductor import hydrations
from diffcache_openstack.conductor import precache
from diffcache_openstack.conductor import proposals
from diffcache_openstack.conductor.versions import backups
from diffcache_openstack.conductor.versions import heads
from diffcache_openstack.conductor.versions import service as versions
from diffcache_openstack.conductor import volume_caches
from diffcache_openstack.conductor import volume_holds
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import gate
from diffcache_openstack.rpc import methods
from tests import base

HASH = 'a' * 64
ID = str(uuid.uuid4())
TIME = '2026-01-02T03:04:05Z'

SERVICES = (
    (methods.CONDUCTOR, (
        agents.ConductorManager, heartbeats.HeartbeatsManager,
        costs.CostsManager, lazy.LazyManager, hydrations.Hydrations,
        proposals.Proposals, precache.Precacher,
        backups.Backups, heads.StoreHeads, versions.VersionService,
        volume_caches.VolumeCaches, volume_holds.VolumeHolds)),
    (methods.AGENT, (agent_endpoint.AgentManager, lazy_endpoint.LazyManager,
                     versions_endpoint.VersionsManager,
                     volumes_endpoint.VolumesManager)))

OBJECTS = {
    'host': objects.Host(name='h1', site='edge', role='compute'),
    'sketches': [objects.ImageSketch(content_id=HASH)],
    'pairs': [objects.PairReport(base=HASH, target='b' * 64,
                                 verdict='estimated', size=1)],
    'added': [objects.Holding(kind='images', id=HASH)],
    'removed': [objects.Holding(kind='images', id=HASH)],
    'holdings': [objects.Holding(kind='images', id=HASH)],
    'fills': [objects.Fill(kind='images', id=HASH)],
    'images': [objects.PendingImage(image_id='t', state='waiting')],
    'image': objects.Image(id='t', content_id=HASH, size=1,
                           data_size=1),
    'patch': objects.Patch(id=HASH, base=HASH, target='b' * 64, size=1),
    'requests': [objects.Request(id=ID, image_id='t', host='h1',
                                 started_at=versioned.now())],
    'job': objects.PrecacheJob(id=ID),
    'new': objects.NewVersion(id=ID, server_id=ID, project_id='p'),
    'policy': objects.VersionPolicy(id=ID, project_id='p'),
    'report': objects.TaskReport(task_id=ID, state='done'),
    'network': objects.HostNetwork(
        fill_windows=['22:00-06:00'], repositories=[
            objects.RepositoryStanding(name='hub', mbps=20.0)]),
    'cache': objects.SsdCache(
        state='ok', capacity=1, policy='latency', epoch=120, decisions=[
            objects.SizingDecision(time=versioned.now(), policy='latency',
                                   changed=True, explain=['a'])]),
    'volumes': [objects.VolumeCache(
        id=ID, mode='write-through', state='ok', limit=1, blocks=1, dirty=0,
        reads=1, writes=1, hits=1, misses=1, evictions=1, bypassed=1, min=0,
        weight=1.0, explain=['a'], curve=objects.VolumeCurve(
            seconds=1.0, references=1, distinct=1, sampled=1.0, hit_us=1.0,
            miss_us=1.0, sizes=[1], hits=[1]))],
    'hydrations': [objects.Hydration(
        server_id=ID, image_id='t', content_id=HASH, state='arriving',
        mode='deadline', deadline_at=versioned.now(), rate=1,
        sources=[objects.HydrationSource(url='http://h2', requests=1,
                                         bytes=1, failures=0)])],
    'task': objects.VersionTask(id=ID, kind='save', project_id='p'),
}
VALUES = {
    'site': 'edge', 'image_id': 't', 'hosts': ['h1'],
    'generation': 1, 'known': 1, 'solver': 'greedy', 'time_limit': 1.5,
    'plan_id': ID,
    'changes': {'add_hosts': 1}, 'job_id': ID, 'values': {'name': 'x'},
    'backup_id': ID, 'agent': 'h1',
    'version_id': ID, 'task_id': ID, 'keep_version': ID, 'dry_run': True,
    'way': 'auto', 'name': 'A name', 'device': 'vdb',
    'against': ID, 'project_id': 'p',
    'policy_id': ID, 'profile_id': ID, 'volume_id': ID, 'settings': {'max': 1},
    'server_id': ID, 'wanted': {'deadline': 60, 'rate': None, 'paused': True},
    'items': [['images', HASH, 0.0]],
    'shares': [['images', HASH, 'job', None, ['mon 10:00-11:00']]],
    'output': '/a/b', 'path': '/a/b', 'mode': 'on_the_fly',
    'kind': 'images', 'object_id': HASH, 'place': 'a' * 16,
    'least': [1, 2, 3], 'counts': [4, 1, 1],
    'task_kind': 'replicate',
    'base': [1, HASH], 'head': [2, HASH],
    'count': 1, 'total': 1, 'terms': 'patch 1', 'creations': 1,
    'images': [['t', HASH, HASH]], 'patches': [[HASH, HASH, HASH]],
    'objective': 'wan_bytes', 'boot_set': True,
    'sets': [[HASH, 1, 'fetching', 'A message']],
    'size': 1000,
    'projects': ['p'], 'label': 'm1.small', 'run': 1, 'number': 1,
    'after': 't', 'rows': [[0, 1, 5]], 'known_id': ID, 'known_generation': 1,
    'target': HASH, 'bases': ['b' * 64], 'seconds': 60.0, 'mbps': 20.0,
    'hold_id': ID, 'lease': 30.0,
}
# No argument is any of these.
JUNK = ('../../..', '\0', 'x' * 100_000, -1, 2 ** 80, 1.5e300, float('nan'),
        [[]], {'a': 'b'}, [None], ['../..'], b'bytes'.hex() * 10_000,
        {'diffcache_object.name': 'Host'},
        objects.Links(local=1, peer=1, repo=1).obj_to_primitive())
# What a text may be.
HARMLESS_LABEL = '../../..'


def sample(name, field):
    """A value that an argument may have, as it crosses the wire."""
    if 'Object' in field.__class__.__name__:
        value = OBJECTS[name]
    elif name == 'host':
        value = 'h1'
    else:
        value = VALUES[name]
    return versioned.Serializer().serialize_entity(None, value)


class Called(oslo_messaging.RPCDispatcherError):
    """A message passed the gate; errors of dispatchers are not caught."""


class Endpoints:
    """In place of the dispatcher of an endpoint's methods."""

    def dispatch(self, incoming):
        raise Called


def send(table, key, arguments):
    """Have a message enter a service."""
    namespace, method = key
    message = {'namespace': namespace, 'method': method, 'args': arguments}
    dispatcher = messaging._GatedDispatcher(
        gate.Gate(table, signatures.Security(),
                  signatures.MemoryLedger(60)), 'topic', messaging._Wire(
            messaging.ContextSerializer(versioned.Serializer()),
            signatures.Security()), Endpoints())
    dispatcher.dispatch(types.SimpleNamespace(message=message, ctxt={}))


def exposed(endpoint):
    return {name for name, method in inspect.getmembers(
        endpoint, inspect.isfunction) if getattr(method, 'exposed', False)}


class TestTables(base.TestCase):

    def test_each_method_of_each_endpoint_has_its_entry(self):
        for table, endpoints in SERVICES:
            found = {(endpoint.target.namespace, name)
                     for endpoint in endpoints for name in exposed(endpoint)}
            self.assertEqual(found, set(table))

    def test_arguments_are_those_of_the_methods(self):
        for table, endpoints in SERVICES:
            for endpoint in endpoints:
                for name in exposed(endpoint):
                    parameters = list(inspect.signature(
                        getattr(endpoint, name)).parameters)
                    entry = table[endpoint.target.namespace, name]
                    self.assertEqual(parameters[2:], list(entry.arguments),
                                     name)

    def entries(self):
        for table, _endpoints in SERVICES:
            for key, method in table.items():
                yield table, key, method

    def test_good_calls_pass(self):
        for table, key, method in self.entries():
            arguments = {name: sample(name, field)
                         for name, field in method.arguments.items()}
            arguments = json.loads(json.dumps(arguments))
            self.assertRaises(Called, send, table, key, arguments)

    def refused(self, table, key, arguments):
        error = self.assertRaises(oslo_messaging.ExpectedException, send,
                                  table, key, arguments)
        self.assertIsInstance(error.exc_info[1], exceptions.InvalidInput)

    def test_junk_in_any_argument_is_refused(self):
        count = 0
        for table, key, method in self.entries():
            for name, field in method.arguments.items():
                arguments = {each: sample(each, other) for each, other
                             in method.arguments.items()}
                for junk in JUNK:
                    if name == 'name' and junk == HARMLESS_LABEL:
                        continue
                    self.refused(table, key, {**arguments, name: junk})
                    count += 1
        self.assertLess(500, count)

    def test_an_argument_that_is_missing_or_unknown(self):
        for table, key, method in self.entries():
            arguments = {name: sample(name, field)
                         for name, field in method.arguments.items()}
            self.refused(table, key, {**arguments, 'more': 1})
            for name, field in method.arguments.items():
                if not field.nullable:
                    self.refused(table, key, {
                        each: value for each, value in arguments.items()
                        if each != name})

    def test_junk_in_any_field_of_any_object_is_refused(self):
        junk = ('../../..\0', {'a': []}, [[[]]], 2 ** 80, 'x' * 2_000_000)
        for table, key, method in self.entries():
            for name, field in method.arguments.items():
                value = sample(name, field)
                inner = value[0] if isinstance(value, list) else value
                if not isinstance(inner, dict) \
                        or 'diffcache_object.data' not in inner:
                    continue
                for attribute in inner['diffcache_object.data']:
                    for bad in junk:
                        broken = {**inner, 'diffcache_object.data': {
                            **inner['diffcache_object.data'],
                            attribute: bad}}
                        self.refused(table, key, {
                            **{each: sample(each, other) for each, other
                               in method.arguments.items()},
                            name: [broken] if isinstance(value, list)
                            else broken})

    def test_a_task_whose_id_leaves_its_directory_is_refused(self):
        task = objects.VersionTask(
            id=ID, kind='save', project_id='p').obj_to_primitive()
        for wrong in ('../../..', ID + '/../..', ID.replace('-', ''), 7):
            task['diffcache_object.data']['id'] = wrong
            self.refused(methods.AGENT, ('versions', 'perform'),
                         {'task': task})

    def test_long_values_do_not_fill_the_log(self):
        logger = self.useFixture(fixtures.FakeLogger())
        for key in (('versions', 'perform'), ('versions', 'x' * 1_000_000)):
            self.refused(methods.AGENT, key, {'task': {'x' * 1_000_000: 'y'}})
        task = objects.VersionTask(
            id=ID, kind='save', project_id='p').obj_to_primitive()
        task['diffcache_object.data']['id'] = 'x' * 1_000_000
        self.refused(methods.AGENT, ('versions', 'perform'), {'task': task})
        self.assertGreater(4000, len(logger.output))

    def test_unknown_method(self):
        for key in ((None, '__init__'), ('versions', 'no'), ('x', 'status')):
            self.assertRaises(oslo_messaging.ExpectedException, send,
                              methods.AGENT, key, {})
