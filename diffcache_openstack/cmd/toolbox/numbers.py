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
"""Numbers on command lines, as types of :mod:`argparse` that check a range."""

import argparse
import collections.abc
import math

# Seconds, Mbit/s and factors of less are as good as none.
_TINY = 1e-9

_Parser = collections.abc.Callable[[str], float]


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
    if high < math.inf:
        return f' {_text(low)}..{_text(high)}'
    return f' of at least {_text(low)}' if low > -math.inf else ''


def _text(number: float) -> str:
    return str(number) if isinstance(number, int) else f'{number:g}'
