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
"""Logging of the services."""

import logging as python_logging

from oslo_config import cfg
from oslo_log import log

# Libraries whose chatter at INFO says nothing about this suite.
QUIET = ('amqp=WARN', 'amqplib=WARN', 'oslo.messaging=INFO',
         'oslo_messaging=INFO', 'sqlalchemy=WARN', 'alembic=INFO',
         'stevedore=WARN', 'urllib3.connectionpool=WARN')
# Characters that a log quotes of what a message says.
_BRIEF = 500
# Control characters but for the tabulator (C0, DEL, C1), and the separators
# that some programs take for ends of lines, as they appear in logs.
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (
    *range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029)}


class ControlCharacters(python_logging.Filter):
    """Escapes control characters in messages.

    Messages name what users, guests and other services chose: a name must
    not begin a new line that looks like an entry, nor control a terminal.
    Tracebacks keep their lines.
    """

    def filter(self, record: python_logging.LogRecord) -> bool:
        """Escape the message of a record, and let it pass."""
        message = record.getMessage()
        escaped = message.translate(_ESCAPES)
        if escaped != message:
            record.msg, record.args = escaped, ()
        return True


def brief(text: object) -> str:
    """Return the start of a text whose length others chose, for a log."""
    whole = str(text)
    return whole if len(whole) <= _BRIEF else (
        f'{whole[:_BRIEF]}... ({len(whole)} characters)')


def setup(conf: cfg.ConfigOpts, name: str) -> None:
    """Send this process's logs where the configuration says.

    :param name: the service, shown where the format asks for it
    """
    log.set_defaults(default_log_levels=list(QUIET))
    log.setup(conf, name)
    for handler in python_logging.getLogger().handlers:
        handler.addFilter(ControlCharacters())
    log.getLogger(name).info('%s starts', name)
    conf.log_opt_values(log.getLogger(name), python_logging.DEBUG)
