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
import inspect

from tests.unit.cinder import needs  # Before Cinder, which may be missing.

from cinder import exception
from cinder.interface import volume_consistencygroup_driver as groups
from cinder.interface import volume_driver
from cinder.interface import volume_group_driver
from cinder.interface import volume_manageable_driver
from cinder.interface import volume_snapshot_revert
from cinder.interface import volume_snapshotmanagement_driver
from cinder.volume import configuration
from cinder.volume import driver as cinder_driver
from cinder.volume.drivers import lvm
from cinder.volume.drivers import nfs
from cinder.volume.drivers import rbd
from cinder.volume import manager

from diffcache_openstack.cinder import driver

INTERFACES = (
    volume_driver.VolumeDriverCore, groups.VolumeConsistencyGroupDriver,
    volume_group_driver.VolumeGroupDriver,
    volume_manageable_driver.VolumeListManageableDriver,
    volume_snapshot_revert.VolumeSnapshotRevertDriver,
    volume_snapshotmanagement_driver.VolumeSnapshotManagementDriver)
BACKENDS = (lvm.LVMVolumeDriver, nfs.NfsDriver, rbd.RBDDriver)


class Factory(cinder_driver.ProxyVD):
    """Returns a driver of another class, as NetApp's does."""

    def __new__(cls, *args, **kwargs):
        return Plain(*args, **kwargs)


class Plain(cinder_driver.VolumeDriver):
    """A backend with less than the interface."""

    SUPPORTED = False
    SUPPORTS_ACTIVE_ACTIVE = True
    CI_WIKI_NAME = 'Plain_CI'
    # As if it had none.
    create_cgsnapshot = property()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.given = kwargs

    def ensure_export(self, context, volume):
        pass

    create_export = remove_export = initialize_connection = ensure_export
    terminate_connection = ensure_export


class LoadTest(needs.CinderTest):

    def load(self, name):
        conf = configuration.Configuration(
            manager.volume_backend_opts, config_group='backend_defaults')
        conf.append_config_values(driver.options.BACKEND_OPTS)
        self.set('diffcache_backend_driver', name, 'backend_defaults')
        return driver.load(configuration=conf, host='centre@files')

    def test_the_backend_has_what_the_manager_gives_it(self):
        made = self.load(f'{__name__}.Plain')
        self.assertEqual('centre@files', made.given['host'])
        self.assertIsInstance(made, Plain)
        self.assertIsNot(Plain, type(made))

    def test_cinder_sees_the_class_of_the_backend(self):
        made = self.load(f'{__name__}.Plain')
        self.assertEqual('Plain', made.__class__.__name__)
        self.assertFalse(made.supported)
        self.assertTrue(made.SUPPORTS_ACTIVE_ACTIVE)
        self.assertEqual('Plain_CI', made.CI_WIKI_NAME)

    def test_a_factory_returns_a_driver_of_another_class(self):
        self.assertIsInstance(self.load(f'{__name__}.Factory'), Plain)

    def test_renamed_drivers_are_found(self):
        manager.MAPPING['old.Name'] = f'{__name__}.Plain'
        self.addCleanup(manager.MAPPING.pop, 'old.Name')
        self.assertIsInstance(self.load('old.Name'), Plain)

    def test_a_backend_has_to_be_named(self):
        error = self.assertRaises(exception.InvalidConfigurationValue,
                                  self.load, None)
        self.assertIn('diffcache_backend_driver', str(error))


class SignaturesTest(needs.CinderTest):

    def test_methods_are_called_as_those_of_the_backends(self):
        for backend in (*BACKENDS, Plain):
            ours = driver.wrapped(backend)
            for name, method in inspect.getmembers(backend, callable):
                if name.startswith('__'):
                    continue
                self.assertEqual(
                    inspect.signature(method),
                    inspect.signature(getattr(ours, name)),
                    f'{backend.__name__}.{name}')

    def test_the_interface_is_that_of_the_backends(self):
        self.assertEqual(set(), {
            name for name in driver.AROUND if not any(
                hasattr(each, name) for each in (
                    *INTERFACES, cinder_driver.VolumeDriver))})
        for backend in BACKENDS:
            for each in INTERFACES:
                self.assertEqual(
                    issubclass(backend, each),
                    issubclass(driver.wrapped(backend), each))


class OwnTestsTest(needs.CinderTest):

    def test_the_backends_own_tests_pass(self):
        self.run_module('testtools.run', 'tests.unit.cinder.backends')
