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
"""tools/check_rust_modules.py finds modules that need each other."""

import pathlib

from tests import base
from tests.unit.tools import loading

check = loading.load('check_rust_modules')


class TestPaths(base.TestCase):

    def test_trees_of_use_declarations_are_unfolded(self):
        self.assertEqual(
            ['crate::a::B', 'crate::a::c::D', 'crate::a::c::self'],
            check.paths_of('crate::a::{B, c::{D, self}}'))
        self.assertEqual(['super::x::Y'], check.paths_of('super::x::Y as Z'))

    def test_paths_are_absolute_from_the_crate_on(self):
        for path, expected in (('crate::x::Y', 'x::Y'), ('super::Y', 'a::Y'),
                               ('super::super::Y', 'Y'),
                               ('self::Y', 'a::b::Y')):
            self.assertEqual(expected.split('::'),
                             check.absolute(path, 'a::b'))


class TestCircles(base.TestCase):

    def circles(self, **files):
        for name, text in files.items():
            path = self.directory / 'src' / (name.replace('__', '/') + '.rs')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check.circles_of(check.graph_of(self.directory / 'src'))

    def test_modules_that_need_each_other_are_found(self):
        self.assertEqual([('a', 'b', 'c')], self.circles(
            a='use crate::b::B;', b='fn f() { super::c::g(); }',
            c='use super::{a::A, d};', d=''))

    def test_what_only_tests_comments_and_texts_name_does_not_count(self):
        self.assertEqual([], self.circles(
            a='use crate::b::B;',
            b='// crate::a\nconst T: &str = "crate::a";\n'
              '#[cfg(test)]\nmod tests { use crate::a::A; }'))

    def test_a_submodule_may_use_what_it_is_a_part_of(self):
        self.assertEqual([], self.circles(
            a__mod='mod b; pub struct A;', a__b='use super::A;'))

    def test_a_circle_by_way_of_a_parent_is_found(self):
        self.assertEqual([('a', 'a::b', 'c')], self.circles(
            a__mod='mod b;', a__b='use crate::c::C;', c='use crate::a::A;'))

    def test_the_crates_have_no_circles(self):
        found = {(source.parent.name, *circle)
                 for source in pathlib.Path(check.NATIVE).glob('*/src')
                 for circle in check.circles_of(check.graph_of(source))}
        self.assertEqual(set(), found)
