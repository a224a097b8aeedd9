//! What a start makes of the files that an earlier run left.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;

/// An image that was read whole and closed.
fn closed() -> Fixture {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    read(&file, 0, fixture.content.len()).unwrap();
    file.leaves().close().unwrap();
    fixture.requests();
    fixture
}

fn data(fixture: &Fixture) -> PathBuf {
    data_path(fixture.folder.path(), &fixture.manifest)
}

/// Open it again, read all, and return how many leaves were found lost and what was requested.
fn read_again(fixture: &Fixture) -> (u64, Vec<u64>) {
    let (file, shared) = fixture.open(false);
    let found = read(&file, 0, fixture.content.len()).unwrap();
    assert!(found == *fixture.content, "wrong bytes are served");
    assert_eq!(shared.get(Counter::Complete), 1);
    (shared.get(Counter::Corrupt), fixture.requests())
}

#[test]
fn a_data_file_that_is_gone_is_fetched_again_and_not_read_as_zeros() {
    let fixture = closed();
    std::fs::remove_file(data(&fixture)).unwrap();
    let (lost, requests) = read_again(&fixture);
    assert!(lost > 0);
    assert_eq!(requests, [0]);
}

#[test]
fn of_a_data_file_that_is_shorter_the_rest_is_fetched_again() {
    let fixture = closed();
    let file = OpenOptions::new().write(true).open(data(&fixture)).unwrap();
    file.set_len(2 * CHUNK).unwrap();
    let (lost, requests) = read_again(&fixture);
    assert!(lost > 0);
    assert_eq!(requests, [2 * CHUNK]);
}

#[test]
fn bytes_that_were_changed_after_the_end_are_fetched_again() {
    let fixture = closed();
    let file = OpenOptions::new().write(true).open(data(&fixture)).unwrap();
    let before = file.metadata().unwrap();
    file.write_all_at(b"EVIL", CHUNK + 7).unwrap();
    // Also if the time is set back.
    let times = std::fs::FileTimes::new().set_modified(before.modified().unwrap());
    file.set_times(times).unwrap();
    assert_eq!(read_again(&fixture), (1, vec![CHUNK]));
}

#[test]
fn marks_that_were_changed_after_the_end_are_not_trusted() {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    read(&file, 0, CHUNK as usize).unwrap();
    file.leaves().close().unwrap();
    drop(file);
    let path = data(&fixture).with_extension("leaves");
    let mut marks = std::fs::read(&path).unwrap();
    let last = marks.len() - 1;
    assert_eq!(std::mem::replace(&mut marks[last], 1), 0);
    std::fs::write(&path, marks).unwrap();
    fixture.requests();
    let (lost, _) = read_again(&fixture);
    assert_eq!(lost, 1);
}

#[test]
fn what_another_thread_keeps_after_the_end_is_neither_marked_nor_written() {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    read(&file, 0, 1).unwrap();
    file.leaves().close().unwrap();
    let chunk = &fixture.content[CHUNK as usize..2 * CHUNK as usize];
    assert!(file.leaves().keep(1, chunk).is_err());
    // The read has its bytes all the same.
    assert_eq!(read(&file, CHUNK, 9).unwrap(), chunk[..9]);
    drop(file);
    fixture.requests();
    let (file, shared) = fixture.open(false);
    assert!(file.leaves().check(0) && !file.leaves().is_marked(1));
    assert_eq!(shared.get(Counter::Corrupt), 0);
}

#[test]
fn an_image_that_was_whole_is_whole_again_once_it_was_verified() {
    let fixture = closed();
    let (file, _) = fixture.open(false);
    assert!(file.leaves().is_complete());
    // Not closed.
    drop(file);
    let (file, shared) = fixture.open(false);
    assert_eq!(shared.get(Counter::Complete), 0);
    file.verify_left();
    assert_eq!(shared.get(Counter::Complete), 1);
    assert!(fixture.requests().is_empty());
}
