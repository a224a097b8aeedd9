//! Tests of images that arrive, with a diffcached that is made.

use super::*;
use crate::testing::Directory;
use std::os::unix::net::UnixListener;

fn key() -> ObjectKey {
    ObjectKey::parse("images", &"a".repeat(64)).unwrap()
}

fn request(want: Want, offset: u64, len: u64) -> RangeRequest {
    RangeRequest { want, offset, len }
}

#[test]
fn requests_and_answers_are_read_as_they_were_written() {
    for wanted in [
        request(Want::Present, 0, 1),
        request(Want::Fetched, u64::MAX - LONGEST_RANGE, LONGEST_RANGE),
        request(Want::Arriving, 7, 9),
    ] {
        let read = RangeRequest::read(&mut &wanted.encode()[..]).unwrap();
        assert_eq!(read, Some(wanted));
    }
    assert_eq!(RangeRequest::read(&mut &b""[..]).unwrap(), None);
    for answer in [
        RangeAnswer::InFile,
        RangeAnswer::Absent,
        RangeAnswer::Failed,
        RangeAnswer::Bytes(vec![7; 5]),
    ] {
        let mut bytes = Vec::new();
        answer.write(&mut bytes).unwrap();
        assert_eq!(RangeAnswer::read(&mut &bytes[..], 5).unwrap(), answer);
    }
}

#[test]
fn what_is_no_request_is_refused() {
    for bad in [
        request(Want::Present, 0, 0),
        request(Want::Present, 0, LONGEST_RANGE + 1),
        request(Want::Fetched, u64::MAX, 1),
    ] {
        assert!(
            RangeRequest::read(&mut &bad.encode()[..]).is_err(),
            "{bad:?}"
        );
    }
    let mut other = request(Want::Present, 0, 1).encode();
    other[0] = 3;
    assert!(RangeRequest::read(&mut &other[..]).is_err());
    assert!(RangeRequest::read(&mut &other[..9]).is_err());
}

#[test]
fn ranges_are_asked_for_once_and_the_file_is_not_read_before() {
    let directory = Directory::new();
    let data = directory.path.join(format!("{}.data", key().id_hex()));
    std::fs::write(&data, vec![5; 3 << 20]).unwrap();
    let listener = UnixListener::bind(directory.path.join(SOCKET)).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let answers = [
            RangeAnswer::InFile,
            RangeAnswer::Bytes(vec![9; 10]),
            RangeAnswer::Absent,
        ];
        answers.map(|answer| {
            let request = RangeRequest::read(&mut stream).unwrap().unwrap();
            answer.write(&mut stream).unwrap();
            (request.offset, request.len)
        })
    });
    let partial = Arc::new(Partial::open(key(), &directory.path).unwrap());
    assert_eq!(partial.size(), 3 << 20);
    let mut reader = PartialReader::new(partial, Want::Present);
    let end = LONGEST_RANGE + 10;
    for position in [100, 5000] {
        let piece = reader.read(position, end).unwrap();
        assert!(matches!(piece, Piece::File(_, LONGEST_RANGE)));
    }
    let piece = reader.read(LONGEST_RANGE, end).unwrap();
    assert!(matches!(piece, Piece::Bytes(bytes) if bytes == [9; 10]));
    let absent = reader.read(end, end + 1);
    assert!(matches!(absent, Err(PartialError::Absent)));
    let asked = server.join().unwrap();
    assert_eq!(
        asked,
        [(100, LONGEST_RANGE - 100), (LONGEST_RANGE, 10), (end, 1)]
    );
}

#[test]
fn a_connection_serves_one_reader_after_the_other_until_its_worker_ends() {
    let directory = Directory::new();
    let data = directory.path.join(format!("{}.data", key().id_hex()));
    std::fs::write(&data, b"12345").unwrap();
    let listener = UnixListener::bind(directory.path.join(SOCKET)).unwrap();
    let server = std::thread::spawn(move || {
        [2, 1].map(|requests| {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..requests {
                RangeRequest::read(&mut stream).unwrap().unwrap();
                RangeAnswer::InFile.write(&mut stream).unwrap();
            }
        })
    });
    let partial = Arc::new(Partial::open(key(), &directory.path).unwrap());
    for _ in 0..3 {
        let mut reader = PartialReader::new(partial.clone(), Want::Fetched);
        assert!(matches!(reader.read(0, 5), Ok(Piece::File(_, 5))));
    }
    server.join().unwrap();
    let mut reader = PartialReader::new(partial, Want::Fetched);
    assert!(matches!(
        reader.read(0, 5),
        Err(PartialError::Unanswered(_))
    ));
}

#[test]
fn hints_are_those_of_diffcached() {
    let directory = Directory::new();
    let data = directory.path.join(format!("{}.data", key().id_hex()));
    std::fs::write(&data, b"12345").unwrap();
    let partial = Partial::open(key(), &directory.path).unwrap();
    // diffcached takes no connections there.
    let absent = partial.hints("YQ==").unwrap_err();
    assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    let listener = UnixListener::bind(directory.path.join(hints::SOCKET)).unwrap();
    let server = std::thread::spawn(move || {
        [&b"\x04\x00Yg=="[..], b"\x00\x00", b"\x02\x00\r\n", b""].map(|answer| {
            let (mut stream, _) = listener.accept().unwrap();
            let known = hints::read(&mut stream).unwrap();
            stream.write_all(answer).unwrap();
            known
        })
    });
    assert_eq!(partial.hints("YQ==").unwrap().as_deref(), Some("Yg=="));
    assert_eq!(partial.hints("YQ==").unwrap(), None);
    assert!(partial.hints("YQ==").is_err());
    assert!(partial.hints("YQ==").is_err());
    assert!(partial.hints("a b").is_err());
    let asked = server.join().unwrap();
    assert!(asked.iter().all(|known| known.as_deref() == Some("YQ==")));
}

#[test]
fn without_diffcached_nothing_is_sent() {
    let directory = Directory::new();
    assert!(Partial::open(key(), &directory.path).is_err());
    let data = directory.path.join(format!("{}.data", key().id_hex()));
    std::os::unix::fs::symlink("/etc/hostname", &data).unwrap();
    assert!(Partial::open(key(), &directory.path).is_err());
    std::fs::remove_file(&data).unwrap();
    std::fs::write(&data, b"12345").unwrap();
    let partial = Arc::new(Partial::open(key(), &directory.path).unwrap());
    let mut reader = PartialReader::new(partial, Want::Fetched);
    assert!(matches!(
        reader.read(0, 5),
        Err(PartialError::Unanswered(_))
    ));
}
