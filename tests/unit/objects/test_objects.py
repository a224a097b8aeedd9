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
import datetime

from oslo_versionedobjects import exception
from oslo_versionedobjects import fixture

from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests import base

# What a change of an object changes on the wire is seen here. Until the first
# release versions stay at 1.0; after it, a change without another one breaks
# deployments in which services of two releases meet: raise VERSION, make what
# is new optional, then put the new fingerprint here.
FINGERPRINTS = {
    'Fill': '1.0-fb1a8ce5262c03e7fd05bf543992153a',
    'HeartbeatAnswer': '1.0-db89a225f8e6d2ef66524b8b6fb500b6',
    'Holding': '1.0-3ef2396128583587141ec2f90eb06159',
    'Host': '1.0-345d60665eb045eafb7077cd8f019f74',
    'HostLinks': '1.0-f2cf7b0925cc616838b64c0b93f5f5aa',
    'Links': '1.0-b988c4e77f77731e56a5a31fae219777',
    'HostNetwork': '1.0-ecb963eab30c7ba3c1e697c10dd07e97',
    'RepositoryStanding': '1.0-1c76cdfed3a82b11831c7efd79c7990f',
    'HostHoldings': '1.0-a6b81e67aa70bad783dddb2f2bd44d21',
    'Hydration': '1.0-ee1689dbca4b09caf3cc6ca1788f8e86',
    'HydrationSource': '1.0-bcfc53f25299c30838a37a434fb59cb1',
    'ImageSketch': '1.0-dc86edd6612e01d67e4b4199bb6f44a7',
    'MapChange': '1.0-9f5a7aec2960f61a8f8ab67c2fb8cf9b',
    'NewVersion': '1.0-f34193419663f3a412bd877910712728',
    'PairReport': '1.0-336d975378ee646abdfaa0ede8f9533b',
    'Patch': '1.0-2c6523e0895d357914f9aa7ac8fa3f4a',
    'PatchPair': '1.0-ab07bcec5b2ddbcf927aa101a21bd92e',
    'PatchWork': '1.0-7c0acd8a3e50353579f1684bda05fcaa',
    'PendingImage': '1.0-d9843ed823abe6448056639862c657fb',
    'Plan': '1.0-19dfc2c3f818eba38d85df921aa58ed9',
    'PlanItem': '1.0-9fe50df95b2f709f9139df3a8e404fa5',
    'PrecacheDemand': '1.0-6c32a7080143cda2381aa6ea016b3ec3',
    'PrecacheJob': '1.0-8e7002c53143b6d8981dac4363a1e51d',
    'RepositoryLink': '1.0-d5fdf594a9bdbe2aee2dae17e5ab280a',
    'Request': '1.0-73d5a42ec8dbfff85d646fc794995c33',
    'SavedVersion': '1.0-b844c6a801a64dcf28c4f0d913eff9cc',
    'SizingDecision': '1.0-92c1fbdb009e5425e9997a4f7a881891',
    'SsdCache': '1.0-4c5458cbc81c6291ac433499dbaa5cb6',
    'VolumeCache': '1.0-b5ee1e5970635df512a1e692b7e0e718',
    'VolumeCurve': '1.0-fae6af2e2603dfe097fd2546d53882d1',
    'VolumeUse': '1.0-c7dabfb04b60b5f6b4218cbeadc7cb0b',
    'SiteMap': '1.0-528ca404fc5933f7f1967a093633d774',
    'TaskReport': '1.0-a599c934838bc90b2d40bc233018579c',
    'Image': '1.0-f56f4f8f2c0a79e6634d7aa68201c692',
    'VersionDisk': '1.0-afa5b30fc35caeb63474693d6a875030',
    'VersionPolicy': '1.0-868e6ff52c996c0779489b3708b9e914',
    'VersionTask': '1.0-a5d04e6c911c46f318ba612fbd0e6a37',
}


class TestVersions(base.TestCase):

    def test_fingerprints(self):
        checker = fixture.ObjectVersionChecker(
            versioned.DiffCacheObjectRegistry.obj_classes())
        expected, actual = checker.test_hashes(FINGERPRINTS)
        self.assertEqual(expected, actual)

    def test_newer_version_is_refused(self):
        primitive = objects.Links(local=1, peer=1, repo=1).obj_to_primitive()
        primitive['diffcache_object.version'] = '2.0'
        self.assertRaises(exception.IncompatibleObjectVersion,
                          objects.Links.load, primitive)

    def test_field_that_a_sender_does_not_know_has_its_default(self):
        primitive = objects.Host(name='a', site='b', role='compute',
                                 plan_generation=5).obj_to_primitive()
        del primitive['diffcache_object.data']['plan_generation']
        self.assertEqual(0, objects.Host.load(primitive).plan_generation)


class TestValues(base.TestCase):

    def test_hash_is_checked(self):
        for wrong in ('', 'x' * 64, 'A' * 64, '0' * 63, None, 7):
            self.assertRaises(ValueError, objects.Holding, kind='images',
                              id=wrong)

    def test_kind_is_checked(self):
        self.assertRaises(ValueError, objects.Holding, kind='cows',
                          id='0' * 64)

    def test_sizes_are_not_negative(self):
        self.assertRaises(ValueError, objects.Image, id='a',
                          content_id='0' * 64, size=-1, data_size=0)

    def test_equality_is_by_value(self):
        first = objects.Links(local=1, peer=2, repo=3)
        second = objects.Links.load(first.obj_to_primitive())
        second.obj_reset_changes()
        self.assertEqual(first, second)
        second.repo = 4
        self.assertNotEqual(first, second)
        self.assertNotEqual(first, 'links')

    def test_map_survives_the_wire(self):
        site_map = objects.SiteMap(
            site='edge', generation=7,
            images=[objects.Image(id='t', content_id='1' * 64, size=9,
                                  data_size=8)],
            patches=[objects.Patch(id='2' * 64, base='1' * 64,
                                   target='3' * 64, size=4)],
            hosts=[objects.Host(
                name='h', site='edge', role='compute',
                seen_at=versioned.now(),
                holdings=[objects.Holding(kind='patches', id='2' * 64)])],
            links=objects.Links(local=1, peer=2, repo=3))
        serializer = versioned.Serializer()
        sent = serializer.serialize_entity(None, site_map)
        got = serializer.deserialize_entity(None, sent)
        self.assertEqual(site_map.images, got.images)
        self.assertEqual(site_map.hosts[0].holdings, got.hosts[0].holdings)
        self.assertEqual(datetime.timedelta(0),
                         got.hosts[0].seen_at.utcoffset())
