//! The files of ext2, ext3 and ext4, and the blocks of each (kernel documentation, filesystems/ext4: "Directory Entries", "Special inodes").

use std::collections::HashMap;

use diffcache_base::words::Words;

use super::super::contents::{Budget, Contents, Found, Kind, Piece};
use super::super::{refuse, Refusal, Volume};
use super::inodes::{InodeKind, Reader, Run};
use super::Layout;

const ROOT: u32 = 2;
const JOURNAL: u32 = 8;
/// Most names in directories.
const MAX_NAMES: usize = 1 << 22;
/// Longest path in bytes.
const MAX_PATH: usize = 4096;

/// Returns files and directories with their bytes of the volume, and the tables of inodes and the journal.
pub fn files(volume: &Volume<'_>, budget: Budget) -> Result<Contents, Refusal> {
    let layout = Layout::read(volume)?;
    let groups = layout.groups(volume)?;
    let reader = Reader::new(volume, &layout, &groups)?;
    let mut walk = Walk {
        reader: &reader,
        found: Vec::new(),
        places: HashMap::new(),
        names_left: MAX_NAMES,
        budget,
    };
    walk.run()?;
    let mut found = walk.found;
    let tables = groups.iter().zip(0..).map(|(group, number)| Run {
        first: layout.table_blocks * number,
        block: group.inode_table,
        count: layout.table_blocks,
    });
    found.push(special(Kind::Inodes, tables, &layout));
    let journal = reader.inode(JOURNAL)?;
    if journal.kind == InodeKind::File {
        found.push(special(
            Kind::Journal,
            reader.runs(&journal)?.into_iter(),
            &layout,
        ));
    }
    Ok(Contents {
        found,
        end: layout.blocks * layout.block,
    })
}

/// Returns the bytes of a run.
pub fn piece(run: Run, layout: &Layout) -> Piece {
    Piece {
        start: run.block * layout.block,
        end: (run.block + run.count) * layout.block,
        position: run.first * layout.block,
    }
}

/// What is in no directory.
fn special(kind: Kind, runs: impl Iterator<Item = Run>, layout: &Layout) -> Found {
    let pieces = runs.map(|run| piece(run, layout)).collect();
    Found {
        kind,
        path: String::new(),
        size: 0,
        pieces,
    }
}

struct Walk<'a> {
    reader: &'a Reader<'a>,
    found: Vec<Found>,
    /// Where in `found` an inode is.
    places: HashMap<u32, usize>,
    names_left: usize,
    /// What may be found besides.
    budget: Budget,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        let mut waiting = Vec::new();
        self.add(ROOT, "/".to_owned(), &mut waiting)?;
        if waiting.is_empty() {
            return refuse("it has no root directory");
        }
        while let Some(place) = waiting.pop() {
            self.directory(place, &mut waiting)?;
        }
        Ok(())
    }

    /// Adds what an inode is of; a directory to those that wait to be read as well.
    fn add(&mut self, number: u32, path: String, waiting: &mut Vec<usize>) -> Result<(), Refusal> {
        if let Some(&place) = self.places.get(&number) {
            if self.found[place].kind == Kind::Directory {
                return refuse("a directory is in two places");
            }
            // The same for all images that have the same names.
            if path < self.found[place].path {
                self.take_path(path.len())?;
                self.budget.path_bytes += self.found[place].path.len();
                self.found[place].path = path;
            }
            return Ok(());
        }
        let inode = self.reader.inode(number)?;
        let kind = match inode.kind {
            InodeKind::File => Kind::File,
            InodeKind::Directory => Kind::Directory,
            InodeKind::Other => return Ok(()),
        };
        if kind == Kind::Directory && inode.is_inline() {
            return refuse("a directory is stored in its inode");
        }
        self.take_path(path.len())?;
        if self.found.len() >= self.budget.entries {
            return refuse("it has too many files");
        }
        let runs = self.reader.runs(&inode)?;
        let layout = self.reader.layout;
        if kind == Kind::Directory {
            waiting.push(self.found.len());
        }
        self.places.insert(number, self.found.len());
        self.found.push(Found {
            kind,
            path,
            size: inode.size,
            pieces: runs.into_iter().map(|run| piece(run, layout)).collect(),
        });
        Ok(())
    }

    /// Counts the bytes of a path.
    fn take_path(&mut self, len: usize) -> Result<(), Refusal> {
        match self.budget.path_bytes.checked_sub(len) {
            Some(left) if len <= MAX_PATH => {
                self.budget.path_bytes = left;
                Ok(())
            }
            _ => refuse("its paths are too long"),
        }
    }

    /// Reads the entries of a directory.
    fn directory(&mut self, place: usize, waiting: &mut Vec<usize>) -> Result<(), Refusal> {
        let layout = self.reader.layout;
        let parent = match self.found[place].path.as_str() {
            "/" => String::new(),
            path => path.to_owned(),
        };
        for i in 0..self.found[place].pieces.len() {
            let Piece { start, end, .. } = self.found[place].pieces[i];
            for block in start / layout.block..end / layout.block {
                let entries = self.reader.block(block)?;
                self.entries(&entries, &parent, waiting)?;
            }
        }
        Ok(())
    }

    /// Reads a block of entries. The inner nodes of trees look like blocks without entries.
    fn entries(
        &mut self,
        block: &[u8],
        parent: &str,
        waiting: &mut Vec<usize>,
    ) -> Result<(), Refusal> {
        let mut at = 0;
        while at + 8 <= block.len() {
            let words = Words(&block[at..]);
            let length = match usize::from(words.le16(4)) {
                // What 65536 is written as.
                0 | 0xffff if block.len() == 1 << 16 => 1 << 16,
                length => length,
            };
            let name_end = 8 + usize::from(block[at + 6]);
            if length < name_end || length % 4 != 0 || at + length > block.len() {
                return refuse("an entry of a directory is none");
            }
            let name = &block[at + 8..at + name_end];
            if words.le32(0) != 0 && !matches!(name, b"" | b"." | b"..") {
                let Some(left) = self.names_left.checked_sub(1) else {
                    return refuse("it has too many names");
                };
                self.names_left = left;
                let path = format!("{parent}/{}", readable(name));
                self.add(words.le32(0), path, waiting)?;
            }
            at += length;
        }
        Ok(())
    }
}

/// A name without what terminals obey, and without slashes: as `ls -b` shows it.
fn readable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for part in name.utf8_chunks() {
        for each in part.valid().chars() {
            match each {
                '\\' => text.push_str("\\\\"),
                '/' => text.push_str("\\x2f"),
                _ if each.is_control() => text.extend(each.escape_unicode()),
                _ => text.push(each),
            }
        }
        for byte in part.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn names_are_shown_without_control_characters() {
        assert_eq!(readable("grün.txt".as_bytes()), "grün.txt");
        assert_eq!(readable(b"a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(readable(b"\xff\\x2d/"), "\\xff\\\\x2d\\x2f");
    }
}
