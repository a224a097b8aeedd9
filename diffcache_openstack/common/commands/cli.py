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
"""How the commands of all programs declare arguments, and parse amounts.

A parser of amounts has an attribute ``measure``: what it parses, which is the
metavar of each option that it is the type of.
"""

import argparse
import collections.abc
import math
import typing

from cliff import command
from cliff import display

from diffcache_openstack.common.commands import helps
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units

_TINY = 1e-9
# From here on a limit is the format's, which a user cannot make use of.
_ENDLESS = 2 ** 40
BLOCK = 4096

Arguments = collections.abc.Sequence[typing.Any]
_Parser = collections.abc.Callable[[str], typing.Any]


class Argument:
    """An option or an argument of a command, as argparse takes it."""

    def __init__(self, *names: str, **options: typing.Any) -> None:
        self._names = names
        self._options = options

    def add_to(self, parser: typing.Any) -> None:
        """Add it to a parser, or to a group of one."""
        parser.add_argument(*self._names, **self._options)


class OneOf:
    """Arguments of which at most one is given, or just one if required."""

    def __init__(self, *arguments: Argument, required: bool = False) -> None:
        self._arguments = arguments
        self._required = required

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add them to a parser."""
        group = parser.add_mutually_exclusive_group(required=self._required)
        for each in self._arguments:
            each.add_to(group)


def pair(name: str, opposite: str, helps: tuple[str, str]) -> OneOf:
    """Return two options that undo each other: None, True or False.

    :param name: such as ``protected``, which is where the value is stored
    :param opposite: such as ``unprotected``
    :param helps: of both
    """
    return OneOf(
        Argument(f'--{name}', action='store_true', default=None,
                 help=helps[0]),
        Argument(f'--{opposite}', dest=name.replace('-', '_'),
                 action='store_false', help=helps[1]))


def add_declared(kind: type, parser: argparse.ArgumentParser) -> None:
    """Add the arguments that a class and its bases declare, bases first."""
    for each in reversed(kind.__mro__):
        for argument in vars(each).get('arguments', ()):
            argument.add_to(parser)


class Command(command.Command):
    """Mixin for cliff commands, before cliff's own class: adds arguments.

    :cvar arguments: what the command takes, after what its bases take
    :cvar examples: command lines for its help, without the command's name
    """

    arguments: Arguments = ()
    examples: collections.abc.Sequence[str] = ('',)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the declared arguments."""
        parser = super().get_parser(prog_name)
        helps.shorten(parser)
        add_declared(type(self), parser)
        parser.epilog = helps.with_examples(parser, self.examples)
        return parser


class Columns(display.DisplayCommandBase):
    """Mixin for commands with output: says which columns there are."""

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: collections.abc.Sequence[str],
                       data: typing.Any) -> int:
        """Print the columns that the command line selects.

        :raises InvalidInput: one of them does not exist
        """
        known = {_plain(name) for name in column_names}
        for name in (*parsed_args.columns,
                     *getattr(parsed_args, 'sort_columns', ())):
            if _plain(name) not in known:
                raise exceptions.InvalidInput(
                    f'There is no column {name!r}; choose from'
                    f' {", ".join(map(str, column_names))}.')
        # Of the class after this one.
        return super().produce_output(  # type: ignore[safe-super]
            parsed_args, column_names, data)


def _plain(name: str) -> str:
    return name.lower().replace(' ', '_')


def whole(low: int, high: float = math.inf
          ) -> collections.abc.Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``."""
    return _checked(int, low, high, 'a whole number' + _range(low, high))


def real(low: float = -math.inf, high: float = math.inf) -> _Parser:
    """Return a parser of finite numbers from ``low`` to ``high``."""
    return _checked(float, low, high, 'a number' + _range(low, high))


def positive(high: float = math.inf) -> _Parser:
    """Return a parser of finite numbers above 0, to ``high``."""
    return _checked(float, _TINY, high, 'a number above 0' + (
        f', and at most {_text(high)}' if high < math.inf else ''))


def seconds(low: float = _TINY, high: float = math.inf) -> _Parser:
    """Return a parser of seconds: ``90``, ``0.5``, ``30m``, ``6h``, ``1d``."""
    return measured('seconds', _checked(
        _read_seconds, low, high, 'a number of seconds' + (
            ' above 0' if low == _TINY else _range(low, math.inf)) + (
            f', and at most {_text(high)}' if high < math.inf else '')))


def duration(text: str) -> int:
    """Parse seconds from ``90s``, ``30m``, ``6h`` or ``1d``."""
    return _refuse(units.parse_duration, text)


def size(low: float = 0, high: float = math.inf, bare: int = 1) -> _Parser:
    """Return a parser of bytes, such as ``100MB`` or ``2GiB``.

    :param low: bytes
    :param high: bytes
    :param bare: bytes that a number without a unit counts
    """
    return measured('size', _checked(
        lambda text: _read_size(text, bare), low, high,
        'a size' + _range(low, high)))


def blocks(low: int = 0, high: float = math.inf, bare: int = BLOCK
           ) -> _Parser:
    """Return a parser of blocks of 4 KiB: a number of them, or a size.

    :param bare: bytes that a number without a unit counts
    """
    return measured('blocks' if bare == BLOCK else 'size', _checked(
        lambda text: _read_size(text, bare) // BLOCK, low, high,
        'a number of blocks of 4 KiB or a size' + _range(low, high)))


def rate(bare: int = 1) -> _Parser:
    """Return a parser of bytes per second: ``20MBps``, ``160Mbps``, ``20MB``.

    :param bare: bytes per second that a number without a unit counts
    """
    return measured('rate', _checked(
        lambda text: _read_rate(text, bare), 1, math.inf,
        'a rate above 0, such as 20MBps'))


def bandwidth(text: str) -> float:
    """Parse Mbit/s from a number of them, or from a rate."""
    return rate(bare=units.MBIT)(text) / units.MBIT


def measured(name: str | None, parse: typing.Any) -> typing.Any:
    """Note what a parser parses; return the parser."""
    parse.measure = name
    return parse


def checked(parse: typing.Any) -> typing.Any:
    """Return a parser that keeps the text: a host parses it, too."""
    def keep(text: str) -> str:
        try:
            parse(text)
        except exceptions.InvalidInput as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text
    return measured(getattr(parse, 'measure', None), keep)


measured('rate', bandwidth)
measured('duration', duration)


def _refuse(parse: _Parser, text: str) -> typing.Any:
    """Parse; turn a refusal into one that argparse shows."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _read_seconds(text: str) -> float:
    return float(units.parse_duration(text)) if text[-1:].isalpha() \
        else float(text)


def _read_size(text: str, bare: int) -> int:
    sign = -1 if text.startswith('-') else 1
    number = text.removeprefix('-')
    try:
        return sign * round(float(number) * bare)
    except (ValueError, OverflowError):
        return sign * _refuse(units.parse_size, number)


def _read_rate(text: str, bare: int) -> int:
    try:
        return round(float(text) * bare)
    except (ValueError, OverflowError):
        return _refuse(units.parse_rate, text)


def _checked(kind, low, high, what):
    def parse(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        # No comparison with NaN is true.
        if not (math.isfinite(value) and low <= value <= high):
            raise argparse.ArgumentTypeError(f'{text!r} is not {what}')
        return value
    return parse


def _range(low: float, high: float) -> str:
    if high < _ENDLESS:
        return f' {_text(low)}..{_text(high)}'
    return f' of at least {_text(low)}' if low > -math.inf else ''


def _text(number: float) -> str:
    return f'{number:.0f}' if number % 1 == 0 else f'{number:g}'
