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
"""``diffcache-status upgrade check``, as other OpenStack services have it."""

import collections.abc
import functools
import sys

from oslo_config import cfg
from oslo_upgradecheck import common_checks
from oslo_upgradecheck import upgradecheck

from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import dangers
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db.views import monitoring_views

_SUCCESS = upgradecheck.Code.SUCCESS
_WARNING = upgradecheck.Code.WARNING
_FAILURE = upgradecheck.Code.FAILURE
# What may follow "upgrade".
_AFTER = ('check', '-h', '--help', '--json')
# More are counted.
_NAMED = 5

Finding = tuple[upgradecheck.Code, str | None]


def _checked(check: collections.abc.Callable[['Checks'], Finding]
             ) -> collections.abc.Callable[['Checks'], upgradecheck.Result]:
    """Turn what a check finds, or an error of the suite, into a result."""
    @functools.wraps(check)
    def checked(self: 'Checks') -> upgradecheck.Result:
        try:
            return upgradecheck.Result(*check(self))
        except exceptions.DiffCacheError as error:
            return upgradecheck.Result(_FAILURE, str(error))
    return checked


class Checks(upgradecheck.UpgradeCommands):
    """Whether the services of this version can be started.

    Run it on a controller with the new version installed, after
    ``diffcache-manage db sync`` and before the services are restarted.

    :param conf: a configuration with all groups registered
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._upgrade_checks = (
            ('Database schema', Checks._check_schema),
            ('Hosts', Checks._check_hosts),
            ('Records of images', Checks._check_records),
            ('Dangerous options', Checks._check_dangers),
            ('Policy file', (common_checks.check_policy_json,
                             {'conf': conf})))

    @_checked
    def _check_schema(self) -> Finding:
        with engine.errors_explained(self._conf):
            found = migration.current(self._conf, max_retries=0)
        wanted = migration.head()
        if found == wanted:
            return _SUCCESS, None
        if migration.accepts(found):
            return _WARNING, (
                f'The database is at revision {found}, of a newer release'
                f' than this one ({wanted}). Upgrade this machine, too.')
        if found and not migration.is_known(found):
            return _FAILURE, (
                f'The database is at revision {found}, which this version'
                f' does not know: it belongs to a newer one. Install that.')
        return _FAILURE, (
            f'The database is at revision {found or "none"}, not {wanted};'
            f' run "diffcache-manage db sync".')

    @_checked
    def _check_hosts(self) -> Finding:
        dead = [host['name'] for host in self._look(monitoring_views.hosts)
                if not host['alive']]
        if not dead:
            return _SUCCESS, None
        return _WARNING, (
            f'{_names(dead)}: no heartbeats. Upgrade these hosts before they'
            f' return, or remove them ("openstack image cache host delete").')

    @_checked
    def _check_records(self) -> Finding:
        if not self._conf.messaging.authority_file:
            return _SUCCESS, None
        unsigned = self._look(monitoring_views.images_without_record)
        if not unsigned:
            return _SUCCESS, None
        return _WARNING, (
            f'Images without a record of their repository: {_names(unsigned)}.'
            f' Hosts ignore them. Start the repository\'s agent with'
            f' [messaging] key_file; it signs its images.')

    @_checked
    def _check_dangers(self) -> Finding:
        left = dangers.of(self._conf)
        if not left:
            return _SUCCESS, None
        return _WARNING, f'{"; ".join(left)}. Remove what no host needs.'

    def _look(self, function):
        """Read the database, whose schema may not be there yet.

        :raises DiffCacheError: it cannot be read
        """
        with engine.errors_explained(self._conf):
            database = engine.Database(self._conf, max_retries=0)
            try:
                return database.look(function)
            finally:
                database.close()


def _names(names: collections.abc.Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    shown = ', '.join(names[:_NAMED])
    more = len(names) - _NAMED
    return f'{shown} and {more} more' if more > 0 else shown


def main(argv: collections.abc.Sequence[str] | None = None) -> int:
    """Run the checks; return 0, 1 with warnings, 2 with failures, or 255.

    :param argv: the command line without the program's name
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ['--version']:
        # As other programs have it; the library's has no such option.
        print(opts.version())
        return 0
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    if words[:1] == ['upgrade'] and words[1:] and words[1] not in _AFTER:
        # The library takes any word for the check.
        print(f'diffcache-status: error: there is no command "upgrade'
              f' {words[1]}"; run diffcache-status upgrade check',
              file=sys.stderr)
        return 255
    try:
        return upgradecheck.main(conf, opts.PROJECT, Checks(conf), words)
    except cfg.Error as error:
        print(f'diffcache-status: error: {error}', file=sys.stderr)
        return 255
