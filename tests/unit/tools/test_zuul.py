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
"""The jobs of .zuul.yaml agree with tox.ini, devstack/ and the packages."""

import configparser
import importlib.util
import re
import unittest

import yaml

from tests import base
from tests.unit.tools import loading

# Jobs that others define, and the environments of tox that they run.
OPENSTACK = {
    'openstack-tox-pep8': 'pep8', 'openstack-tox-py311': 'py311',
    'openstack-tox-py312': 'py312', 'openstack-tox-py313': 'py313',
    'openstack-tox-cover': 'cover', 'openstack-tox-docs': 'docs',
    'build-openstack-releasenotes': 'releasenotes'}
PARENTS = {'openstack-tox', 'openstack-tox-functional', 'devstack-tempest'}


class ZuulTest(base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = loading.TREE / '.zuul.yaml'
        if not path.exists():
            raise unittest.SkipTest('not in a checkout')
        document = yaml.safe_load(path.read_text())
        assert all(len(entry) == 1 for entry in document)
        cls.jobs = {entry['job']['name']: entry['job']
                    for entry in document if 'job' in entry}
        [cls.project] = [entry['project'] for entry in document
                         if 'project' in entry]
        cls.devstack = cls.jobs['diffcache-devstack-tempest']
        cls.settings = (loading.TREE / 'devstack/settings').read_text()

    def used(self, pipeline):
        """The jobs of a pipeline, with what it changes of them."""
        found = {}
        for entry in self.project[pipeline]['jobs']:
            if isinstance(entry, str):
                entry = {entry: {}}
            [(name, changes)] = entry.items()
            found[name] = changes
        return found

    def test_check_and_gate_run_every_job(self):
        self.assertEqual({*OPENSTACK, *self.jobs}, {*self.used('check')})
        self.assertEqual(self.used('check'), self.used('gate'))

    def test_parents_are_jobs_that_exist(self):
        for job in self.jobs.values():
            self.assertIn(job['parent'], {*PARENTS, *self.jobs})

    def test_environments_are_in_tox(self):
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(loading.TREE / 'tox.ini')
        wanted = {*OPENSTACK.values(), *(
            job['vars']['tox_envlist'] for job in self.jobs.values()
            if job['parent'] != 'devstack-tempest')}
        for name in wanted:
            # py311 and so on are [testenv] with that Python.
            self.assertTrue(f'testenv:{name}' in tox
                            or re.fullmatch(r'py3\d+', name), name)

    def test_pythons_are_those_that_the_package_names(self):
        text = (loading.TREE / 'pyproject.toml').read_text()
        named = re.findall(r'Python :: 3\.(\d+)"', text)
        self.assertEqual(
            {f'py3{minor}' for minor in named},
            {name for name in OPENSTACK.values() if name.startswith('py3')})

    def test_profiles_are_in_bindep(self):
        known = set(re.findall(
            r'[a-z]+(?=[ \]])', ' '.join(re.findall(
                r'\[.*\]', (loading.TREE / 'bindep.txt').read_text()))))
        for job in [*self.jobs.values(), *self.used('check').values()]:
            profiles = job.get('vars', {}).get('bindep_profile', '')
            self.assertLessEqual(set(profiles.split()), known)

    def test_devstack_has_the_plugin_and_its_services(self):
        values = self.devstack['vars']
        [name] = re.findall(r'^define_plugin (\S+)', self.settings, re.M)
        [(plugin, url)] = values['devstack_plugins'].items()
        self.assertEqual(name, plugin)
        # Zuul puts the tree where DevStack looks for the plugin of that name.
        self.assertEqual(name, url.rpartition('/')[2])
        self.assertIn(f'$DEST/{name}}}', self.settings)
        enabled = re.search(r'^enable_service ((?:.*\\\n)*.*)$',
                            self.settings, re.M).group(1)
        self.assertEqual(
            {*enabled.replace('\\\n', ' ').split()},
            {service for service, on in values['devstack_services'].items()
             if on} - {'horizon', 'tempest'})

    def test_devstack_settings_exist(self):
        for name in self.devstack['vars']['devstack_localrc']:
            self.assertRegex(self.settings, rf'(?m)^{name}=')

    def test_tempest_runs_the_plugins_tests(self):
        values = self.devstack['vars']
        self.assertEqual([*values['devstack_plugins']],
                         values['tempest_plugins'])
        package = values['tempest_test_regex'].strip('^').replace(
            '\\.', '.').rstrip('.')
        self.assertIsNotNone(importlib.util.find_spec(package))
