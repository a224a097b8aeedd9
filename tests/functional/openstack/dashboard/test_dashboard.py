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
"""Each page and each action of Horizon's panels, in a browser.

By an operator, by a member of a project, and by one who may only read.
"""

import uuid

from tests.functional.openstack.dashboard import sample

_PLANS = '/admin/image_cache_plans/'
_JOBS = '/admin/image_cache_precache/'
_OPERATORS = ('/admin/image_cache_sites/', '/admin/image_cache_hosts/',
              _PLANS, '/admin/image_cache_images/',
              '/admin/image_cache_ssd_caches/', _JOBS)
# Most presses of a key until something has the focus.
_MOST_KEYS = 120
_FOCUS = 'document.activeElement.id'


class TestOperator(sample.SampleTest):

    def setUp(self):
        super().setUp()
        self.operator = self.visitor('admin')
        self.page = self.operator.page

    def pages(self):
        """The paths of all pages, by names of pictures."""
        plan = self.plan_of('current').id
        image = self.images['debian-12-web']
        return {
            'sites': '/admin/image_cache_sites/',
            **{f'site-{tab}': '/admin/image_cache_sites/site/'
                              f'?tab=site__{tab}'
               for tab in ('overview', 'savings', 'requests', 'problems',
                           'what_if')},
            'hosts': '/admin/image_cache_hosts/',
            **{f'host-{tab}': f'/admin/image_cache_hosts/{host}/'
                              f'?tab=host__{tab}'
               for host, tab in (('compute-1', 'overview'),
                                 ('compute-1', 'objects'),
                                 ('repository', 'connections'),
                                 ('repository', 'pending'))},
            'plans': _PLANS,
            **{f'plan-{tab}': f'{_PLANS}{plan}/?tab=plan__{tab}'
               for tab in ('overview', 'items')},
            'images': '/admin/image_cache_images/',
            **{f'image-{tab}': f'/admin/image_cache_images/{image}/'
                               f'?tab=image__{tab}'
               for tab in ('overview', 'hosts', 'starts', 'family',
                           'patches')},
            'jobs': _JOBS}

    def test_each_page_is_accessible_and_has_no_error(self):
        for name, path in self.pages().items():
            with self.subTest(name):
                response = self.operator.open(path)
                self.assertEqual(200, response.status)
                self.assertEqual([], self.operator.messages())
                self.operator.check(name)

    def test_pages_name_images_and_not_their_ids(self):
        for name, path in self.pages().items():
            if name.split('-')[0] in ('host', 'plan', 'images', 'image'):
                self.operator.open(path)
                found = ' '.join(self.operator.texts('#content_body table'))
                for image in self.images.values():
                    self.assertNotIn(image, found, name)

    def test_the_family_leads_to_where_an_image_is_and_why(self):
        image = self.images['debian-12-base']
        self.operator.open(f'/admin/image_cache_images/{image}/'
                           '?tab=image__family')
        names = self.operator.texts('.image-cache-graph .name')
        self.assertEqual(sorted(self.images), sorted(names))
        self.page.click('.image-cache-graph a:has-text("debian-12-web"):not('
                        ':has-text("database"))')
        self.operator.settle()
        self.assertIn('repository', ' '.join(
            self.operator.texts('table#locations')))

    def test_sliders_by_the_keyboard(self):
        self.operator.open(
            '/admin/image_cache_sites/site/?tab=site__what_if')
        for name, keys in (('add_hosts', 1), ('capacity', 5), ('wan', 6)):
            self.page.focus(f'#id_{name}')
            for _ in range(keys):
                self.page.keyboard.press('ArrowRight')
        self.assertEqual(['1', '50', '4', '1'], self.operator.texts('output'))
        self.page.focus('.image-cache-what-if button')
        with self.page.expect_navigation():
            self.page.keyboard.press('Enter')
        self.operator.settle()
        self.assertEqual([], self.operator.messages())
        self.assertIn('Waiting per day', self.operator.texts(
            '#site__what_if tbody th'))
        self.operator.check('site-what-if-compared')

    def propose(self):
        """Compute a plan on the page; returns its ID."""
        before = {plan.id for plan in self.cache.plans(site=self.site)}
        self.operator.open(_PLANS)
        self.page.click('#plans__action_create')
        self.operator.choose('site', self.site)
        self.operator.check('plan-create')
        self.operator.submit()
        self.assertIn('Computing a plan for site site.',
                      ' '.join(self.operator.messages()))
        return self.wait_until(lambda: next(
            (plan.id for plan in self.cache.plans(site=self.site,
                                                  state='proposed')
             if plan.id not in before), None), 'there is a proposal')

    def test_plans_are_computed_applied_and_cancelled(self):
        applied = self.propose()
        self.operator.open(_PLANS)
        self.operator.act('plans', applied, 'apply')
        dialog = ' '.join(self.operator.texts('.modal.in .modal-body'))
        self.assertIn('over the WAN', dialog)
        self.operator.check('plan-apply')
        self.operator.confirm()
        self.assertIn('Applied Plan', ' '.join(self.operator.messages()))
        self.assertIn(self.cache.get_plan(applied).state,
                      ('current', 'superseded'))
        cancelled = self.propose()
        self.operator.open(_PLANS)
        self.operator.act('plans', cancelled, 'cancel')
        self.operator.confirm()
        self.assertEqual('cancelled', self.cache.get_plan(cancelled).state)

    def test_a_precache_job_makes_progress_and_is_cancelled(self):
        # Jobs of earlier runs stay in the list.
        name = f'Images for the sale {uuid.uuid4().hex[:4]}'
        self.operator.open(_JOBS)
        self.page.click('#jobs__action_create')
        self.page.fill('.modal.in [name=name]', name)
        for image in 'debian-12-web', 'debian-12-web-database':
            self.operator.tick('images', self.images[image])
        for host in self.trial.hosts[:2]:
            self.operator.tick('hosts', host)
        self.operator.check('job-create')
        self.operator.submit()
        # The row is updated without loading the page again.
        row = self.operator.row('jobs', name)
        job = row.get_attribute('data-object-id')
        self.addCleanup(self.cache.cancel_precache_job, job)
        self.page.evaluate('window.isTheSame = true')
        row.get_by_text('Ready', exact=True).wait_for(timeout=180_000)
        self.assertTrue(self.page.evaluate('window.isTheSame'))
        self.operator.check('jobs-ready')
        self.operator.open(f'{_JOBS}{job}/')
        self.operator.check('job-overview')
        self.operator.open(f'{_JOBS}{job}/?tab=job__targets')
        self.assertEqual(4, self.page.locator(
            'table#targets tbody tr').count())
        self.operator.check('job-targets')
        self.operator.open(_JOBS)
        self.operator.act('jobs', job, 'cancel')
        self.operator.confirm()
        self.assertEqual('cancelled',
                         self.cache.get_precache_job(job).state)

    def test_pages_in_german(self):
        visitor = self.visitor('admin', locale='de-DE')
        visitor.open(_PLANS)
        self.assertIn('Plan berechnen',
                      visitor.texts('#plans__action_create'))
        visitor.check('plans-de')

    def tab_to(self, wanted):
        """Press the tabulator until an element has the focus."""
        for _ in range(_MOST_KEYS):
            if self.page.evaluate(_FOCUS) == wanted:
                return
            self.page.keyboard.press('Tab')
        self.fail(f'the tabulator does not lead to {wanted}')

    def test_actions_by_the_keyboard_alone(self):
        proposal = self.propose()
        self.operator.open(_PLANS)
        self.tab_to('plans__action_create')
        self.page.keyboard.press('Enter')
        self.page.wait_for_selector('.modal.in form')
        self.page.keyboard.press('Escape')
        self.operator.open(_PLANS)
        self.tab_to(f'plans__row_{proposal}__action_apply')
        # The menu with the other actions is next.
        self.page.keyboard.press('Tab')
        self.page.keyboard.press('Enter')
        self.tab_to(f'plans__row_{proposal}__action_cancel')
        self.page.keyboard.press('Enter')
        confirm = self.page.locator(
            '.modal.in .modal-footer a.btn:not(.cancel)')
        confirm.wait_for()
        for _ in range(_MOST_KEYS):
            if confirm.evaluate('each => each === document.activeElement'):
                break
            self.page.keyboard.press('Tab')
        self.page.keyboard.press('Enter')
        self.wait_until(lambda: self.cache.get_plan(proposal).state !=
                        'proposed', 'the plan is no proposal any more')
        self.assertEqual('cancelled', self.cache.get_plan(proposal).state)


