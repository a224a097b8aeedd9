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
"""Horizon in Debian's Chromium, driven by Playwright and checked by axe-core.

The environment variable DIFFCACHE_TEST_SCREENSHOTS names a folder in which
pictures of the pages are kept, as the documentation shows them.
"""

import os
import pathlib
import re
import typing

from tests.functional.openstack import machine

try:
    from axe_playwright_python import sync_playwright as axe
    from playwright import sync_api
except ImportError:
    axe = sync_api = None

CHROMIUM = pathlib.Path('/usr/bin/chromium')
PICTURES = 'DIFFCACHE_TEST_SCREENSHOTS'
# Chromium runs as root here, without a GPU, and must not call its maker.
_FLAGS = ('--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
          '--disable-background-networking', '--disable-component-update',
          '--disable-sync')
_SIZE = {'width': 1280, 'height': 720}
_MILLISECONDS = 60_000
_SERIOUS = ('serious', 'critical')
# What is Horizon's own on each page, and the colours of its theme's buttons.
_HORIZON = ('.navbar', '#sidebar', '.page-breadcrumb', '.page-header',
            '.detail-header', '.nav-tabs a[href*=instance_details]',
            '.nav-tabs a[href*=volume_details]', '.tabset-details .nav-tabs',
            '.btn-primary', '.modal-footer .btn-danger',
            '.themable-spinner-btn', '.modal-backdrop',
            '.modal-header .close', '.messages')


class Visitor:
    """A user who is logged in.

    :ivar page: what the user sees
    """

    def __init__(self, test: 'BrowserTest', page: typing.Any,
                 address: str) -> None:
        self.page = page
        self._test = test
        self._address = address

    def log_in(self, name: str, password: str) -> None:
        """Log in on Horizon's own page."""
        self.open('/auth/login/')
        self.page.fill('#id_username', name)
        self.page.fill('#id_password', password)
        self.page.click('#loginBtn')
        self.page.wait_for_selector('#navbar-collapse')

    def open(self, path: str) -> typing.Any:
        """Open a page by its path, and wait until it is complete."""
        response = self.page.goto(f'{self._address}{path}')
        self.settle()
        return response

    def settle(self) -> None:
        """Wait until nothing is loaded any more."""
        self.page.wait_for_load_state('networkidle')

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements, with single spaces."""
        return [re.sub(r'\s+', ' ', text).strip() for text in
                self.page.locator(selector).all_text_contents()]

    def messages(self) -> list[str]:
        """Return the messages at the top of the page."""
        return self.texts('.messages .alert')

    def row(self, table: str, text: str) -> typing.Any:
        """Return the row of a table that has a text."""
        return self.page.locator(f'table#{table} tbody tr', has_text=text)

    def offered(self, selector: str) -> list[str]:
        """Return the labels of the actions in an element."""
        found = self.page.locator(selector).locator('.data-table-action')
        return sorted(' '.join(label.split())
                      for label in found.all_text_contents())

    def act(self, table: str, identity: str, action: str) -> None:
        """Choose an action of a row, in its menu if it is there.

        :param identity: of the row
        :param action: its name in Horizon's table
        """
        chosen = self.page.locator(f'[id="{table}__row_{identity}__action_'
                                   f'{action}"]')
        if not chosen.is_visible():
            self.page.locator(f'[id="{table}__row__{identity}"]'
                              ' .dropdown-toggle').click()
        chosen.click()

    def act_at_once(self, table: str, identity: str, action: str) -> None:
        """Choose an action that asks for no confirmation."""
        with self.page.expect_navigation():
            self.act(table, identity, action)
        self.settle()

    def choose(self, field: str, value: str) -> None:
        """Choose a value in a form."""
        box = self.page.locator('.modal.in .themable-select').filter(
            has=self.page.locator(f'select[name={field}]'))
        box.locator('button').click()
        box.locator(f'a[data-select-value="{value}"]').click()

    def tick(self, field: str, value: str) -> None:
        """Tick one of the boxes of a field of a form."""
        self.page.locator(f'.modal.in input[name={field}][value="{value}"]'
                          ).check(force=True)

    def confirm(self) -> None:
        """Confirm the dialog that is shown, and wait for the next page."""
        with self.page.expect_navigation():
            self.page.locator(
                '.modal.in .modal-footer a.btn:not(.cancel)').click()
        self.settle()

    def submit(self) -> None:
        """Send the form that is shown, and wait for the next page."""
        with self.page.expect_navigation():
            self.page.locator('[type=submit].btn-primary').last.click()
        self.settle()

    def check(self, name: str, within: str = 'body') -> None:
        """Check that the page is accessible, and keep a picture of it.

        :param name: of the picture
        :param within: selector of what is this suite's
        """
        self.settle()
        found = axe.Axe().run(
            self.page, {'include': [[within]],
                        'exclude': [[selector] for selector in _HORIZON]},
            # The page's language is for Horizon's base image to name.
            {'rules': {'html-has-lang': {'enabled': False}}}).response
        self.keep(name)
        serious = [
            f'{each["impact"]} {each["id"]}: {node["html"][:200]}'
            for each in found['violations'] if each['impact'] in _SERIOUS
            for node in each['nodes']]
        self._test.assertEqual([], serious, name)

    def keep(self, name: str) -> None:
        """Keep a picture of the page, if they are wanted."""
        folder = os.environ.get(PICTURES)
        if folder:
            self.page.screenshot(path=pathlib.Path(folder) / f'{name}.png',
                                 full_page=True)


class BrowserTest(machine.TestCase):
    """A test of Horizon's pages, as a browser shows them."""

    browser: typing.Any

    @classmethod
    def setUpClass(cls) -> None:
        """Find Horizon, and start Chromium."""
        super().setUpClass()
        cls._need(cls.trial.where.dashboard, 'this OpenStack has no Horizon:'
                  ' tools/openstack up --dashboard')
        cls._need(sync_api is not None, 'Playwright or axe-playwright-python'
                  ' is not installed')
        cls._need(CHROMIUM.exists(), f'{CHROMIUM} is missing: install the'
                  ' package chromium')
        driver = sync_api.sync_playwright().start()
        cls.addClassCleanup(driver.stop)
        # With a new and empty folder for the user's data.
        cls.browser = driver.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=list(_FLAGS))
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def _need(cls, condition: bool, reason: str) -> None:
        if not condition:
            cls.skipTest(cls('__init__'), reason)

    def visitor(self, name: str, password: str | None = None,
                **options: typing.Any) -> Visitor:
        """Return a user who has logged in."""
        context = self.browser.new_context(viewport=_SIZE, **options)
        self.addCleanup(context.close)
        context.set_default_timeout(_MILLISECONDS)
        found = Visitor(self, context.new_page(),
                        self.trial.where.url('horizon'))
        found.log_in(name, password or self.trial.where.password('admin'))
        return found
