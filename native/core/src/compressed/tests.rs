//! Tests of compressed forms.

use std::fs;

use super::*;
use crate::leaf::LEAF_LEN;
use crate::source::FileSource;
use crate::task::Task;
use proptest::prelude::*;

struct Made {
    directory: tempfile::TempDir,
    content: Vec<u8>,
    manifest: Manifest,
    form: Vec<u8>,
}

fn make(content: Vec<u8>) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("content");
    fs::write(&path, &content).unwrap();
    let source = FileSource::open(&path).unwrap();
    let manifest = Manifest::from_source(&source, &Task::default()).unwrap();
    let form = directory.path().join("form");
    let made = create(&path, &manifest, &form, 3, &Task::default()).unwrap();
    let form = fs::read(form).unwrap();
    assert_eq!(made.bytes, form.len() as u64);
    Made {
        directory,
        content,
        manifest,
        form,
    }
}

impl Made {
    fn index(&self) -> Result<Index, CompressedError> {
        let end = (Index::length(&self.manifest) as usize).min(self.form.len());
        Index::parse(&self.form[..end], self.form.len() as u64, &self.manifest)
    }

    fn restored(&self) -> Result<Vec<u8>, CompressedError> {
        let mut all = vec![0; self.content.len()];
        let (mut decoder, mut raw) = (Decoder::new(), Vec::new());
        for frame in self.index()?.frames() {
            let at = frame.offset as usize;
            decoder.decode(frame, &self.form[at..at + frame.length], &mut raw)?;
            let mut done = 0;
            for (leaf, length) in data_leaves(&self.manifest, frame.group) {
                let place = leaf as usize * LEAF_LEN;
                all[place..place + length].copy_from_slice(&raw[done..done + length]);
                done += length;
            }
        }
        Ok(all)
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(step).collect()
}

/// Leaves of text, of noise and of zeroes, and a last one that is cut.
fn image(kinds: &[u8], last: usize) -> Vec<u8> {
    let mut image = Vec::new();
    for kind in kinds {
        image.extend(match kind {
            0 => vec![0; LEAF_LEN],
            1 => noise(LEAF_LEN),
            _ => b"configuration=default\n".repeat(3000)[..LEAF_LEN].to_vec(),
        });
    }
    image.extend(&noise(last));
    image
}

/// Regression, found by the fuzz target: a frame that is not compressed ended the process.
#[test]
fn bytes_of_another_length_are_no_frame() {
    for kind in 0..3 {
        let made = make(image(&[kind; 16], LEAF_LEN));
        let index = made.index().unwrap();
        let (frame, mut raw) = (&index.frames()[0], Vec::new());
        for length in [0, frame.length - 1, frame.length + 1] {
            let decoded = Decoder::new().decode(frame, &vec![7; length], &mut raw);
            assert!(
                matches!(decoded, Err(CompressedError::Format(_))),
                "{length}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn frames_are_decompressed_as_they_arrive(
        kinds in prop::collection::vec(0u8..3, 0..40), last in 1usize..LEAF_LEN,
        steps in prop::collection::vec(1usize..90_000, 1..30),
    ) {
        let made = make(image(&kinds, last));
        for frame in made.index().unwrap().frames() {
            let at = frame.offset as usize;
            let bytes = &made.form[at..at + frame.length];
            let mut whole = Vec::new();
            Decoder::new().decode(frame, bytes, &mut whole).unwrap();
            let mut arriving = Arriving::new(frame).unwrap();
            let mut come = 0;
            for step in steps.iter().cycle() {
                come = (come + step).min(bytes.len());
                let raw = arriving.extend(&bytes[..come]);
                prop_assert_eq!(raw, &whole[..raw.len()]);
                if come == bytes.len() {
                    break;
                }
            }
            // What begins anew changes nothing.
            prop_assert_eq!(arriving.extend(&bytes[..1]), &whole[..]);
        }
    }

    #[test]
    fn a_damaged_frame_that_arrives_is_no_more_than_wrong(
        kinds in prop::collection::vec(1u8..3, 1..16),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
        step in 1usize..90_000,
    ) {
        let mut made = make(image(&kinds, 1));
        let index = made.index().unwrap();
        let frame = &index.frames()[0];
        let at = frame.offset as usize;
        let bytes = &mut made.form[at..at + frame.length];
        for (place, value) in damage {
            bytes[place.index(frame.length)] = value;
        }
        let mut arriving = Arriving::new(frame).unwrap();
        for come in (0..bytes.len()).step_by(step) {
            prop_assert!(arriving.extend(&bytes[..come]).len() <= frame.raw);
        }
        prop_assert!(arriving.extend(bytes).len() <= frame.raw);
    }

    #[test]
    fn what_is_compressed_comes_back(
        kinds in prop::collection::vec(0u8..3, 0..50),
        last in 0usize..LEAF_LEN,
    ) {
        let made = make(image(&kinds, last));
        prop_assert_eq!(&made.restored().unwrap(), &made.content);
    }

    #[test]
    fn a_damaged_form_is_refused_or_harmless(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut made = make(image(&[2, 1, 0, 2, 2], 100));
        let at = at.index(made.form.len());
        made.form[at] ^= 1 << bit;
        // Leaves are verified against the manifest by the receiver; here only the length counts.
        if let Ok(restored) = made.restored() {
            prop_assert_eq!(restored.len(), made.content.len());
        }
    }
}

#[test]
fn zeroes_take_nothing_and_noise_is_stored() {
    let made = make(image(&[0; 40], 0));
    assert_eq!(made.form.len(), HEADER_LEN);
    let made = make(noise(16 * LEAF_LEN));
    assert_eq!(made.form.len(), HEADER_LEN + 4 + 16 * LEAF_LEN);
}

#[test]
fn a_leaf_is_found_in_its_frame() {
    let mut kinds = vec![2; 16];
    kinds.extend([0; 16]);
    kinds.extend([2; 3]);
    let made = make(image(&kinds, 0));
    let index = made.index().unwrap();
    assert_eq!(index.frame_of(15).unwrap().group, 0);
    assert!(index.frame_of(16).is_none());
    assert_eq!(index.frame_of(34).unwrap().group, 2);
    assert!(index.frame_of(1 << 40).is_none());
}

#[test]
fn forms_of_other_content_are_refused() {
    let (one, two) = (make(image(&[2], 0)), make(image(&[1], 0)));
    let total = one.form.len() as u64;
    let end = Index::length(&one.manifest) as usize;
    let refused = Index::parse(&one.form[..end], total, &two.manifest).unwrap_err();
    assert!(refused.to_string().contains("other content"), "{refused}");
    assert!(Index::parse(&one.form[..end], total + 1, &one.manifest).is_err());
    assert!(Index::parse(&one.form[..end - 1], total, &one.manifest).is_err());
    assert!(Index::parse(&[], 0, &one.manifest).is_err());
}

#[test]
fn content_that_differs_from_its_manifest_is_not_compressed() {
    let made = make(image(&[2, 2], 0));
    let path = made.directory.path().join("content");
    let mut content = made.content.clone();
    content[LEAF_LEN] ^= 1;
    fs::write(&path, content).unwrap();
    let form = made.directory.path().join("other");
    let error = create(&path, &made.manifest, &form, 3, &Task::default()).unwrap_err();
    assert!(
        matches!(error, CompressedError::Leaf { leaf: 1 }),
        "{error}"
    );
    assert!(!form.exists());
}

#[test]
fn a_form_in_a_file_is_verified() {
    let made = make(image(&[2, 1, 0, 2], 9));
    let form = made.directory.path().join("form");
    open(&form, &made.manifest).unwrap();
    verify(
        &FileSource::open(&form).unwrap(),
        &made.manifest,
        &Task::default(),
    )
    .unwrap();
    let other = make(image(&[2, 1, 0, 2], 8));
    assert!(open(&form, &other.manifest).is_err());
    let mut bytes = made.form.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&form, bytes).unwrap();
    open(&form, &made.manifest).unwrap();
    assert!(verify(
        &FileSource::open(&form).unwrap(),
        &made.manifest,
        &Task::default()
    )
    .is_err());
    fs::write(&form, b"").unwrap();
    assert!(open(&form, &made.manifest).is_err());
}

#[test]
fn a_form_of_another_version_is_refused_by_its_name_and_number() {
    let mut made = make(vec![7; LEAF_LEN]);
    made.form[8] += 1;
    let path = made.directory.path().join("later");
    fs::write(&path, &made.form).unwrap();
    let message = open(&path, &made.manifest)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with(&format!("{}: version 2 ", path.display())),
        "{message}"
    );
    let message = made.index().map(drop).unwrap_err().to_string();
    assert!(
        message.contains(&made.manifest.content_id_hex()),
        "{message}"
    );
}
