//! The journal of a save: its progress, so that the same save resumes after its process was killed.
//!
//! While a long save reads a disk, it records from time to time its position, what it has found, and where the new blocks are in the packs,
//! or in the spool, that it has started. A resumed save checks that it is the same save and that packs and spool have what was recorded, and
//! continues at that position. A journal that is torn ends with its last whole record; one of another save is started anew.
//! Where frames are sealed, records are too: they have blocks that are in no frame yet. It is no part of the store.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use crate::error::{Result, VersionsError};
use crate::save::scan_state::{Counts, ScanState};
use crate::store::codec::Cursor;
use crate::store::crypt::{Cipher, Name, NAME_LEN};
use crate::store::frames::frame_check;
use crate::store::nodes::{BlockRef, Run};
use crate::store::pack_index::CHECK_LEN;
use crate::store::pack_set::{Packed, Unpacked};

const MAGIC: &[u8; 8] = b"DCVSAVE1";
const KEY_LEN: usize = 32;
const HEADER: usize = MAGIC.len() + KEY_LEN;

/// What an interrupted save had done.
#[derive(Default)]
pub struct Interrupted {
    /// What it had found.
    pub state: ScanState,
    /// The frames that it had written, in order. Of a spool, which has none, the names of the blocks in it.
    pub frames: Vec<Packed>,
    /// What was to become the next frames.
    pub rest: Unpacked,
}

/// A journal that is being written.
pub struct Journal {
    file: File,
    name: String,
    cipher: Cipher,
    /// Runs that were written down, of which the last may have grown since.
    runs: usize,
}

