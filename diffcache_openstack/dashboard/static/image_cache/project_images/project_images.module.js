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

  /** The tab "Image Cache" of Horizon's page of an image. */
  angular
    .module('horizon.app.image-cache', ['horizon.app.core.images.details'])
    .run(addDetailsView)
    .controller('ImageCacheProjectImageController', ProjectImageController);

  addDetailsView.$inject = [
    '$window',
    'horizon.app.core.images.resourceType',
    'horizon.framework.conf.resource-type-registry.service'
  ];

  function addDetailsView($window, imageResourceType, registry) {
    registry.getResourceType(imageResourceType).detailsViews.append({
      id: 'imageCacheDetails',
      name: gettext('Image Cache'),
      template: $window.STATIC_URL + 'image_cache/project_images/details.html'
    });
  }

  ProjectImageController.$inject = ['$scope', '$window'];

  function ProjectImageController($scope, $window) {
    var ctrl = this;

    $scope.context.loadPromise.then(function onImage(image) {
      // Angular keeps what it has read from an address.
      ctrl.address = $window.WEBROOT + 'project/image_cache_project_images/' +
        encodeURIComponent(image.data.id) + '/?at=' + Date.now();
    });
  }
})();
