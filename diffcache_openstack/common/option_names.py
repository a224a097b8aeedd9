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
"""Misspelt options: names in a file that their group does not have."""

import collections.abc
import difflib
import pathlib

from oslo_config import cfg
from oslo_config import iniparser

Sections = dict[str, dict[str, list[str]]]


class UnknownOptionError(cfg.Error):
    """A file has an option that its group does not have."""


def files_of(conf: cfg.ConfigOpts) -> list[str]:
    """Return the paths of the files that a configuration was read from."""
    paths = [str(path) for path in conf.config_file or ()]
    for directory in conf.config_dir or ():
        paths += map(str, sorted(pathlib.Path(directory).glob('*.conf')))
    return paths


def read(path: str) -> Sections:
    """Return the options that a file has, by section.

    :raises oslo_config.cfg.Error: it cannot be parsed
    :raises OSError: it cannot be read
    """
    sections: Sections = {}
    try:
        cfg.ConfigParser(path, sections).parse()
    except iniparser.ParseError as error:
        raise cfg.ConfigFileParseError(path, str(error)) from error
    return sections


def known(options: collections.abc.Iterable[cfg.Opt]) -> set[str]:
    """Return all names of options, also those that were renamed."""
    return {name for option in options for name in (
        option.dest, *(old.name.replace('-', '_')
                       for old in option.deprecated_opts if old.name))}


def check(path: str, group: str, given: collections.abc.Iterable[str],
          names: collections.abc.Collection[str]) -> None:
    """Check that a file has no option in a group but these.

    :param given: the names in the file
    :param names: the names that the group has
    :raises UnknownOptionError: it has
    """
    for option in given:
        if option.replace('-', '_') not in names:
            near = difflib.get_close_matches(option, names, 1)
            raise UnknownOptionError(
                f'{path}: group [{group}] has no option {option!r}'
                + (f'; did you mean {near[0]!r}?' if near else
                   '; remove it.'))


def check_group(paths: collections.abc.Iterable[str], group: str,
                options: collections.abc.Iterable[cfg.Opt]) -> None:
    """Check one group in the files of another project.

    :param options: all that the group has
    :raises UnknownOptionError: a file has another one in it
    """
    names = known(options)
    for path in paths:
        check(path, group, read(path).get(group, ()), names)