impl Journal {
    /// Opens the journal at a place, or begins it anew. `key` identifies the save. Returns also what an interrupted save had done.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(
        path: &Path,
        key: &[u8; KEY_LEN],
        block_size: u32,
        cipher: &Cipher,
    ) -> Result<(Self, Option<Interrupted>)> {
        let name = path.display().to_string();
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(VersionsError::io(&name))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(VersionsError::io(&name))?;
        let mut journal = Self {
            file,
            name,
            cipher: cipher.clone(),
            runs: 0,
        };
        let ours = bytes.starts_with(MAGIC) && bytes[MAGIC.len()..].starts_with(key);
        let (end, left) = match ours {
            true => whole_records(&bytes, block_size, cipher),
            false => (0, None),
        };
        journal.cut(end as u64)?;
        match &left {
            Some(left) => journal.runs = left.state.runs.len(),
            None => journal.begin(key)?,
        }
        Ok((journal, left))
    }

    /// Forgets what was written down: it cannot be relied on.
    ///
    /// # Errors
    /// `Io`.
    pub fn forget(&mut self) -> Result<()> {
        self.runs = 0;
        self.cut(HEADER as u64)
    }

    fn begin(&mut self, key: &[u8; KEY_LEN]) -> Result<()> {
        self.cut(0)?;
        self.append(&[MAGIC.as_slice(), key].concat())
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        use std::io::Seek;
        self.file
            .set_len(len)
            .and_then(|()| self.file.seek(std::io::SeekFrom::Start(len)))
            .map(|_| ())
            .map_err(VersionsError::io(&self.name))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(VersionsError::io(&self.name))
    }

    /// Writes down how far the save is. `frames` were written since the last record, `rest` was not.
    ///
    /// # Errors
    /// `Io`; `Invalid` if this much is not written yet that it cannot be sealed.
    pub fn record(&mut self, state: &ScanState, frames: &[Packed], rest: &Unpacked) -> Result<()> {
        let from = self.runs.saturating_sub(1).min(state.runs.len());
        let mut out = Vec::new();
        for number in [
            state.pieces,
            state.bytes_read,
            state.counts.changed,
            state.counts.deduplicated,
            state.counts.new,
            from as u64,
            (state.runs.len() - from) as u64,
            frames.len() as u64,
            rest.names.len() as u64,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for run in &state.runs[from..] {
            put_run(&mut out, run);
        }
        for frame in frames {
            put_frame(&mut out, frame);
        }
        out.extend_from_slice(rest.names.as_flattened());
        out.extend_from_slice(&rest.blocks);
        let body = self.cipher.seal(out)?;
        let mut record = (body.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(&body);
        record.extend_from_slice(&frame_check(&body));
        self.append(&record)?;
        self.runs = state.runs.len();
        Ok(())
    }
}

fn put_run(out: &mut Vec<u8>, run: &Run) {
    let (kind, pack, slot) = match run.at {
        BlockRef::Zero => (0u32, 0, 0),
        BlockRef::Base => (1, 0, 0),
        BlockRef::Stored { pack, slot } => (2, pack, slot),
    };
    out.extend_from_slice(&run.start.to_le_bytes());
    out.extend_from_slice(&run.len.to_le_bytes());
    for number in [kind, pack, slot] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn get_run(cursor: &mut Cursor<'_>) -> Result<Run> {
    let (start, len) = (cursor.u64()?, cursor.u64()?);
    let (kind, pack, slot) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    let at = match kind {
        0 => BlockRef::Zero,
        1 => BlockRef::Base,
        _ => BlockRef::Stored { pack, slot },
    };
    Ok(Run { start, len, at })
}

fn put_frame(out: &mut Vec<u8>, frame: &Packed) {
    for number in [
        frame.pack,
        frame.len,
        u32::from(frame.raw),
        frame.names.len() as u32,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&frame.check);
    out.extend_from_slice(frame.names.as_flattened());
}

fn get_frame(cursor: &mut Cursor<'_>) -> Result<Packed> {
    let (pack, len, raw, count) = (cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?);
    Ok(Packed {
        pack,
        len,
        raw: raw != 0,
        check: cursor.array::<CHECK_LEN>()?,
        names: get_names(cursor, u64::from(count))?,
    })
}

fn get_names(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Name>> {
    let bytes = cursor.take((count as usize).saturating_mul(NAME_LEN))?;
    let names = bytes.chunks_exact(NAME_LEN);
    Ok(names.filter_map(|name| name.try_into().ok()).collect())
}

/// What the whole records say, and where the last of them ends; nothing if there is none.
fn whole_records(bytes: &[u8], block_size: u32, cipher: &Cipher) -> (usize, Option<Interrupted>) {
    let (mut end, mut left) = (HEADER, None);
    while let Some(body) = next_record(&bytes[end..]) {
        let mut sum = left.take().unwrap_or_else(Interrupted::default);
        let read = cipher
            .open(body.to_vec(), "the journal of a save")
            .and_then(|opened| read_record(&opened, block_size, &mut sum));
        if read.is_err() {
            // Whole, and yet not as we write it: with another key.
            return (0, None);
        }
        left = Some(sum);
        end += 8 + body.len() + CHECK_LEN;
    }
    match left {
        Some(left) => (end, Some(left)),
        None => (0, None),
    }
}

/// The body of the record that bytes begin with, if it is whole.
fn next_record(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (body, check) = (
        rest.get(..len)?,
        rest.get(len..len.checked_add(CHECK_LEN)?)?,
    );
    (frame_check(body) == check).then_some(body)
}

fn read_record(body: &[u8], block_size: u32, left: &mut Interrupted) -> Result<()> {
    let mut cursor = Cursor::new(body, "the journal of a save");
    let state = &mut left.state;
    state.pieces = cursor.u64()?;
    state.bytes_read = cursor.u64()?;
    state.counts = Counts {
        changed: cursor.u64()?,
        deduplicated: cursor.u64()?,
        new: cursor.u64()?,
    };
    let (from, runs) = (cursor.u64()?, cursor.u64()?);
    let (frames, rest) = (cursor.u64()?, cursor.u64()?);
    state.runs.truncate(from as usize);
    for _ in 0..runs {
        state.runs.push(get_run(&mut cursor)?);
    }
    for _ in 0..frames {
        left.frames.push(get_frame(&mut cursor)?);
    }
    left.rest.names = get_names(&mut cursor, rest)?;
    let len = (rest as usize).saturating_mul(block_size as usize);
    left.rest.blocks = cursor.take(len)?.to_vec();
    match cursor.is_empty() {
        true => Ok(()),
        false => Err(cursor.error("it has bytes after its end")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u32 = 512;

    fn plain() -> Cipher {
        Cipher::new(None)
    }

    fn state(pieces: u64, last: u64) -> ScanState {
        let run = |start, len| Run {
            start,
            len,
            at: BlockRef::Stored { pack: 3, slot: 9 },
        };
        ScanState {
            pieces,
            bytes_read: pieces * 100,
            counts: Counts {
                changed: 5,
                deduplicated: 1,
                new: 4,
            },
            runs: (0..pieces)
                .map(|i| run(i * 10, 3))
                .chain([run(pieces * 10, last)])
                .collect(),
        }
    }

    fn frame(pack: u32) -> Packed {
        Packed {
            pack,
            len: 77,
            raw: false,
            check: [pack as u8; CHECK_LEN],
            names: vec![[1; NAME_LEN], [2; NAME_LEN]],
        }
    }

    fn rest(count: usize) -> Unpacked {
        Unpacked {
            names: vec![[9; NAME_LEN]; count],
            blocks: vec![8; count * SIZE as usize],
        }
    }

    #[test]
    fn records_are_read_wherever_the_file_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let key = [7; KEY_LEN];
        let (mut journal, left) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
        assert!(left.is_none());
        // The last run grows between the records.
        journal.record(&state(2, 1), &[frame(1)], &rest(3)).unwrap();
        let first = std::fs::metadata(&path).unwrap().len();
        journal.record(&state(2, 5), &[], &rest(0)).unwrap();
        journal
            .record(&state(4, 1), &[frame(1), frame(2)], &rest(1))
            .unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (_, left) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
        let left = left.unwrap();
        assert_eq!(left.state, state(4, 1));
        assert_eq!(left.frames, [frame(1), frame(1), frame(2)]);
        assert_eq!(left.rest, rest(1));
        for end in (0..bytes.len()).step_by(13) {
            std::fs::write(&path, &bytes[..end]).unwrap();
            let (_, left) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
            assert_eq!(left.is_some(), end as u64 >= first, "at {end}");
            // What was torn off is gone for good.
            let (_, again) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
            assert_eq!(again.map(|left| left.state), left.map(|left| left.state));
        }
    }

    proptest! {
        #[test]
        fn any_records_are_answered(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 0..4),
            numbers in proptest::collection::vec(prop_oneof![0..4u64, any::<u64>()], 9),
            tail in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal");
            let key = [7; KEY_LEN];
            let mut bytes = [MAGIC.as_slice(), &key].concat();
            for (at, mut body) in bodies.into_iter().enumerate() {
                if at % 2 == 0 {
                    // What begins as a record does.
                    let head = numbers.iter().flat_map(|number| number.to_le_bytes());
                    body = head.chain(body).collect();
                }
                bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
                bytes.extend_from_slice(&body);
                bytes.extend_from_slice(&frame_check(&body));
            }
            bytes.extend_from_slice(&tail);
            std::fs::write(&path, &bytes).unwrap();
            let (_, left) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
            if let Some(left) = left {
                let size = left.rest.blocks.len() + left.rest.names.len() * NAME_LEN;
                prop_assert!(size + left.state.runs.len() + left.frames.len() <= bytes.len());
            }
            // What is left of it is read again, and is the same.
            let (_, first) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
            let (_, again) = Journal::open(&path, &key, SIZE, &plain()).unwrap();
            prop_assert_eq!(first.map(|left| left.state), again.map(|left| left.state));
        }
    }

    #[test]
    fn another_save_finds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path, &[1; KEY_LEN], SIZE, &plain()).unwrap();
        journal.record(&state(2, 1), &[], &rest(0)).unwrap();
        assert!(Journal::open(&path, &[2; KEY_LEN], SIZE, &plain())
            .unwrap()
            .1
            .is_none());
        assert!(Journal::open(&path, &[1; KEY_LEN], SIZE, &plain())
            .unwrap()
            .1
            .is_none());
    }

    #[test]
    fn a_flipped_byte_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path, &[1; KEY_LEN], SIZE, &plain()).unwrap();
        journal.record(&state(2, 1), &[], &rest(0)).unwrap();
        journal.record(&state(3, 1), &[], &rest(0)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let (_, left) = Journal::open(&path, &[1; KEY_LEN], SIZE, &plain()).unwrap();
        assert_eq!(left.unwrap().state, state(2, 1));
    }

    #[test]
    fn blocks_are_not_in_the_clear_where_frames_are_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (key, cipher) = ([1; KEY_LEN], Cipher::new(Some(&[5; 32])));
        let (mut journal, _) = Journal::open(&path, &key, SIZE, &cipher).unwrap();
        let secret = b"what no other may read";
        let mut waiting = rest(1);
        waiting.blocks[..secret.len()].copy_from_slice(secret);
        journal.record(&state(2, 1), &[], &waiting).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
        let (_, left) = Journal::open(&path, &key, SIZE, &cipher).unwrap();
        assert_eq!(left.unwrap().rest, waiting);
        let other = Cipher::new(Some(&[6; 32]));
        assert!(Journal::open(&path, &key, SIZE, &other)
            .unwrap()
            .1
            .is_none());
    }
}
