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
"""Sketches of active contents, and the search for similar ones.

There is a row for each content of an active image. Its repository is asked for
a sketch, whose keys make it a neighbour of similar ones in an index of the
database: a search is one statement that reads a bounded number of rows.
"""

import collections.abc
import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.blocks import similarity
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack import objects

NEW = 'new'
DUE = 'due'
KNOWN = 'known'

# Neighbours of an image that are read in each tree, in each direction.
_NEIGHBOURS = 8
# Most similar images that are taken from the index, and from the catalogue.
MOST_SIMILAR = 16
_MOST_RELATED = 8
_RETRY = datetime.timedelta(hours=1)


def follow_content(session: orm.Session, content_id: str,
                   family_changed: bool = False) -> bool:
    """Expect a sketch of a content exactly if an active image has it.

    :param family_changed: what else is related to it may have changed
    :returns: whether the content was withdrawn from the index
    """
    active = session.scalar(sa.select(models.Image.id).where(
        models.Image.content_id == content_id,
        models.Image.status == objects.ACTIVE).limit(1)) is not None
    row = find(session, content_id)
    if active and row is None:
        size = session.scalar(sa.select(sa.func.max(
            models.Image.data_size)).where(
            models.Image.content_id == content_id))
        session.add(models.Sketch(content_id=content_id, state=NEW,
                                  data_size=size))
        session.flush()
    elif row is not None and active:
        if row.state == KNOWN and family_changed:
            row.state = DUE
    elif row is not None:
        session.execute(sa.delete(models.SketchKey).where(
            models.SketchKey.sketch_id == row.id))
        session.delete(row)
        session.flush()
        return True
    return False


def find(session: orm.Session, content_id: str) -> models.Sketch | None:
    """Return the row of a content."""
    return session.scalar(sa.select(models.Sketch).where(
        models.Sketch.content_id == content_id))


def unsketched(session: orm.Session, host_id: int, now: datetime.datetime,
               limit: int) -> list[str]:
    """List contents on a host that have no sketch yet."""
    return list(session.scalars(
        sa.select(models.Sketch.content_id).where(
            models.Sketch.state == NEW,
            held_rows.is_held(host_id, models.Sketch.content_id),
            sa.or_(models.Sketch.retry_at.is_(None),
                   models.Sketch.retry_at <= now))
        .order_by(models.Sketch.id).limit(limit)))


def put_sketches(session: orm.Session,
                 sketches: collections.abc.Sequence[objects.ImageSketch],
                 now: datetime.datetime) -> None:
    """Store the keys of sketches; what is similar is searched for later."""
    wanted = {sketch.content_id: sketch for sketch in sketches}
    rows = session.scalars(sa.select(models.Sketch).where(
        models.Sketch.content_id.in_(wanted))).all()
    session.execute(sa.delete(models.SketchKey).where(
        models.SketchKey.sketch_id.in_([row.id for row in rows])))
    for row in rows:
        sketch = wanted[row.content_id]
        if sketch.signature is None:
            row.state, row.retry_at = NEW, now + _RETRY
            continue
        row.state, row.data_size = DUE, sketch.data_size or row.data_size
        session.add_all(
            models.SketchKey(tree=tree, label=label, sketch_id=row.id)
            for tree, label in enumerate(similarity.keys(sketch.signature)))
    session.flush()


def due(session: orm.Session, limit: int) -> list[models.Sketch]:
    """List rows for which similar contents have to be searched."""
    return list(session.scalars(
        sa.select(models.Sketch).where(models.Sketch.state == DUE)
        .order_by(models.Sketch.id).limit(limit)))


def search_again(session: orm.Session,
                 contents: collections.abc.Collection[str]) -> None:
    """Have other bases searched for contents."""
    session.execute(
        sa.update(models.Sketch).where(
            models.Sketch.content_id.in_(contents),
            models.Sketch.state == KNOWN)
        .values(state=DUE).execution_options(synchronize_session=False))


def similar(session: orm.Session, row: models.Sketch) -> dict[str, int]:
    """Return the contents that resemble one, with a score.

    Images that the catalogue relates to it come first: those of its family,
    and the one it was built from.
    """
    found = {content: similarity.MOST_LIKENESS
             for content in _related(session, row.content_id)}
    for content, score in _neighbours(session, row).items():
        found.setdefault(content, score)
    return found


def _neighbours(session, row):
    labels: dict[int, str] = {
        tree: label for tree, label in session.execute(
            sa.select(models.SketchKey.tree, models.SketchKey.label)
            .where(models.SketchKey.sketch_id == row.id))}
    if len(labels) != similarity.TREES:
        return {}
    keys = [labels[tree] for tree in range(similarity.TREES)]
    scores = similarity.likeness(keys, (
        (tree, label, number) for tree, label, number in session.execute(
            _SEARCH, {f'label_{tree}': key for tree, key in enumerate(keys)})
        if number != row.id))
    best = dict(scores.most_common(MOST_SIMILAR))
    return {content: best[number] for number, content in session.execute(
        sa.select(models.Sketch.id, models.Sketch.content_id).where(
            models.Sketch.id.in_(best)))}


def _neighbour_query(tree: int, upwards: bool) -> sa.Select:
    """Return the query of the neighbours in a tree, in one direction.

    Of those with the same key, the oldest in one direction and the newest in
    the other.
    """
    table = models.SketchKey
    wanted = sa.bindparam(f'label_{tree}', type_=sa.String)
    if upwards:
        query = sa.select(table).where(table.label >= wanted).order_by(
            table.label, table.sketch_id)
    else:
        query = sa.select(table).where(table.label <= wanted).order_by(
            table.label.desc(), table.sketch_id.desc())
    # The number of the tree is no parameter, so that it is in the statement
    # that is compiled once.
    found = query.where(table.tree == sa.literal_column(str(tree))).limit(
        sa.literal_column(str(_NEIGHBOURS))).subquery()
    return sa.select(found.c.tree, found.c.label, found.c.sketch_id)


_SEARCH = sa.union_all(*(
    _neighbour_query(tree, upwards) for tree in range(similarity.TREES)
    for upwards in (True, False)))


def _related(session, content_id):
    own = session.execute(
        sa.select(models.Image.id, models.Image.family).where(
            models.Image.content_id == content_id,
            models.Image.status == objects.ACTIVE)
        .limit(_MOST_RELATED)).all()
    origins = [row.family for row in own if row.family]
    family = [*origins, *(row.id for row in own)]
    query = sa.select(models.Image.content_id).where(
        models.Image.status == objects.ACTIVE,
        models.Image.content_id != content_id)
    found = [*session.scalars(query.where(models.Image.id.in_(origins))
                              .limit(_MOST_RELATED)),
             *session.scalars(query.where(models.Image.family.in_(family))
                              .order_by(models.Image.created_at.desc())
                              .limit(_MOST_RELATED))]
    return found[:_MOST_RELATED]
