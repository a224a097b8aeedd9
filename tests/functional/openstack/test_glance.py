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
"""The site's Glance, its image cache driver and the ingest of images."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import typing
import uuid

import requests

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.client import service
from diffcache_openstack.common import exceptions
from tests.functional.openstack import machine

MIB = 1 << 20
AT_ONCE = 8
# Beside an image, the WAN carries databases, tokens and heartbeats.
BESIDES = MIB


class Download(typing.NamedTuple):
    """What a request for an image's file was answered with."""

    status: int
    size: int
    sha512: str
    headers: dict


class GlanceTest(machine.TestCase):
    """A test of the Glance of the site, through its public interface."""

    def setUp(self):
        super().setUp()
        where = self.trial.where
        self.site = f'http://{where.site}:9292'
        self.edge = local_client.LocalClient(
            str(self.trial.socket('edge')), 60)
        self.token = self.trial.admin.auth_token
        self.folder = where.folder('cache')

    # -- images

    def raw(self, megabytes: int, size: int) -> pathlib.Path:
        """A disk of this many bytes with this much data that nobody has."""
        path = self.folder / f'{uuid.uuid4().hex}.raw'
        self.addCleanup(path.unlink, missing_ok=True)
        with open(path, 'wb') as file:
            for _ in range(2 * megabytes):
                file.write(os.urandom(MIB // 4))
                # Half of it shrinks when it is compressed.
                file.write(os.urandom(64) * (MIB // 4 // 64))
            file.truncate(size)
        return path

    def qcow2(self, megabytes: int) -> pathlib.Path:
        """The same, compressed."""
        return self.packed(self.raw(megabytes, 100 * MIB))

    def costly(self, megabytes: int) -> pathlib.Path:
        """A qcow2 file of fewer bytes than its content has over the WAN.

        Data that does not shrink makes both as large; what is added to the
        file is for its data, and to the content for all of the disk.
        """
        path = self.raw(0, 0)
        with open(path, 'wb') as file:
            for _ in range(megabytes):
                file.write(os.urandom(MIB))
            file.truncate(2048 * MIB)
        return self.packed(path)

    def packed(self, raw: pathlib.Path) -> pathlib.Path:
        """A disk as a compressed qcow2 file."""
        path = raw.with_suffix('.qcow2')
        self.addCleanup(path.unlink, missing_ok=True)
        subprocess.run(['qemu-img', 'convert', '-c', '-O', 'qcow2', raw,
                        path], check=True)
        return path

    def upload(self, path: pathlib.Path, **more: typing.Any) -> str:
        """Upload at the centre, and wait until the site knows it."""
        image = self.trial.upload(path.name, path, path.suffix[1:], **more)
        self.addCleanup(self.trial.admin.image.delete_image, image,
                        ignore_missing=True)
        self.wait_until(lambda: self.known(image), f'{image} at the site')
        return image

    def known(self, image: str) -> dict | None:
        """What the agent beside the site's Glance knows of an image."""
        try:
            return self.edge.image(image)
        except exceptions.NotFound:
            return None

    def get(self, image: str, token: str | None = None,
            **headers: str) -> Download:
        """Download an image's file from the site."""
        answer = requests.get(
            f'{self.site}/v2/images/{image}/file', stream=True, timeout=600,
            headers={'X-Auth-Token': token or self.token, **headers})
        digest, size = hashlib.sha512(), 0
        for piece in answer.iter_content(MIB):
            digest.update(piece)
            size += len(piece)
        return Download(answer.status_code, size, digest.hexdigest(),
                        dict(answer.headers))

    def cache(self, method: str, path: str = '') -> requests.Response:
        """Use the interface of Glance's image cache."""
        answer = requests.request(
            method, f'{self.site}/v2/cache{path}', timeout=600,
            headers={'X-Auth-Token': self.token})
        answer.raise_for_status()
        return answer

    def cached(self) -> dict[str, dict]:
        """What operators see in the cache."""
        return {image['image_id']: image for image in
                self.cache('GET').json()['cached_images']}

    def sha512(self, path: pathlib.Path) -> str:
        """The hash that Glance vouches for."""
        with open(path, 'rb') as file:
            return hashlib.file_digest(file, 'sha512').hexdigest()

    def assertWhole(self, path: pathlib.Path, download: Download) -> None:
        """The file was delivered byte for byte."""
        self.assertEqual((200, path.stat().st_size, self.sha512(path)),
                         download[:3])


class TestDownload(GlanceTest):

    def test_many_ask_at_once_for_an_image_the_site_lacks(self):
        for path in (self.raw(16, 100 * MIB), self.qcow2(32)):
            image = self.upload(path)
            self.wait_until_quiet()
            cost = self.known(image)
            least = min(cost['file_wan_bytes'], cost['file_size'])
            before = self.trial.wan_bytes()
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                for download in pool.map(self.get, [image] * AT_ONCE):
                    self.assertWhole(path, download)
            moved = self.trial.wan_bytes() - before
            self.assertLess(moved, 1.1 * least + BESIDES)
            # Then it is at the site, and nothing crosses the WAN.
            before = self.trial.wan_bytes()
            self.assertWhole(path, self.get(image))
            self.assertLess(self.trial.wan_bytes() - before, BESIDES)

    def test_many_ask_while_the_plan_brings_it(self):
        path = self.costly(16)
        image = self.upload(path)
        known = self.known(image)
        # It would be read from the store, were it not for the plan.
        self.assertGreater(known['file_wan_bytes'], known['file_size'])
        before = self.trial.wan_bytes()
        self.plan()
        self.wait_until(lambda: self.known(image)['planned'], 'the plan')
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for download in pool.map(self.get, [image] * AT_ONCE):
                self.assertWhole(path, download)
        self.wait_until_quiet()
        self.assertLess(self.trial.wan_bytes() - before,
                        1.1 * known['file_wan_bytes'] + BESIDES)

    def test_a_plan_that_comes_while_it_is_downloaded(self):
        path = self.costly(32)
        # So that none comes soon, and brings it before.
        self.upload(self.trial.guests()['guest-base'])
        self.plan()
        image = self.upload(path)
        # Or the agent would bring it, or knows not yet who has it.
        self.wait_until(
            lambda: self.known(image)['file_wan_bytes'] > path.stat().st_size,
            'The content is larger than the file')
        self.wait_until_quiet()
        before = self.trial.wan_bytes()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            download = pool.submit(self.get, image)
            self.wait_until(
                lambda: download.done()
                or self.trial.wan_bytes() - before > BESIDES,
                'The download begins')
            cache = service.proxy_of(self.trial.admin)
            job = cache.create_precache_job(images=[image],
                                            hosts=list(self.trial.hosts))
            self.addCleanup(cache.cancel_precache_job, job.id)
            self.assertWhole(path, download.result())
        cache.wait_for_precache_job(job.id, timeout=300)
        self.wait_until_quiet()
        self.assertLess(self.trial.wan_bytes() - before,
                        1.1 * path.stat().st_size + 2 * BESIDES)

    def test_an_image_that_the_site_can_build(self):
        guests = self.trial.guests()
        base = self.upload(guests['guest-base'])
        target = self.upload(guests['guest-web'])
        self.wait_until(lambda: self.known(target)['way'] == 'build'
                        or self.known(target)['at_site'], 'a patch')
        self.get(base)
        self.wait_until_quiet()
        before = self.trial.wan_bytes()
        self.assertWhole(guests['guest-web'], self.get(target))
        self.assertLess(self.trial.wan_bytes() - before,
                        self.known(target)['data_size'] / 4)

    def test_ranges(self):
        path = self.qcow2(4)
        image = self.upload(path)
        self.get(image)
        data = path.read_bytes()
        before = self.trial.wan_bytes()
        for text, start, end in (
                ('bytes=0-0', 0, 1), ('bytes=1000-99999', 1000, 100_000),
                ('bytes=-77', len(data) - 77, len(data)),
                ('bytes=5-', 5, len(data))):
            found = self.get(image, Range=text)
            self.assertEqual(
                (206, hashlib.sha512(data[start:end]).hexdigest(),
                 f'bytes {start}-{end - 1}/{len(data)}'),
                (found.status, found.sha512,
                 found.headers['Content-Range']))
        self.assertLess(self.trial.wan_bytes() - before, BESIDES)
        self.assertEqual(416, self.get(
            image, Range=f'bytes={len(data)}-').status)

    def test_private_images_are_their_projects(self):
        path = self.raw(2, 10 * MIB)
        owner, other = (self.trial.member(name).auth_token
                        for name in ('glance-owner', 'glance-other'))
        image = self.upload(path, who=self.trial.member('glance-owner'),
                            visibility='private')
        self.assertWhole(path, self.get(image, owner))
        for headers in ({}, {'Range': 'bytes=0-99'}):
            self.assertEqual(404, self.get(image, other, **headers).status)

    def test_members_of_a_shared_image_are_known(self):
        glance = self.trial.admin.image
        image = self.upload(self.raw(2, 10 * MIB), visibility='shared')
        member = self.trial.member('glance-other').current_project_id
        kept = self.record(image)
        self.assertEqual([], kept()['members'])
        glance.add_member(image, member_id=member)
        self.wait_until(lambda: kept()['members'] == [member], 'its member')
        glance.remove_member(member, image)
        self.wait_until(lambda: kept()['members'] == [], 'its absence')

    def record(self, image):
        """What the repository's agent keeps of an image, read each time."""
        folder = self.trial.where.data / 'repository'
        path = next(path for path in folder.rglob(f'{image}*.json'))
        return lambda: json.loads(path.read_text())

    def test_without_the_agent_glance_reads_its_store(self):
        path = self.raw(2, 10 * MIB)
        image = self.upload(path)
        with self.trial.stopped('edge-agent'):
            self.assertWhole(path, self.get(image))
        self.wait_until(lambda: self.known(image), 'the agent to be back')
        self.assertWhole(path, self.get(image))
        counted = self.edge.status()['fallbacks']['glance-api']
        self.assertLessEqual(1, counted['ServiceUnavailable'])


class TestWithdrawal(GlanceTest):

    def setUp(self):
        super().setUp()
        self.path = self.qcow2(2)
        self.image_id = self.upload(self.path)
        self.assertWhole(self.path, self.get(self.image_id))
        self.member = self.trial.member('glance-other').auth_token

    def assertGone(self):
        """No agent of the site serves it any more, nor has pieces of it."""
        self.wait_until(lambda: not self.known(self.image_id),
                        'the agent to forget it')
        self.assertNotIn(self.image_id, self.cached())
        self.assertNotIn(self.image_id, [
            file['image_id'] for file in self.edge.status()['files']])
        for error in (self.edge.file, self.edge.image):
            self.assertRaises(exceptions.NotFound, self.ask, error)

    def ask(self, question):
        with question(self.image_id):
            self.fail('it was answered')

    def test_deactivated_and_back(self):
        content = self.known(self.image_id)['content_id']
        images = self.trial.admin.image
        images.deactivate_image(self.image_id)
        self.assertGone()
        self.assertEqual(403, self.get(self.image_id, self.member).status)
        for name in ('edge', 'repository'):
            objects = self.trial.where.data / name / 'objects'
            for kind in ('images', 'manifests'):
                if (name, kind) != ('repository', 'manifests'):
                    self.assertFalse((objects / kind / content).exists())
        images.reactivate_image(self.image_id)
        self.wait_until(lambda: self.known(self.image_id), 'its return')
        self.assertWhole(self.path, self.get(self.image_id))

    def test_deleted(self):
        content = self.known(self.image_id)['content_id']
        self.trial.admin.image.delete_image(self.image_id)
        self.assertGone()
        self.assertEqual(404, self.get(self.image_id).status)
        for name in ('edge', 'repository'):
            objects = self.trial.where.data / name / 'objects'
            self.assertEqual([], list(objects.glob(f'*/*{content}*')))

    def test_deleted_while_the_repository_is_down(self):
        with self.trial.stopped('repository-agent'):
            self.trial.admin.image.delete_image(self.image_id)
            self.assertEqual(404, self.get(self.image_id).status)
        self.assertGone()


class TestOperators(GlanceTest):

    def test_hits_delete_and_queue(self):
        path = self.qcow2(2)
        image = self.upload(path)
        self.assertNotIn(image, self.cached())
        self.get(image)
        before = self.cached()[image]['hits']
        for _ in range(3):
            self.get(image)
        self.assertEqual(before + 3, self.cached()[image]['hits'])
        self.assertEqual(path.stat().st_size, self.cached()[image]['size'])
        self.cache('DELETE', f'/{image}')
        self.assertNotIn(image, self.cached())
        self.cache('PUT', f'/{image}')
        self.wait_until(lambda: image in self.cached(), 'the prefetcher')
        self.assertNotIn(image, self.cache('GET').json()['queued_images'])
        self.assertEqual(0, self.cached()[image]['hits'])

    def test_prune_and_clean(self):
        image = self.upload(self.qcow2(2))
        self.get(image)
        pruned = self.cache('POST', '/prune').json()
        self.assertEqual(0, pruned['total_files_pruned'])
        self.cache('POST', '/clean')
        self.assertIn(image, self.cached())
