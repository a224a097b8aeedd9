//! Tests of traces: what they have in them, and what is refused.

use diffcache_core::task::Task;
use proptest::prelude::*;

use super::*;

fn read_all(bytes: &[u8]) -> Result<(Vec<String>, Vec<Request>), TraceError> {
    let mut reader = Reader::new(bytes)?;
    let (mut batch, mut found) = (Vec::new(), Vec::new());
    loop {
        reader.fill(&mut batch)?;
        if batch.is_empty() {
            return Ok((reader.volumes().names().to_vec(), found));
        }
        found.extend_from_slice(&batch);
    }
}

fn error_of(bytes: &[u8]) -> String {
    read_all(bytes).map(|_| ()).unwrap_err().to_string()
}

fn to_binary(volumes: &[String], requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    binary::write_header(&mut bytes, volumes).unwrap();
    for request in requests {
        binary::write_request(&mut bytes, request).unwrap();
    }
    bytes
}

fn to_text(volumes: &[String], requests: &[Request]) -> Vec<u8> {
    let mut text = String::from("time_us,volume,op,offset,length\n");
    for each in requests {
        let op = if each.op == Op::Write { 'w' } else { 'r' };
        let volume = &volumes[each.volume as usize];
        text += &format!(
            "{},{volume},{op},{},{}\n",
            each.time_us, each.offset, each.length
        );
    }
    text.into_bytes()
}

#[test]
fn a_request_touches_the_blocks_of_its_bytes() {
    let blocks = |offset, length| {
        request(0, 0, Op::Read, offset, length)
            .unwrap()
            .blocks(4096)
    };
    assert_eq!(0..1, blocks(0, 1));
    assert_eq!(0..1, blocks(0, 4096));
    assert_eq!(0..2, blocks(4095, 2));
    assert_eq!(3..6, blocks(3 * 4096, 3 * 4096));
    assert!(blocks(4096, 0).is_empty());
    assert_eq!(1, blocks(u64::MAX - 1, 1).count());
    let odd = request(0, 0, Op::Read, 2999, 2002).unwrap();
    assert_eq!(2..6, odd.blocks(1000));
    assert_eq!(2999..5001, odd.blocks(1));
}

#[test]
fn text_in_all_its_forms() {
    let (volumes, requests) =
        read_all(b"time_us,volume,op,offset,length\r\n1,vol a,r,0,4096\r\n\n2,b,W,8192,1").unwrap();
    assert_eq!(vec!["vol a", "b"], volumes);
    assert_eq!(
        vec![
            Request {
                time_us: 1,
                offset: 0,
                length: 4096,
                volume: 0,
                op: Op::Read
            },
            Request {
                time_us: 2,
                offset: 8192,
                length: 1,
                volume: 1,
                op: Op::Write
            },
        ],
        requests
    );
    assert_eq!((vec![], vec![]), read_all(b"").unwrap());
    assert_eq!(
        (vec![], vec![]),
        read_all(b"time_us,volume,op,offset,length").unwrap()
    );
}

#[test]
fn errors_name_the_line() {
    let columns = "a request is time_us,volume,op,offset,length";
    for (line, reason) in [
        ("1,a,r,0", columns),
        ("1,a,r,0,1,2", columns),
        (
            "hello",
            "time_us \"hello\" is not a whole number below 2^64",
        ),
        ("1,a,x,0,1", "the operation \"x\" is neither r nor w"),
        (
            "1,a,r,-1,1",
            "offset \"-1\" is not a whole number below 2^64",
        ),
        (
            "1,a,r,18446744073709551616,1",
            "offset \"18446744073709551616\" is not a whole number below 2^64",
        ),
        ("1,a,r,0,", "length \"\" is not a whole number below 2^64"),
        (
            "1,a,r,0,4294967296",
            "the length 4294967296 is more than 4294967295 bytes",
        ),
        (
            "1,a,r,18446744073709551615,1",
            "the request ends beyond 18446744073709551615 bytes",
        ),
        ("1,,r,0,1", "a volume's name has 1 to 255 bytes"),
        ("1,a\tb,r,0,1", "the volume's name has control characters"),
        (
            "time_us,volume,op,offset,length",
            "time_us \"time_us\" is not a whole number below 2^64",
        ),
    ] {
        let text = format!("1,a,r,0,1\n2,a,r,0,1\n{line}\n");
        assert_eq!(
            format!("line 3: {reason}"),
            error_of(text.as_bytes()),
            "{line}"
        );
    }
    assert_eq!(
        "line 1: neither text nor what \"diffcache trace pack\" writes",
        error_of(b"QFI\xfb\0\0\0\x03")
    );
    assert_eq!(
        "line 1: the volume's name is not UTF-8",
        error_of(b"1,\xff,r,0,1")
    );
}