class TestProject(sample.SampleTest):

    def menu(self, visitor):
        """The addresses in a user's menu that are this suite's."""
        return visitor.page.locator('#sidebar a[href*=image_cache]').count()

    def row(self, name):
        """The row of a version, and its version."""
        version = next(each for each in self.member_cache.server_versions(
            server_id=self.web) if each.name == name)
        return version.id

    def ended(self, kind):
        """Wait until the latest task of a kind has ended well."""
        def task():
            found = next(iter(self.member_cache.version_tasks(
                server_id=self.web, kind=kind)), None)
            return found if found and found.state not in (
                'queued', 'running') else None

        found = self.wait_until(task, f'a task {kind} has ended')
        self.assertEqual('done', found.state, found.error)
        return found

    def test_a_member_saves_protects_compares_and_exports(self):
        member = self.visitor(sample.MEMBER)
        page = member.page
        self.assertEqual(0, self.menu(member))
        member.open(self.versions_path)
        member.check('versions')
        page.click('#versions__action_save')
        page.fill('.modal.in [name=name]', 'nightly')
        member.check('version-save')
        member.submit()
        page.evaluate('window.isTheSame = true')
        row = member.row('versions', 'nightly')
        row.get_by_text('Available', exact=True).wait_for(timeout=180_000)
        self.assertTrue(page.evaluate('window.isTheSame'))
        version = self.row('nightly')
        for action, label, offers_deletion in (
                ('protect', 'Protected Version', False),
                ('unprotect', 'Unprotected Version', True)):
            member.open(self.versions_path)
            member.act_at_once('versions', version, action)
            self.assertIn(label, ' '.join(member.messages()))
            self.assertEqual(
                offers_deletion, 'Delete Version' in member.offered(
                    f'[id="versions__row__{version}"]'))
        member.act('versions', version, 'compare')
        page.wait_for_selector('.modal.in form')
        member.choose('against', self.row('before-upgrade'))
        member.check('version-compare')
        member.submit()
        self.ended('diff')
        member.open(self.versions_path)
        member.act('versions', version, 'export')
        page.fill('.modal.in [name=name]', 'web-1-nightly')
        member.check('version-export')
        member.submit()
        self.ended('export')
        member.open(self.versions_path)
        self.assertIn('differ', ' '.join(member.texts('table#tasks')))
        self.assertNotIn('Export as Image', member.offered(
            f'[id="versions__row__{version}"]'))
        member.act('versions', version, 'launch')
        page.wait_for_selector('wizard')
        page.locator('wizard .nav-item a', has_text='Metadata').click()
        page.locator('wizard').get_by_text(
            'Boot from the image cache').first.wait_for()
        member.keep('version-launch')
        self.delete(member, version)

    def delete(self, member, version):
        """Delete a version on the page, and the image made of it."""
        image = self.member_cache.get_server_version(version).image_id
        self.trial.admin.image.delete_image(image)
        member.open(self.versions_path)
        member.act('versions', version, 'delete')
        member.confirm()
        self.ended('forget')
        self.assertNotIn(version, {
            each.id for each in self.member_cache.server_versions(
                server_id=self.web)})

    def test_a_member_sets_and_removes_the_policy(self):
        member = self.visitor(sample.MEMBER)
        member.open(self.versions_path)
        member.page.click('#versions__action_policy')
        member.page.fill('.modal.in [name=every]', '6h')
        member.page.fill('.modal.in [name=keep_last]', '50')
        member.check('version-policy')
        member.submit()
        [policy] = self.member_cache.version_policies(server_id=self.web)
        self.assertEqual((21600, 50), (policy.every, policy.keep_last))
        member.open(self.versions_path)
        member.page.click('#versions__action_policy')
        self.assertEqual('6h', member.page.input_value(
            '.modal.in [name=every]'))
        member.page.click('.modal.in label[for=id_is_removed]')
        member.submit()
        self.assertEqual([], list(self.member_cache.version_policies(
            server_id=self.web)))

    def test_a_member_rolls_back_after_a_check(self):
        compute = self.trial.admin.compute
        compute.stop_server(self.web)
        compute.wait_for_server(compute.get_server(self.web), 'SHUTOFF',
                                wait=300)
        member = self.visitor(sample.MEMBER)
        member.open(self.versions_path)
        member.act('versions', self.row('before-upgrade'), 'restore')
        # The page shows the check until it is done, and then the form.
        member.page.wait_for_selector('[name=method]', state='attached',
                                      timeout=180_000)
        member.check('version-restore')
        written = self.ended('restore')
        self.assertTrue(written.result['dry_run'])
        member.submit()
        self.wait_until(lambda: next(iter(self.member_cache.version_tasks(
            server_id=self.web, kind='restore'))).id != written.id,
            'a rollback has started')
        self.assertNotIn('dry_run', {
            name for name, value in self.ended('restore').result.items()
            if value})

    def test_a_reader_sees_and_changes_nothing(self):
        reader = self.visitor(sample.READER)
        self.assertEqual(0, self.menu(reader))
        reader.open(self.versions_path)
        self.assertIn('before-upgrade',
                      ' '.join(reader.texts('table#versions')))
        self.assertEqual([], reader.offered('table#versions'))
        self.assertEqual([], reader.offered('table#tasks'))
        reader.check('versions-of-a-reader')
        for form in 'save', 'policy':
            response = reader.open(
                f'/project/image_cache_versions/{self.web}/{form}/')
            self.assertEqual(403, response.status)

    def test_operators_pages_are_refused_to_others(self):
        for name in sample.MEMBER, sample.READER:
            visitor = self.visitor(name)
            for path in _OPERATORS:
                self.assertEqual(403, visitor.open(path).status)
