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
"""Reports on a running service, by oslo.reports.

They show what it is doing where no debugger can be attached: packages, the
stack of each thread, processes, and options, of which secrets are left out.
"""

import importlib.metadata
import signal
import typing

from oslo_config import cfg

_PACKAGE = 'diffcache-openstack'


class _Version:
    """The suite, as reports name it."""

    def vendor_string(self) -> str:
        return 'DiffCache for OpenStack'

    def product_string(self) -> str:
        return _PACKAGE

    def version_string_with_package(self) -> str:
        return importlib.metadata.version(_PACKAGE)


def write_on_signal(conf: cfg.ConfigOpts, name: str) -> None:
    """Write a report when the process gets SIGUSR2.

    It goes to standard error, or to a file in ``[oslo_reports] log_dir``. What
    writes it is loaded for the first one.

    :param conf: the service's configuration
    :param name: of the service, with which the name of the file begins
    """
    options = conf.oslo_reports
    if options.file_event_handler:
        _new_report(conf).setup_autorun(_Version(), name, conf=conf)
        return
    signal.signal(signal.SIGUSR2, lambda _number, frame: _new_report(
        conf).handle_signal(_Version(), name, options.log_dir, frame))


def _new_report(conf: cfg.ConfigOpts) -> typing.Any:
    """Return a class of reports on a service."""
    from oslo_reports.generators import conf as configuration
    from oslo_reports import guru_meditation_report

    class Report(guru_meditation_report.TextGuruMeditation):
        # Of this class alone: a process may run one service after another.
        persistent_sections = []

    Report.register_section('Options of the Service',
                            configuration.ConfigReportGenerator(conf))
    return Report
