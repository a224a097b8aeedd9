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

"""The packages of the family, downloaded once, as a local apt repository.

All images are installed from it, so the whole family is of one state of the
distribution, nothing is downloaded twice, and builds need no network.
"""

import os
import pathlib
import re
import subprocess

import family
import shell

_KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'


def sources_list(release: str) -> str:
    """Return the sources of a release, from where this machine has its own.

    :raises BuildError: this machine's apt has no source of the release
    """
    text = subprocess.run(
        ['apt-get', 'indextargets', '--format', '$(CODENAME) $(REPO_URI)',
         'Created-By: Packages', 'Component: main'],
        capture_output=True, text=True, check=True,
    ).stdout
    mirrors = dict(line.split(maxsplit=1) for line in text.splitlines())
    if not re.match('https?://', mirrors.get(release, '')):
        raise shell.BuildError(
            f'apt has no network source of Debian {release} on this '
            f'machine; add one to /etc/apt/sources.list and run apt-get '
            f'update'
        )
    return ''.join(
        f'deb [signed-by={_KEYRING}] {mirrors[suite]} {suite} main\n'
        for suite in (release, f'{release}-updates', f'{release}-security')
        if suite in mirrors
    )


class Archive:
    """A folder of packages that apt takes for a repository."""

    def __init__(self, root: pathlib.Path, release: str) -> None:
        self._release = release
        self.packages = root / 'packages'
        self._state = root / 'state'
        self._log = root / 'archive.log'

    def line(self, path: str | os.PathLike[str]) -> str:
        """Return the sources.list line for the repository seen at a path."""
        return f'deb [trusted=yes] copy:{os.fspath(path)} ./\n'

    def fill(self) -> None:
        """Download whatever the family needs and is not here yet.

        :raises BuildError: apt cannot reach its mirror, or lacks a package
        """
        for folder in (
            self.packages / 'partial',
            self._state / 'lists' / 'partial',
        ):
            folder.mkdir(parents=True, exist_ok=True)
        (self._state / 'status').touch()
        (self._state / 'sources.list').write_text(
            sources_list(self._release))
        shell.run(self._log, 'apt-get', *self._options(), 'update')
        shell.run(
            self._log, 'apt-get', *self._options(), 'install', '--yes',
            '--download-only', '--no-install-recommends',
            '?essential', 'apt', *self._wanted(),
        )
        # Without a code name, mmdebstrap finds no essential packages in it.
        codename = f'APT::FTPArchive::Release::Codename={self._release}'
        self._write('Packages', 'packages', '.')
        self._write('Release', '-o', codename, 'release', '.')

    def _write(self, name: str, *arguments: str) -> None:
        """Write an index of the repository."""
        path = self.packages / name
        path.unlink(missing_ok=True)
        path.write_bytes(subprocess.run(
            ['apt-ftparchive', *arguments],
            cwd=self.packages, capture_output=True, check=True,
        ).stdout)

    @staticmethod
    def _wanted() -> list[str]:
        names = set()
        for recipe in family.FAMILY:
            names.update(recipe.packages)
        return sorted(names)

    def _options(self) -> list[str]:
        """Keep apt's state apart from this machine's own."""
        settings = {
            'APT::Architecture': 'amd64',
            'APT::Keep-Downloaded-Packages': 'true',
            'APT::Sandbox::User': 'root',
            'Dir::Cache::archives': self.packages,
            'Dir::Cache::pkgcache': '',
            'Dir::Cache::srcpkgcache': '',
            'Dir::Etc::sourcelist': self._state / 'sources.list',
            'Dir::Etc::sourceparts': '-',
            'Dir::Etc::preferencesparts': '-',
            'Dir::State::lists': self._state / 'lists',
            'Dir::State::status': self._state / 'status',
        }
        return [
            word
            for name, value in settings.items()
            for word in ('-o', f'{name}={value}')
        ]
