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
"""Archives depend on the content alone, not on who packed it."""

import base64
import csv
import hashlib
import io
import tarfile
import zipfile

from tests import base
from tests.unit.tools import loading

archives = loading.load('release/archives')

EPOCH = 1700000000
FILES = {'code.py': (b'print()\n', 0o644), 'run.sh': (b'true\n', 0o755)}


class SdistTest(base.TestCase):

    def _packed(self, name: str, members: list[str], **attributes):
        """A source distribution whose members have the attributes."""
        path = self.directory / name / 'thing-1.0.tar.gz'
        path.parent.mkdir()
        with tarfile.open(path, 'w:gz') as archive:
            for member in members:
                content, mode = FILES[member]
                info = tarfile.TarInfo(f'thing-1.0/{member}')
                info.size, info.mode = len(content), mode
                for key, value in attributes.items():
                    setattr(info, key, value)
                archive.addfile(info, io.BytesIO(content))
        return path

    def _normalized(self, source):
        target = source.with_name('normal.tar.gz')
        archives.normalize_sdist(source, target, EPOCH, {'sboms/a': b'{}'})
        return target

    def test_order_times_and_owners_make_no_difference(self):
        one = self._normalized(self._packed('one', ['code.py', 'run.sh']))
        two = self._normalized(self._packed(
            'two', ['run.sh', 'code.py'], mtime=5, uid=7, gid=8, uname='me'))
        self.assertEqual(one.read_bytes(), two.read_bytes())

    def test_content_and_the_right_to_run_are_kept(self):
        path = self._normalized(self._packed('one', ['run.sh', 'code.py']))
        with tarfile.open(path) as archive:
            found = {member.name: (archive.extractfile(member).read(),
                                   member.mode, member.mtime)
                     for member in archive.getmembers()}
        self.assertEqual({
            'thing-1.0/code.py': (b'print()\n', 0o644, EPOCH),
            'thing-1.0/run.sh': (b'true\n', 0o755, EPOCH),
            'thing-1.0/sboms/a': (b'{}', 0o644, EPOCH)}, found)

    def test_the_umask_makes_no_difference(self):
        one = self._normalized(self._packed('one', ['code.py']))
        two = self._normalized(self._packed('two', ['code.py'], mode=0o600))
        self.assertEqual(one.read_bytes(), two.read_bytes())


class WheelTest(base.TestCase):

    def _packed(self, name: str, members: list[str], stamp):
        path = self.directory / name
        with zipfile.ZipFile(path, 'w') as archive:
            for member in members:
                content, mode = FILES[member]
                info = zipfile.ZipInfo(member, stamp)
                info.external_attr = mode << 16
                archive.writestr(info, content)
            archive.writestr('thing-1.0.dist-info/RECORD', 'old')
        return path

    def _normalized(self, source):
        target = source.with_suffix('.normal')
        archives.normalize_wheel(source, target, EPOCH,
                                 {'sboms/a.cdx.json': b'{}'})
        return target

    def test_order_times_and_time_zone_make_no_difference(self):
        one = self._normalized(self._packed(
            'one', ['code.py', 'run.sh'], (1990, 1, 1, 0, 0, 0)))
        two = self._normalized(self._packed(
            'two', ['run.sh', 'code.py'], (2020, 2, 2, 2, 2, 2)))
        self.assertEqual(one.read_bytes(), two.read_bytes())

    def test_the_record_lists_each_file_with_its_digest(self):
        path = self._normalized(self._packed(
            'one', ['code.py', 'run.sh'], (1990, 1, 1, 0, 0, 0)))
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            record = archive.read('thing-1.0.dist-info/RECORD').decode()
            contents = {name: archive.read(name) for name in names}
            modes = {info.filename: info.external_attr >> 16 & 0o777
                     for info in archive.infolist()}
        self.assertEqual('thing-1.0.dist-info/RECORD', names[-1])
        self.assertIn('thing-1.0.dist-info/sboms/a.cdx.json', names)
        self.assertEqual({'code.py': 0o644, 'run.sh': 0o755},
                         {name: modes[name] for name in FILES})
        rows = list(csv.reader(record.splitlines()))
        self.assertEqual(names, [row[0] for row in rows])
        self.assertEqual(['', ''], rows[-1][1:])
        for name, digest, size in rows[:-1]:
            raw = hashlib.sha256(contents[name]).digest()
            self.assertEqual(
                'sha256=' + base64.urlsafe_b64encode(raw).decode().rstrip('='),
                digest)
            self.assertEqual(len(contents[name]), int(size))

    def test_a_time_before_the_format_is_its_first(self):
        source = self._packed('one', ['code.py'], (1990, 1, 1, 0, 0, 0))
        target = self.directory / 'early'
        archives.normalize_wheel(source, target, 0, {})
        with zipfile.ZipFile(target) as archive:
            self.assertEqual((1980, 1, 1, 0, 0, 0),
                             archive.getinfo('code.py').date_time)
