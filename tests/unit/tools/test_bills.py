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
"""Bills of materials say what is linked, and say it the same way each time."""

import json

from tests import base
from tests.unit.tools import loading

bills = loading.load('release/bills')

SUBJECT = bills.Subject('diffcache-openstack', '1.2.3', 1700000000)
RUST = bills.Runtime('rust-std', '1.95.0', 'pkg:generic/rust-std@1.95.0',
                     'MIT OR Apache-2.0')
LOCK = """
[[package]]
name = "linked"
version = "1.0.0"
checksum = "%s"

[[package]]
name = "diffcache-py"
version = "0.1.0"
""" % ('ab' * 32)


def package(name, version='1.0.0', kind='lib', licence='MIT'):
    return {'id': name, 'name': name, 'version': version, 'license': licence,
            'targets': [{'kind': [kind]}]}


def node(name, **kinds):
    """A node of the resolution; the kinds of dependencies by their names."""
    return {'id': name, 'deps': [
        {'pkg': pkg, 'dep_kinds': [{'kind': kind}]}
        for pkg, kind in kinds.items()]}


METADATA = {
    'packages': [
        package('diffcache-py', '0.1.0', 'cdylib', 'Apache-2.0'),
        package('linked', licence='MIT/Apache-2.0'), package('deeper'),
        package('builder'), package('tester'),
        package('macro', kind='proc-macro'), package('of_macro'),
        package('unreached')],
    'resolve': {'nodes': [
        node('diffcache-py', linked=None, builder='build', tester='dev',
             macro=None),
        node('linked', deeper=None), node('deeper'),
        node('macro', of_macro=None), node('of_macro'),
        node('builder'), node('tester'), node('unreached')]},
}


class NativeBillTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.bill = bills.native_bill(SUBJECT, METADATA, LOCK, [RUST])
        self.components = {
            each['name']: each for each in self.bill['components']}

    def test_it_has_what_is_linked_and_no_more(self):
        self.assertEqual({'diffcache-py', 'linked', 'deeper', 'rust-std'},
                         set(self.components))

    def test_crates_have_checksum_licence_and_package_url(self):
        linked = self.components['linked']
        self.assertEqual('pkg:cargo/linked@1.0.0', linked['purl'])
        self.assertEqual([{'alg': 'SHA-256', 'content': 'ab' * 32}],
                         linked['hashes'])
        self.assertEqual([{'expression': 'MIT OR Apache-2.0'}],
                         linked['licenses'])
        self.assertNotIn('hashes', self.components['diffcache-py'])

    def test_runtimes_have_version_and_licence(self):
        rust = self.components['rust-std']
        self.assertEqual('1.95.0', rust['version'])
        self.assertEqual([{'expression': 'MIT OR Apache-2.0'}],
                         rust['licenses'])

    def test_dependencies_lead_from_the_distribution_to_each_crate(self):
        edges = {each['ref']: each['dependsOn']
                 for each in self.bill['dependencies']}
        seen, queue = set(), [SUBJECT.purl]
        while queue:
            ref = queue.pop()
            seen.add(ref)
            queue.extend(edges.get(ref, []))
        self.assertEqual(
            {SUBJECT.purl} | {each['bom-ref']
                              for each in self.bill['components']}, seen)

    def test_the_same_input_gives_the_same_bytes(self):
        turned = {'packages': METADATA['packages'][::-1],
                  'resolve': METADATA['resolve']}
        self.assertEqual(
            bills.encode(self.bill), bills.encode(
                bills.native_bill(SUBJECT, turned, LOCK, [RUST])))

    def test_another_content_has_another_serial_number(self):
        other = bills.native_bill(SUBJECT, METADATA, LOCK)
        self.assertNotEqual(self.bill['serialNumber'], other['serialNumber'])


class PythonBillTest(base.TestCase):

    def test_each_pin_is_a_component(self):
        bill = bills.python_bill(SUBJECT, [
            'alembic==1.20.1', "colorama==0.4.6 ; sys_platform == 'win32'",
            'oslo-service[threading]==4.8.0'])
        self.assertEqual(
            ['pkg:pypi/alembic@1.20.1', 'pkg:pypi/colorama@0.4.6',
             'pkg:pypi/oslo-service@4.8.0'],
            [each['purl'] for each in bill['components']])
        self.assertEqual('2023-11-14T22:13:20+00:00',
                         bill['metadata']['timestamp'])
        self.assertEqual(bill, json.loads(bills.encode(bill)))

    def test_what_is_not_pinned_is_refused(self):
        self.assertRaises(ValueError, bills.python_bill, SUBJECT,
                          ['alembic>=1.0'])
