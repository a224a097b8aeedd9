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
"""How Sphinx builds the documentation."""

project = 'DiffCache for OpenStack'
copyright = '2026, DiffCache for OpenStack developers'

extensions = [
    'cliff.sphinxext',
    'openstackdocstheme',
    'oslo_config.sphinxext',
]

root_doc = 'index'
exclude_patterns = []
show_authors = False
pygments_style = 'native'

html_theme = 'openstackdocs'
html_title = project
# The theme would ask git for a remote repository and a bug tracker.
openstackdocs_auto_name = False
openstackdocs_use_storyboard = False
openstackdocs_pdf_link = False
html_theme_options = {
    'display_badge': False,
    'display_global_toc_section': True,
    'sidebar_mode': 'toctree',
}

autoprogram_cliff_application = 'diffcache'

# (document, name, description, authors, section)
man_pages = [
    (f'man/{name}', name, description, '', section)
    for name, section, description in (
        ('diffcache', 1, 'work with disk images, patches, cache placement and'
                         ' versions as files'),
        ('diffcache-manage', 1, 'administer DiffCache for OpenStack'),
        ('diffcache-status', 1, 'check whether an upgrade is possible'),
        ('diffcache-agent', 8, 'cache and build images on a host, or serve'
                               ' them at a repository'),
        ('diffcache-api', 8, 'answer the REST API'),
        ('diffcache-conductor', 8, 'keep the catalogue of images, and plan'
                                   ' what hosts hold'),
        ('diffcache-lazy', 8, 'serve images while they arrive'),
        ('diffcache-ssdcache', 8, 'cache volumes on the SSD of a compute'
                                  ' host'),
        ('diffcache-ssdcached', 8, 'serve volumes behind a cache on an SSD'),
        ('diffcached', 8, 'serve images over FUSE'))]
