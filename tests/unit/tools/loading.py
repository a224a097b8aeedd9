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
"""Load the programs of tools/, which are no package."""

import importlib.util
import pathlib
import types

TREE = pathlib.Path(__file__).parents[3]


def load(name: str) -> types.ModuleType:
    """Load a Python file of tools/ as a module.

    :param name: the file's path below tools/, without its suffix
    """
    path = TREE / 'tools' / f'{name}.py'
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