#[test]
fn a_line_without_end_is_refused_before_it_is_read() {
    let endless = io::BufReader::new(io::repeat(b'1'));
    let error = Reader::new(endless)
        .unwrap()
        .fill(&mut Vec::new())
        .unwrap_err();
    assert_eq!(
        "line 1: the line is longer than 331 bytes",
        error.to_string()
    );
}

#[test]
fn binary_traces_that_are_none() {
    let names = vec!["a".to_owned(), "b".to_owned()];
    let whole = to_binary(&names, &[request(0, 1, Op::Read, 0, 1).unwrap()]);
    // After 20 bytes, the header, there are no requests.
    for end in (8..20).chain(21..whole.len()) {
        let error = error_of(&whole[..end]);
        assert!(error.ends_with("the file ends too early"), "{end}: {error}");
    }
    let mut other = whole.clone();
    other[20 + 20] = 2;
    assert_eq!("byte 20: there is no volume 2", error_of(&other));
    let mut other = whole.clone();
    other[8] = 1;
    assert_eq!(
        "byte 16: 1 different names of volumes are expected",
        error_of(&other)
    );
    let mut other = whole;
    other[8..16].fill(0xff);
    assert_eq!(
        "byte 8: there are more than 1048576 volumes",
        error_of(&other)
    );
}

#[test]
fn packed_traces_are_binary_ones() {
    let (volumes, requests) = read_all(b"1,a,r,0,4096\n2,b,w,8192,1\n3,a,r,0,1").unwrap();
    let (text, mut packed) = (to_text(&volumes, &requests), Vec::new());
    let task = Task::default();
    let count = binary::pack(&text[..], &text[..], &mut packed, 0, &task).unwrap();
    assert_eq!((3, to_binary(&volumes, &requests)), (count, packed.clone()));
    let mut again = Vec::new();
    binary::pack(&packed[..], &packed[..], &mut again, 0, &task).unwrap();
    assert_eq!(packed, again);
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (
        any::<u64>(),
        0..3u32,
        any::<bool>(),
        0..u64::MAX / 2,
        any::<u32>(),
    )
        .prop_map(|(time_us, volume, writes, offset, length)| Request {
            time_us,
            offset,
            length,
            volume,
            op: if writes { Op::Write } else { Op::Read },
        });
    proptest::collection::vec(one, 0..200)
}

/// Reads a few bytes at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = into.len().min(7);
        self.0.read(&mut into[..length])
    }
}

proptest! {
    #[test]
    fn both_forms_have_the_same_requests(requests in requests()) {
        let names: Vec<String> = ["zero", "one", "zwei ü"].map(String::from).to_vec();
        let (_, found) = read_all(&to_binary(&names, &requests)).unwrap();
        prop_assert_eq!(&requests, &found);
        let (volumes, found) = read_all(&to_text(&names, &requests)).unwrap();
        prop_assert_eq!(requests.len(), found.len());
        for (expected, found) in requests.iter().zip(&found) {
            prop_assert_eq!(&names[expected.volume as usize], &volumes[found.volume as usize]);
            prop_assert_eq!(*expected, Request { volume: expected.volume, ..*found });
        }
    }

    #[test]
    fn the_buffer_does_not_matter(requests in requests()) {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        for bytes in [to_text(&names, &requests), to_binary(&names, &requests)] {
            let mut reader = Reader::new(io::BufReader::new(Slow(&bytes))).unwrap();
            let (mut batch, mut found) = (Vec::new(), Vec::new());
            loop {
                reader.fill(&mut batch).unwrap();
                if batch.is_empty() {
                    break;
                }
                found.extend_from_slice(&batch);
            }
            prop_assert_eq!(read_all(&bytes).unwrap().1, found);
        }
    }

    #[test]
    fn any_bytes_end_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_all(&bytes);
        let _ = read_all(&[binary::MAGIC, &bytes].concat());
    }
}
