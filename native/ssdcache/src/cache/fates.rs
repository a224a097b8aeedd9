//! What becomes of the volumes that a device knows, when it is opened.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::attachment::Attachment;
use super::origin::held;
use crate::device::format::{Kept, Leaving, VolumeRecord};
use crate::device::{Device, DirtyEntries};

/// What becomes of a record at a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// There is none.
    Free,
    /// Its attachment stays.
    Stays,
    /// Its attachment stays, with this size: the origin became larger, and dirty blocks are of the
    /// size that it had.
    StaysSmaller,
    /// Its attachment ends.
    Ends,
    /// It has dirty blocks, and its attachment cannot stay for this reason.
    Held(String),
}

/// Leaves out what a record, and nothing else, has attached at a start, and whose end has begun.
pub(super) fn leave_out_detached(
    known: &[Option<VolumeRecord>],
    attachments: &mut Vec<Attachment>,
) {
    let ended = known
        .iter()
        .flatten()
        .filter(|old| old.leaving == Leaving::Volume);
    let ended: HashSet<&str> = ended.map(|old| old.name.as_str()).collect();
    attachments.retain(|a| a.kept.is_none() || !ended.contains(a.name.as_str()));
}

/// Decides what becomes of each record.
pub(super) fn fates(
    device: &Device,
    known: &[Option<VolumeRecord>],
    attachments: &[Attachment],
    dirty: &DirtyEntries,
) -> Vec<Fate> {
    let mut counts = vec![0; known.len()];
    for (record, _) in dirty.newest.keys() {
        counts[usize::from(*record)] += 1;
    }
    let fate = |(record, known): (u16, &Option<VolumeRecord>)| {
        let Some(old) = known else {
            return Fate::Free;
        };
        if old.leaving != Leaving::Nothing {
            return Fate::Ends;
        }
        let count = counts[usize::from(record)];
        if let Some(damaged) = dirty.damaged.get(&record) {
            let damaged = damaged.len();
            return Fate::Held(format!("{damaged} entries of its dirty blocks are damaged"));
        }
        let found = attachments.iter().find(|a| a.name == old.name);
        match why_it_ends(device, old, found) {
            Ok(Ordering::Greater) if count > 0 => Fate::StaysSmaller,
            Ok(Ordering::Equal) => Fate::Stays,
            Ok(_) if count == 0 => Fate::Ends,
            Ok(_) => Fate::Held(held_for("its origin has another size", count)),
            Err(reason) if count > 0 => Fate::Held(held_for(&reason, count)),
            Err(_) => Fate::Ends,
        }
    };
    (0..).zip(known).map(fate).collect()
}

fn held_for(reason: &str, dirty: u32) -> String {
    format!("it has {dirty} dirty blocks, but {reason}")
}

/// Why the attachment of a record ends; if it does not, whether its origin is larger than it was.
fn why_it_ends(
    device: &Device,
    old: &VolumeRecord,
    found: Option<&Attachment>,
) -> Result<Ordering, String> {
    let found = found.ok_or("it is not attached now")?;
    if device.is_foreign() {
        return Err("another host wrote them".into());
    }
    let was_held = |kept: &Kept| held::is_held(&kept.origin);
    if found.held.is_none() && old.kept.as_ref().is_some_and(was_held) {
        return Err("it was held before".into());
    }
    if found.origin_id != old.origin {
        return Err("its origin is another file or device".into());
    }
    let size = found.origin.size().map_err(|error| error.to_string())?;
    Ok(size.cmp(&old.size))
}

/// Has attachments end, and dirty blocks be lost, rather than be held.
pub(super) fn discard(fates: &mut [Fate], dirty: &mut DirtyEntries) {
    for fate in fates.iter_mut() {
        if matches!(fate, Fate::Held(_)) {
            *fate = Fate::Ends;
        }
    }
    let stays = |record: &u16| {
        matches!(
            fates[usize::from(*record)],
            Fate::Stays | Fate::StaysSmaller
        )
    };
    dirty.newest.retain(|(record, _), _| stays(record));
    dirty.damaged.clear();
}

/// Replaces attachments by such that are held.
pub(super) fn hold(
    known: &[Option<VolumeRecord>],
    fates: &[Fate],
    mut attachments: Vec<Attachment>,
) -> Vec<Attachment> {
    for (old, fate) in known.iter().zip(fates) {
        let (Some(old), Fate::Held(reason)) = (old, fate) else {
            continue;
        };
        log::warn!("Volume {}: held, {reason}", old.name);
        attachments.retain(|attachment| attachment.name != old.name);
        attachments.push(Attachment::held(old, reason));
    }
    attachments
}

/// The sizes of volumes that are served as they were before their origins became larger.
pub(super) fn smaller(known: &[Option<VolumeRecord>], fates: &[Fate]) -> HashMap<String, u64> {
    let pairs = known.iter().zip(fates);
    let pairs = pairs.filter(|(_, fate)| **fate == Fate::StaysSmaller);
    let old = pairs.filter_map(|(old, _)| old.as_ref());
    old.map(|old| (old.name.clone(), old.size)).collect()
}
