/*
 * Licensed under the Apache License, Version 2.0 (the "License"); you may
 * not use this file except in compliance with the License. You may obtain
 * a copy of the License at
 *
 *    http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
 * WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
 * License for the specific language governing permissions and limitations
 * under the License.
 */

(function () {
  'use strict';

  /** The step "Image Cache" of Horizon's form that launches an instance. */
  angular
    .module('horizon.app.image-cache.launch', [
      'horizon.app.core.openstack-service-api',
      'horizon.dashboard.project.workflow.launch-instance'
    ])
    .config(decorate)
    .value('horizon.app.image-cache.launch.choices', {})
    .controller('ImageCacheLaunchController', LaunchController)
    .controller('ImageCacheLaunchHelpController', LaunchHelpController);

  decorate.$inject = ['$provide'];

  /**
   * Extend the form when it is first used. Its services ask Horizon for what the user
   * may do, which sends who has not logged in to the login page again.
   */
  function decorate($provide) {
    $provide.decorator('horizon.dashboard.project.workflow.launch-instance.workflow', withStep);
    $provide.decorator('horizon.app.core.openstack-service-api.nova', withChoices);
  }

  withStep.$inject = [
    '$delegate',
    '$window',
    'horizon.app.core.openstack-service-api.serviceCatalog'
  ];

  function withStep(workflow, $window, catalog) {
    var folder = $window.STATIC_URL + 'image_cache/launch/';

    workflow.after('flavor', {
      id: 'imageCache',
      title: gettext('Image Cache'),
      templateUrl: folder + 'launch.html',
      helpUrl: folder + 'help.html',
      formName: 'imageCacheLaunchForm',
      // Horizon looks at the catalogue only for steps of its own.
      checkReadiness: function checkReadiness() {
        return catalog.ifTypeEnabled('diffcache').then(yes, no);
      }
    });
    return workflow;
  }

  function yes() {
    return true;
  }

  function no() {
    return false;
  }

  withChoices.$inject = ['$delegate', 'horizon.app.image-cache.launch.choices'];

  function withChoices(nova, choices) {
    var create = nova.createServer;

    nova.createServer = function createServer(spec) {
      return create(withHints(withMetadata(spec, choices), choices));
    };
    return nova;
  }

  /** Metadata that Nova's driver reads: seconds, and bytes per second. */
  function withMetadata(spec, choices) {
    var found = {};

    if (choices.bootMode) {
      found['diffcache:boot_mode'] = choices.bootMode;
    }
    if (choices.bootMode !== 'full') {
      addText(found, 'diffcache:profile', choices.profile);
      addText(found, 'diffcache:hydrate_by', Math.round(60 * choices.minutes));
      addText(found, 'diffcache:hydrate_rate', Math.round(1e6 * choices.rate));
    }
    return angular.equals(found, {}) ? spec
      : angular.extend({}, spec, {meta: angular.extend({}, spec.meta, found)});
  }

  function addText(target, key, value) {
    if (value) {
      target[key] = String(value);
    }
  }

  /** Hints that the weigher of Nova's scheduler reads, which gets no metadata. */
  function withHints(spec, choices) {
    var found = {};

    addText(found, 'diffcache:prefer_cached', choices.preferCached && 'true');
    addText(found, 'diffcache:boot_mode', choices.bootMode);
    return angular.equals(found, {}) ? spec : angular.extend({}, spec, {
      scheduler_hints: angular.extend({}, spec.scheduler_hints, found)
    });
  }

  LaunchController.$inject = ['horizon.app.image-cache.launch.choices'];

  function LaunchController(choices) {
    var ctrl = this;

    // The form was opened anew.
    Object.keys(choices).forEach(function forget(name) {
      delete choices[name];
    });
    choices.bootMode = '';
    ctrl.choices = choices;
    // What the API takes as the label of a profile.
    ctrl.label = /^[A-Za-z0-9 ._:@+-]*$/;
    ctrl.bootModes = [
      {value: '', label: gettext('As the flavor or the image says')},
      {value: 'full', label: gettext('Full: start when the image is on the host')},
      {value: 'lazy', label: gettext('Lazy: start while the image arrives')}
    ];
    ctrl.text = {
      intro: gettext('How the image comes to the host of the instance.'),
      preferCached: gettext('Prefer hosts that hold the image or can build it fastest'),
      bootMode: gettext('Boot Mode'),
      minutes: gettext('Have It Whole Within (Minutes)'),
      minutesHelp: gettext('From the boot; empty: while no read waits, without a deadline.'),
      rate: gettext('Fetch at Most (MB per Second)'),
      rateHelp: gettext('Besides what the guest reads; empty: no limit.'),
      profile: gettext('Boot Profile'),
      profileHelp: gettext('Its label; empty: the name of the flavor.')
    };
  }

  function LaunchHelpController() {
    this.paragraphs = [
      gettext('A full boot starts the instance when its whole image is on the host. A lazy' +
        ' boot starts it at once, and fetches what the guest reads before the rest.'),
      gettext('Until its image is whole, an instance that boots lazily waits when a part' +
        ' cannot be fetched. Its page shows how far the image is, under Image Arrival.'),
      gettext('A boot profile is what instances read when they boot. What this one reads is' +
        ' added to the profile, so that the next ones boot faster.')
    ];
  }
})();
