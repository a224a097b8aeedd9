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
"""A cached volume in which fio verifies what it wrote, whatever happens.

The commands are those of a page of the administrator guide. They need an
OpenStack that was brought up with ``--volumes``.
"""

from tests.functional.openstack import fio_guest
from tests.functional.openstack import guides
from tests.functional.openstack import nova_hosts
from tests.functional.openstack import transcripts

GUIDE = guides.DOCUMENTS / 'admin' / 'ssd-cache-example.rst'
SECONDS = 300
# What fio writes or verifies in one of its turns, in KiB.
TURN = fio_guest.SIZE // 1024
# Of the references, at least and at most: fio reads each block once after it
# has written it.
RATIOS = {'write-through': (0.95, 1.0), 'write-around': (0.0, 0.05)}


class TestGuide(guides.Reader, nova_hosts.NovaTest):

    TIMEOUT_SCALING_FACTOR = 3
    transcript_name = 'volume-guide.txt'

    def setUp(self):
        super().setUp()
        if not self.trial.where.volumes:
            self.skipTest('needs tools/openstack up --volumes')
        self.host, self.boot_number = self.trial.hosts[0], 1
        self.sections = transcripts.sections(GUIDE.read_text())
        raw = self.directory / 'fio.raw'
        fio_guest.make(self.raw('base'), raw)
        image = self.trial.upload('guest-fio', raw)
        self.addCleanup(self.trial.admin.image.delete_image, image)

    def tidy(self):
        for command in ('server delete --wait shop', 'volume delete shop-data',
                        'volume type delete database',
                        'volume qos delete ssd-cache-database'):
            self.type_words(f'openstack {command}')

    # -- what is seen

    @property
    def server(self):
        return self.compute.find_server('shop', ignore_missing=False).id

    @property
    def volume(self):
        return self.trial.admin.block_storage.find_volume(
            'shop-data', ignore_missing=False).id

    def fio(self, what='work'):
        """What fio said last, in the guest's present boot."""
        of_boot = f'fio boot={self.boot_number} {what} '
        self.trial.wait_for_line(self.server, self.host, f'{of_boot}error',
                                 SECONDS)
        console = self.trial.instances(self.host) / self.server / 'console.log'
        lines = [line for line in console.read_text(errors='replace')
                 .splitlines(keepends=True)
                 if line.startswith(of_boot) and line.endswith('\n')]
        self.assertNotIn(f'{of_boot}ended', ''.join(lines)
                         if what == 'work' else '')
        return fio_guest.parse([line for line in lines
                                if 'error=' in line][-1])

    def assert_verifies(self):
        """Wait until fio has written all anew, and verified it."""
        before = self.fio()

        def is_done():
            now = self.fio()
            self.assertEqual(0, now.error)
            return (now.read >= before.read + 2 * TURN
                    and now.written >= before.written + 2 * TURN)

        self.wait_until(is_done, 'fio has verified', SECONDS)

    def cached(self):
        """What the host's agent says of the volume; None if nothing."""
        return self.agent(self.host).ssd_cache()['volumes'].get(self.volume)

    def assert_cached(self, mode):
        """It is cached in a mode, and fio hits as often as this has it."""
        self.assertEqual(mode, self.cached()['mode'])
        # Until what happened before does not count.
        self.assert_verifies()
        before = self.cached()['traffic']
        self.assert_verifies()
        after = self.cached()['traffic']
        hits, misses = (after[name] - before[name]
                        for name in ('hits', 'misses'))
        ratio = hits / (hits + misses)
        least, most = RATIOS[mode]
        self.assertTrue(least <= ratio <= most, ratio)

    def ready(self, command):
        if 'console log' in command:
            self.assert_verifies()
        elif 'cache unset' in command:
            self.assert_cached('write-around')
        elif 'cache show' in command or 'cache list' in command:
            self.wait_until_reported()

    def wait_until_reported(self):
        """Wait until the service knows what the agent knows now."""
        known = self.cached()
        wanted = known and (known['mode'], _references(known['traffic']))

        def is_known():
            found = self.reported()
            if not known or not found:
                return known == found
            return (found['mode'] == wanted[0]
                    and _references(found) >= wanted[1])

        self.wait_until(is_known, f'the service knows {wanted}', SECONDS)

    def reported(self):
        """What the service says of the volume on the host; None if nothing."""
        found = self.trial.admin.session.get(
            f'/v1/volume-caches/{self.volume}', raise_exc=False,
            endpoint_filter={'service_type': 'diffcache'},
            headers={'OpenStack-API-Version': 'diffcache 1.0'})
        volume = found.ok and found.json()['volume_cache']
        return volume if volume and volume['host'] == self.host else None

    # -- what happens

    def read(self, heading):
        """Type the commands of a section."""
        self.transcript += [heading, '=' * len(heading), '']
        self.assert_prints_what_is_shown(self.sections[heading])

    def test_each_command_prints_what_is_shown(self):
        self.read('A cached volume')
        self.assert_cached('write-through')
        self.trial.kill_ssd_cache(self.host)
        self.read('The cache is killed')
        self.assert_cached('write-through')
        self.read('The volume is extended')
        self.assertEqual(0, self.fio('grown').error)
        self.assert_cached('write-through')
        self.read('The mode of one volume')
        self.assert_cached('write-through')
        self.boot_number = 2
        self.read('A hard reboot')
        self.assertEqual((0, TURN), self.fio('left')[:2])
        self.assert_cached('write-around')
        self.host = self.trial.hosts[1]
        self.read('The mode of the type, and a live migration')
        self.assert_cached('write-around')
        self.read('The end')


def _references(traffic):
    return traffic['hits'] + traffic['misses']
